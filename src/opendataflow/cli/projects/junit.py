"""Outcomes of cases as JUnit XML, which CI servers show."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence

from opendataflow.errors import UsageError
from opendataflow.spark.outcome import Outcome

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_junit(path: str, outcomes: Sequence[Outcome]) -> None:
    """One suite, one test case for each outcome; UsageError when the file cannot be written."""
    failed = sum(not one.is_ok for one in outcomes)
    seconds = f"{sum(one.seconds for one in outcomes):.3f}"
    counts = {"tests": str(len(outcomes)), "failures": str(failed), "errors": "0", "skipped": "0", "time": seconds}
    suites = ET.Element("testsuites", counts)
    suite = ET.SubElement(suites, "testsuite", {"name": "dataflow validate", **counts})
    for one in outcomes:
        slug, name = one.id[: one.id.rindex(".")], one.id.rpartition(".")[2]
        case = ET.SubElement(
            suite, "testcase", {"classname": slug, "name": name, "file": one.file, "time": f"{one.seconds:.3f}"}
        )
        if not one.is_ok:
            failure = ET.SubElement(case, "failure", {"message": _allowed(one.message)})
            failure.text = _allowed("\n".join(one.details()))
        if one.output:
            ET.SubElement(case, "system-out").text = _allowed(one.output)
    ET.indent(suites)
    try:
        ET.ElementTree(suites).write(path, encoding="utf-8", xml_declaration=True)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error


def _allowed(text: str) -> str:
    """Without what XML cannot hold, such as the escapes of colours."""
    return _NOT_XML.sub("�", text)

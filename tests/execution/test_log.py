"""A run's log: any bytes in the output, any bytes in what is masked."""

import os
from pathlib import Path

import pytest

from opendataflow.domain.dataset import Dataset
from opendataflow.domain.job import Job, Link
from opendataflow.execution.log import RunLog, Shown
from opendataflow.execution.pipeline import _Pipeline

ESCAPED = ("pass\\xe9word", "pass\\udce9word")  # as a child writes bytes that are no text, and as Python shows them


def test_a_password_that_is_no_utf8_is_masked(tmp_path: Path) -> None:
    """Credentials are bytes: what is not UTF-8 is decrypted as Python reads it from a terminal or a file."""
    log = RunLog(str(tmp_path / "1.log"), Shown(out_fd=-1, err_fd=-1), secrets=(os.fsdecode(b"pass\xe9word"),))
    log.write(1, b"before \xff\x00 pass\xe9")
    log.write(1, b"word after\n")
    log.end()
    log.close()
    assert (tmp_path / "1.log").read_bytes() == b"before \xff\x00 *** after\n"
    assert log.tail() == "before \N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER} *** after\n"


@pytest.mark.parametrize("shown", ESCAPED)
def test_such_a_password_is_masked_as_a_child_escapes_it(tmp_path: Path, shown: str) -> None:
    log = RunLog(str(tmp_path / "1.log"), Shown(out_fd=-1, err_fd=-1), secrets=(os.fsdecode(b"pass\xe9word"),))
    log.write(1, f"before {shown[:6]}".encode())
    log.write(1, f"{shown[6:]} after\n".encode())
    log.end()
    log.close()
    assert (tmp_path / "1.log").read_bytes() == b"before *** after\n"


@pytest.mark.parametrize("shown", [*ESCAPED, os.fsdecode(b"pass\xe9word")])
def test_such_a_password_is_masked_in_the_steps_of_a_pipeline(tmp_path: Path, shown: str) -> None:
    fields = ("shop", "load", "pipeline", None, {}, None, None, 60.0, None, 0, 30.0, None, 0, "all")
    job = Job(*fields, str(tmp_path), str(tmp_path), (Link("OUT", Dataset("shop", "orders")),))
    secrets = (os.fsdecode(b"pass"), os.fsdecode(b"pass\xe9word"))
    pipeline = _Pipeline(job, str(tmp_path), None, print, {}, secrets)  # type: ignore[arg-type]  # no store is asked
    (masked,) = pipeline._masked([{"position": 1, "output": f"before {shown} after", "error": shown}])
    assert (masked["output"], masked["error"]) == ("before *** after", "***")

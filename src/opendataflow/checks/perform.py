"""Do a dataset's checks on the files of one chunk, without Spark and without Java.

What needs no row comes first; then every file is opened, and its rows are read once for all checks together.
"""

import json
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from opendataflow.domain.checks.check import (
    FAIL,
    ON_FILES,
    ON_SPARK,
    READABLE,
    WARN,
    Check,
    Checked,
    ChecksFailed,
    Finding,
    age_finding,
    checks_of,
    failures,
    is_validated,
    is_within,
    passed,
    printable,
    remarks,
    skipped,
)
from opendataflow.domain.chunk import Manifest
from opendataflow.domain.dataset import Dataset
from opendataflow.domain.partitions.path_template import fill
from opendataflow.storage.buckets.opened import open_binary
from opendataflow.storage.files import find_files, is_inside, is_local, is_reachable

if TYPE_CHECKING:
    from opendataflow.checks.chunk_reader import ChunkFiles
    from opendataflow.checks.rule import Rule

EarlierRows = Callable[[int], list[int]]  # the row counts of up to so many chunks before this one


def check_chunk(
    dataset: Dataset, dataid: str, location: str, *, root: str, found_manifest: Manifest, earlier_rows: EarlierRows,
    now: float, beat: Callable[[], None] = lambda: None,
) -> Checked:  # fmt: skip
    """What the declared checks say of the files there. Reads, changes nothing; raises nothing because of the data.

    `beat` is called now and then while rows are read. Without declared checks nothing is opened.
    """
    checks = checks_of(dataset.definition)
    if not checks:
        return Checked()
    if not is_reachable(location):
        return Checked(tuple(skipped(check, f"{location} is not on this machine") for check in checks))
    found: dict[int, Finding] = {}
    on_rows: dict[int, Check] = {}
    for number, check in enumerate(checks):
        if check.kind in ON_SPARK:
            found[number] = skipped(check, "not checked here, needs Spark")
        elif check.kind in ON_FILES:
            try:
                found[number] = _check_files(
                    check, location, dataid, dataset.partitions, root=root, found=found_manifest, now=now
                )
            except OSError as error:
                found[number] = _finding(check, False, f"{error.filename or location}: {error.strerror or error}")
        else:
            on_rows[number] = check
    reading = Checked()
    if on_rows:
        reading, by_number = _check_rows(dataset, dataid, location, on_rows, earlier_rows, beat)
        found.update(by_number)
    findings = reading.findings + tuple(found[number] for number in sorted(found))
    return reading._replace(findings=tuple(one._replace(detail=printable(one.detail)) for one in findings))


def audited(
    dataset: Dataset, dataid: str, manifest: Manifest, *, root: str, earlier_rows: EarlierRows, now: float,
    say: Callable[[str], None] = lambda _: None, beat: Callable[[], None] = lambda: None,
    keep: Callable[[tuple[Finding, ...]], None] = lambda _: None,
) -> Manifest:  # fmt: skip
    """The manifest of what a run wrote, with what its checks saw, or raise ChecksFailed. Warnings are said.

    `keep` gets the findings, whatever they are.
    """
    if manifest.location is None or not checks_of(dataset.definition):
        return manifest
    checked = check_chunk(
        dataset, dataid, manifest.location, root=root, found_manifest=manifest, earlier_rows=earlier_rows, now=now,
        beat=beat,
    )  # fmt: skip
    keep(checked.findings)
    return judged(dataset, dataid, manifest, checked, say=say)


def judged(
    dataset: Dataset, dataid: str, manifest: Manifest, checked: Checked, *, say: Callable[[str], None]
) -> Manifest:
    """The manifest with what its checks saw, or raise ChecksFailed. Warnings are said."""
    for remark in remarks(checked.findings):
        say(f"{dataset.datasetid}/{dataid}: {remark}")
    if not passed(checked.findings):
        raise ChecksFailed(
            f"{dataset.datasetid}/{dataid} does not pass its checks: {failures(checked.findings)}; "
            f"the data stays for inspection: {manifest.location}"
        )
    return with_checks(manifest, checked)


def with_checks(manifest: Manifest, checked: Checked) -> Manifest:
    """The manifest with rows, schema and validity as the checks saw them."""
    return manifest._replace(
        rows=manifest.rows if checked.rows is None else checked.rows,
        schema=manifest.schema or checked.schema,
        validated=is_validated(checked.findings),
    )


def _finding(check: Check, ok: bool, detail: str) -> Finding:
    return Finding(str(check), ok, False, detail, check.on_fail)


# Without a row --------------------------------------------------------------------------------------------------------
def _check_files(
    check: Check, location: str, dataid: str, partitions: str | None, *, root: str, found: Manifest, now: float
) -> Finding:
    match check.kind:
        case "exists":
            return _finding(
                check, bool(found.files), f"{found.files} files" if found.files else f"no file in {location}"
            )
        case "bytes":
            size = found.bytes or 0
            return _finding(check, is_within(size, check.options), f"{size} bytes")
        case "freshness":
            times = [changed for _, _, changed in find_files(location).files]
            return age_finding(check, now - min(times) / 1e9 if times else 0.0)
        case _:
            problem = _checksum_problem(check.options, location, dataid, partitions, root=root)
            return _finding(check, not problem, problem or f"{check.options['algorithm']} agrees")


def _checksum_problem(
    options: Mapping[str, Any], location: str, dataid: str, partitions: str | None, *, root: str
) -> str:
    """Why the checksum file does not vouch for the chunk; empty when it does."""
    place = fill(str(options["file"]).replace("{path}", location), dataid, partitions)
    place = os.path.join(root, place)
    if not is_inside(place, root):
        return f"{place} is not below {root}, the root of this environment"
    try:
        with open_binary(place) as file:
            sums = _read_sums(file.read(1 << 24).decode())
    except FileNotFoundError:
        return f"there is no checksum file {place}"
    except UnicodeDecodeError as error:
        return f"{place}: {error}"
    except OSError as error:
        return f"{place}: {error if is_local(place) else error.strerror}"
    if not sums:
        return f"{place} holds no checksum"
    for name, _, _ in find_files(location).files:
        wanted = sums.get(name or os.path.basename(location))
        if wanted is None and not name and len(sums) == 1:
            wanted = next(iter(sums.values()))  # a sum without a name, or made under another one
        if wanted is None:
            return f"{place} does not name {name or os.path.basename(location)}"
        seen = _digest(os.path.join(location, name) if name else location, options["algorithm"])
        if seen != wanted:
            return f"{options['algorithm']} of {name or location} is {seen}, but {place} says {wanted}"
    return ""


def _read_sums(text: str) -> dict[str, str]:
    """File name → sum, as sha256sum, `sha256sum --tag` or a bare sum write it."""
    sums = {}
    for line in text.splitlines():
        head, equals, tail = line.rpartition(") = ")
        if equals:
            sums[os.path.basename(head.partition("(")[2])] = tail.strip().lower()
        elif parts := line.split(maxsplit=1):
            name = parts[1].removeprefix("*").removeprefix("./") if len(parts) > 1 else ""
            sums[os.path.basename(name) if name.startswith("/") else name] = parts[0].lower()
    if len(sums) > 1:
        return sums
    return {os.path.basename(name): value for name, value in sums.items()}


def _digest(path: str, algorithm: str) -> str:
    import hashlib

    digest = hashlib.new(algorithm, usedforsecurity=False)
    with open_binary(path) as file:
        while block := file.read(1 << 20 if is_local(path) else 1 << 23):
            digest.update(block)
    return digest.hexdigest()


# On the rows ----------------------------------------------------------------------------------------------------------
def _check_rows(
    dataset: Dataset, dataid: str, location: str, checks: dict[int, Check], earlier_rows: EarlierRows,
    beat: Callable[[], None],
) -> tuple[Checked, dict[int, Finding]]:  # fmt: skip
    from pyarrow import ArrowException

    from opendataflow.checks.chunk_reader import ChunkFiles, NeedsSpark, Unreadable
    from opendataflow.checks.row_checks import new_rule

    declared = json.loads(dataset.definition or "{}")
    schema = declared.get("schema")
    rules = {number: new_rule(check, dataid, schema, earlier_rows) for number, check in checks.items()}
    options = declared.get("options") or {}
    found = {
        number: skipped(checks[number], f"its option {option} is {options[option]!r}, which only Spark reads")
        for number, rule in rules.items()
        for option in ("dateFormat", "timestampFormat")
        if options.get(option) and rule.reads_times
    }
    rules = {number: rule for number, rule in rules.items() if number not in found}
    trouble: list[str] = []
    reader = rows = types = None
    try:
        reader = ChunkFiles(location, format_=dataset.format, options=options, schema=schema)
        rows, types = _read(reader, list(rules.values()), beat)
        for rule in rules.values():
            rule.end(reader, rows)
    except NeedsSpark as error:
        return Checked(), {number: skipped(check, str(error)) for number, check in checks.items()}
    except Unreadable as error:
        trouble.append(str(error))
    except OSError as error:
        trouble.append(f"{error.filename}: {error.strerror}")
    except ArrowException as error:  # a type that Arrow reads but cannot compare
        trouble.append(f"{location}: {error}")
    is_whole = not trouble
    if reader is not None and reader.crooked:
        trouble.append(reader.first_crooked + (f"; {reader.crooked} rows are so" if reader.crooked > 1 else ""))
    for number, rule in rules.items():
        if is_whole or rule.problems(None):
            found[number] = rule.finding(rows)
        else:
            found[number] = skipped(checks[number], "the rows could not be read to their end")
    on_fail = WARN if all(check.on_fail == WARN for check in checks.values()) else FAIL
    unread = tuple(Finding(READABLE, False, False, text, on_fail) for text in trouble)
    return Checked(unread, rows, _schema_json(types, schema, rules, found)), found


def _read(
    reader: "ChunkFiles", rules: list["Rule"], beat: Callable[[], None]
) -> tuple[int | None, Mapping[str, Any] | None]:
    """Show all files to all rules; returns the number of rows if they were counted, and types where files know them."""
    counted: int | None = 0
    types = None
    for opening in reader.openings():
        for rule in rules:
            rule.open(opening)
        counted = None if counted is None or opening.rows is None else counted + opening.rows
        types = types or opening.types
        beat()
    columns = {column for rule in rules for column in rule.columns}
    if not columns and (counted is not None or not any(rule.needs_rows for rule in rules)):
        return counted, types
    counted = 0
    for batch in reader.batches(columns):
        counted += batch.rows
        for rule in rules:
            rule.see(batch)
        beat()
    return counted, types


def _schema_json(
    types: Mapping[str, Any] | None, schema: Mapping[str, str] | None, rules: dict[int, "Rule"],
    found: dict[int, Finding],
) -> str | None:  # fmt: skip
    """Columns and types as they are: from footers, or as declared where a check has proved it."""
    if types is not None:
        from opendataflow.checks.arrow_types import spark_name

        return json.dumps({name: spark_name(type_) for name, type_ in types.items()}, ensure_ascii=False)
    proved = any(rule.check.kind == "schema" and found[number].ok for number, rule in rules.items())
    return json.dumps(schema, ensure_ascii=False) if proved else None

"""Chunks that come from outside: found by a scan, or declared by hand."""

import json
import os
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opendataflow.cli import completion
from opendataflow.cli.opened import address, opened
from opendataflow.cli.render import put, put_json, say
from opendataflow.errors import Refused, UsageError

if TYPE_CHECKING:
    from opendataflow.arrivals.scan import Arrival
    from opendataflow.domain.checks.check import Finding
    from opendataflow.domain.chunk import Manifest
    from opendataflow.domain.dataset import Dataset
    from opendataflow.store.claims import LoopStore

SHOWN_IGNORED = 3


def add_to(app: typer.Typer) -> None:
    for command in (scan, ready):
        app.command()(command)


def scan(
    dataset: Annotated[
        str | None, typer.Argument(help="Only this dataset.", autocompletion=completion.datasets)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Look and check, but declare nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For scripts.")] = False,
) -> int:
    """Find files that arrived, by the paths in project.yml, and make them READY after their checks.

    A file has arrived when its done marker is there, or when it did not change for a while (`arrival:`).
    Of a table that nobody makes, a slot of time is READY once it is over, and every other chunk at once.
    What fails is told, kept for `dataflow why`, and tried again by the next scan.
    Exit: 0, or the code of the first rejection: 11 WRONG_DATA, 12 INVALID_PATH, 13 NOT_VALIDATED.

    Examples: dataflow scan;  dataflow scan flights --dry-run;  dataflow scan --json
    """
    from opendataflow.arrivals.scan import State, scan_dataset
    from opendataflow.arrivals.sources import open_table
    from opendataflow.domain.tables import find_table

    found = address()
    store = opened(found)
    counts: dict[str, int] = {}
    told: list[dict[str, Any]] = []
    ignored: list[str] = []
    code = 0
    for declared, root in _scanned(store, dataset, found.project):
        if find_table(declared) is not None:
            arrivals: Iterable[Arrival] = open_table(store, declared, root, None, dry_run=dry_run)
        else:
            arrivals = scan_dataset(store, declared, root, now=time.time(), dry_run=dry_run)
        for arrival in arrivals:
            counts[arrival.state] = counts.get(arrival.state, 0) + 1
            code = code or arrival.exit_code
            if arrival.state is State.IGNORED:
                ignored.append(arrival.text)
            elif arrival.state is not State.KNOWN and not as_json:
                put(_line(arrival))
            if arrival.state is not State.KNOWN:
                told.append(_as_json(arrival))
    if as_json:
        put_json(told)
    for text in ignored[:SHOWN_IGNORED]:
        say(text)
    names = {State.READY: "would be READY" if dry_run else "READY", State.KNOWN: "READY already"}
    parts = [f"{counts[state]} {names.get(state, state)}" for state in State if state in counts]
    say(", ".join(parts) or "nothing has arrived")
    return code


def _scanned(store: "LoopStore", datasetid: str | None, project: str | None) -> list[tuple["Dataset", str]]:
    """The datasets to look for, with their roots; one that was named must be such that files of it can arrive."""
    from opendataflow.domain.dataset import Dataset
    from opendataflow.store.registry import get_dataset

    producers = {(row[0], row[1]): str(row[3]) for row in store.read("producers", {}, file="registry")}
    if datasetid is not None:
        declared, root = get_dataset(store, datasetid, project=project)
        reason = _why_not(declared, root, producers.get(declared[:2]))
        if reason:
            raise UsageError(f"dataset {datasetid} {reason}; only files from outside can be scanned for")
        return [(declared, root)]
    if project is None:
        raise UsageError("which project? go to its folder, set DATAFLOW_PROJECT, or name a dataset")
    root = store.get_place(project).root
    all_of_it = [Dataset(*row) for row in store.read("datasets_of", {"project": project}, file="registry")]
    return [(one, root) for one in all_of_it if not _why_not(one, root, producers.get(one[:2]))]


def _why_not(dataset: "Dataset", root: str, producer: str | None) -> str:
    """Why nothing of this dataset can arrive; of a table that nobody makes, slots can."""
    from opendataflow.arrivals.scan import why_not
    from opendataflow.domain.tables import find_table

    if producer is None and find_table(dataset) is not None:
        return ""
    return why_not(dataset, root, producer)


def _line(arrival: "Arrival") -> str:
    from opendataflow.domain.checks.check import remarks

    what = f"{arrival.datasetid}/{arrival.dataid}" if arrival.dataid else arrival.datasetid
    if arrival.code:
        return f"{what} {arrival.state} {arrival.code}: {arrival.text}"
    if arrival.manifest is None:
        return f"{what} {arrival.state}: {arrival.text}"
    rows = "" if arrival.manifest.rows is None else f"{arrival.manifest.rows} rows, "
    notes = "".join(f"; {remark}" for remark in remarks(arrival.findings))
    return f"{what} {arrival.state}: {rows}{arrival.manifest.bytes} bytes{notes}"


def _as_json(arrival: "Arrival") -> dict[str, Any]:
    manifest = arrival.manifest
    return {
        "dataset": arrival.datasetid,
        "dataid": arrival.dataid,
        "state": str(arrival.state),
        "code": arrival.code,
        "evidence": arrival.text,
        "location": manifest.location if manifest else None,
        "bytes": manifest.bytes if manifest else None,
        "rows": manifest.rows if manifest else None,
        "fingerprint": manifest.fingerprint if manifest else None,
        "checks": [finding._asdict() for finding in arrival.findings],
    }


def ready(
    dataset: Annotated[str, typer.Argument(help="The dataset's id.", autocompletion=completion.datasets)],
    dataids: Annotated[list[str], typer.Argument(help="Which chunks: dates, shards, `full`; FIRST..LAST is a range.")],
    location: Annotated[
        str | None, typer.Option(help="Where the chunk is, if not where the dataset's path says.")
    ] = None,
    unchecked: Annotated[
        bool, typer.Option("--unchecked", help="Do not do the declared checks; it is recorded as not validated.")
    ] = False,
) -> None:
    """Declare chunks READY: they arrived from outside. Their checks are done first.

    If one of them is not there or fails its checks (exit 13), none is declared. One that is in use stops the call.

    Examples: dataflow ready orders 2025-11-12;  dataflow ready orders 2025-11-01..2025-11-30;
    dataflow ready orders 2025-11-12 --location data/late/orders.csv
    """
    from opendataflow.domain.partitions.scheme import check_dataid
    from opendataflow.execution.processes import host_identity
    from opendataflow.execution.recover import recover_lost_runs
    from opendataflow.operations.staleness import warn_of_older_readers
    from opendataflow.store.registry import assert_ready, get_dataset
    from opendataflow.store.reports.check_results import record_findings

    found = address()
    store = opened(found)
    declared, root = get_dataset(store, dataset, project=found.project)
    dataids = [dataid for one in dataids for dataid in _range(declared, one)]
    if location is not None and len(dataids) > 1:
        raise UsageError("--location is the place of one chunk; give one dataid with it")
    for dataid in dataids:
        check_dataid(declared.datasetid, declared.partitions, dataid)
    # All are looked at before any is declared, so that a missing file is found first.
    manifests = [(dataid, _arrived(declared, dataid, root, location, store.environment)) for dataid in dataids]
    checked = [(*one, ()) for one in manifests] if unchecked else _checked(store, declared, root, manifests)
    # A run that was killed reads nothing any more: it must not stop the data that somebody has put right.
    recover_lost_runs(store, host=host_identity(), say=say, work=found.work)
    for dataid, manifest, findings in checked:
        before = assert_ready(store, declared, dataid, manifest)
        record_findings(store, declared, dataid, None, findings)
        where = f", {manifest.bytes} bytes at {manifest.location}" if manifest.location else ""
        say(f"{dataset}/{dataid} is READY (was {before}){where}")
    if older := warn_of_older_readers(store, [(*declared[:2], dataid) for dataid in dataids]):
        say(older)


def _range(declared: "Dataset", dataid: str) -> tuple[str, ...]:
    """The dataids from A to B of `A..B`, or the one that it is."""
    from opendataflow.domain.partitions.scheme import dataids_between, is_dataid

    first, dots, last = dataid.partition("..")
    scheme = json.loads(declared.partitions) if declared.partitions else None
    if not dots or (scheme is not None and is_dataid(scheme, dataid)):
        return (dataid,)
    found = dataids_between(first, last, scheme)
    if not found:
        raise UsageError(f"{dataid!r} is no range of {declared.datasetid}: no dataids run from the one to the other")
    return found


def _arrived(declared: "Dataset", dataid: str, root: str, location: str | None, environment: str) -> "Manifest":
    from opendataflow.domain.chunk import Manifest
    from opendataflow.domain.dataset import chunk_location, is_below
    from opendataflow.storage.files import find_inside, is_local, is_reachable, manifest_of

    place = os.path.abspath(location) if location and is_local(location) else location
    place = place or chunk_location(declared, dataid, root=root)
    if place is None or not is_reachable(place):
        return Manifest(location=place)
    if not is_below(place, root):
        raise UsageError(f"{place} is not below {root}, the root of environment {environment!r}")
    try:
        find_inside(place, root=root, told=f"{declared.datasetid}/{dataid}")
        return manifest_of(place)
    except OSError as error:
        raise UsageError(f"{declared.datasetid}/{dataid}: {place}: {error.strerror}") from error


def _checked(
    store: "LoopStore", declared: "Dataset", root: str, manifests: list[tuple[str, "Manifest"]]
) -> Sequence[tuple[str, "Manifest", Sequence["Finding"]]]:
    """The manifests with what the checks saw and found, or raise Refused with every failure; warnings are said."""
    from opendataflow.arrivals.scan import refusal_of
    from opendataflow.checks.perform import check_chunk, with_checks
    from opendataflow.domain.checks.check import failures, passed, remarks
    from opendataflow.domain.runs.questions import CODES
    from opendataflow.store.arrivals import earlier_rows

    done: list[tuple[str, Manifest, Sequence[Finding]]] = []
    refused, code = [], 0
    for dataid, manifest in manifests:
        if manifest.location is None:
            done.append((dataid, manifest, ()))
            continue
        checked = check_chunk(
            declared, dataid, manifest.location, root=root, found_manifest=manifest, now=time.time(),
            earlier_rows=earlier_rows(store, declared, dataid),
        )  # fmt: skip
        for remark in remarks(checked.findings):
            say(f"{declared.datasetid}/{dataid}: {remark}")
        if not passed(checked.findings):
            name, number = CODES[refusal_of(checked.findings)]
            code = code or number
            refused.append(f"{declared.datasetid}/{dataid} {name}: {failures(checked.findings)}")
        done.append((dataid, with_checks(manifest, checked), checked.findings))
    if refused:
        way = "nothing was declared; mend the data, or declare it with --unchecked"
        raise Refused("\n".join([*refused, way]), exit_code=code)
    return done

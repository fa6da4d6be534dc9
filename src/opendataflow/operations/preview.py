"""The first rows of a chunk, read without Spark: what was published, or what a failed run left behind."""

import contextlib
import json
import math
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from opendataflow.domain.chunk import ChunkStatus
from opendataflow.domain.dataset import Dataset, output_location
from opendataflow.domain.runs.questions import CODES, Question
from opendataflow.domain.tables import find_table
from opendataflow.domain.types.spark import family
from opendataflow.domain.types.values import BOOLEAN, INTEGER, NUMERIC
from opendataflow.errors import Refused, UsageError
from opendataflow.storage.files import find_files, find_inside, is_local, is_reachable
from opendataflow.store.claims import LoopStore
from opendataflow.store.published import Published, find_chunk, find_latest, find_producer
from opendataflow.store.registry import get_run

if TYPE_CHECKING:
    from opendataflow.checks.chunk_reader import ChunkFiles

_TYPED = (INTEGER, NUMERIC, BOOLEAN)  # what a CSV writes as text and everybody reads as a value


class Shown(NamedTuple):
    """Some chunk or what a run left, before its rows are read."""

    dataid: str
    status: str
    run: int | None
    location: str
    rows: int | None
    bytes: int | None
    published_at: str | None  # None: it never was
    schema: dict[str, str] | None
    note: str = ""


class Preview(NamedTuple):
    shown: Shown
    schema: dict[str, str]  # column → type, in order; '' where nothing tells
    rows: list[dict[str, Any]]


# Which ----------------------------------------------------------------------------------------------------------------
def find_published(store: LoopStore, dataset: Dataset, dataid: str | None, *, root: str) -> Shown:
    """The READY chunk, or the latest one; raise Refused (10) that says what it is instead, and where to look."""
    name = dataset.datasetid
    if find_table(dataset) is not None:
        raise UsageError(f"{name} is a table; `dataflow source sample {name}` shows its rows")
    if dataset.clock is not None or dataset.location is None:
        told = (
            "is a clock and has no data" if dataset.clock is not None else "is known by its connection, not by a path"
        )
        raise UsageError(f"{name} {told}; files can be previewed")
    chunk = find_latest(store, dataset) if dataid is None else find_chunk(store, dataset, dataid)
    if chunk is None or chunk.status is not ChunkStatus.READY:
        raise _not_ready(store, dataset, dataid, chunk, root)
    place = chunk.place(dataset, root=root) or ""
    schema = json.loads(chunk.schema) if chunk.schema else None
    return Shown(
        chunk.dataid, chunk.status.value, chunk.run, place, chunk.rows, chunk.bytes, chunk.published_at, schema
    )


def _not_ready(
    store: LoopStore, dataset: Dataset, dataid: str | None, chunk: Published | None, root: str
) -> Refused:  # fmt: skip
    name, job = dataset.datasetid, find_producer(store, dataset)
    if dataid is None:
        look = f"`dataflow run {job.jobid}` makes them" if job else f"see `dataflow status {name}`"
        return _refused(Question.READY, f"no chunk of {name} is READY; {look}")
    if chunk is None:
        look = f"`dataflow why {job.jobid} {dataid}`" if job else f"`dataflow status {name}`"
        return _refused(Question.READY, f"{name}/{dataid} is not there; see {look}")
    told = f"{name}/{dataid} is {chunk.status.value} since {chunk.modified}, not READY"
    if job is None:
        why = f": {chunk.problem}" if chunk.problem else ""
        return _refused(Question.READY, f"{told}{why}; see `dataflow status {name}`")
    from opendataflow.store.registry import runs_of

    runs = runs_of(store, job.project, job.jobid, dataid, limit=1)
    if runs and runs[0]["message"] and runs[0]["status"] != "COMPLETE":
        told += f": {runs[0]['message']}"
    told += f"; see `dataflow why {job.jobid} {dataid}`"
    if runs:
        place = output_location(job.kind, dataset, dataid, root=root, runid=runs[0]["runid"]) or ""
        if f"/_runs/{runs[0]['runid']}" in place and _is_there(place):
            told += f"; `dataflow preview {name} --run {runs[0]['runid']}` shows what run {runs[0]['runid']} left"
    return _refused(Question.READY, told)


def _is_there(place: str) -> bool:
    if is_local(place):
        return os.path.exists(place)
    with contextlib.suppress(OSError):
        return is_reachable(place) and bool(find_files(place).files)
    return False


def find_left(store: LoopStore, dataset: Dataset, runid: int, dataid: str | None, *, root: str) -> Shown:
    """What a run wrote, published or not; raise UsageError when it is not a run of this dataset."""
    run, job, name = get_run(store, runid), find_producer(store, dataset), dataset.datasetid
    if job is None or (run["project"], run["jobid"]) != (job.project, job.jobid):
        raise UsageError(f"run {runid} is of {run['jobid']}/{run['dataid']}, which does not make {name}")
    if dataid not in (None, run["dataid"]):
        raise UsageError(f"run {runid} made {run['dataid']}, not {dataid}")
    place = output_location(job.kind, dataset, run["dataid"], root=root, runid=runid) or ""
    if f"/_runs/{runid}" not in place:
        raise UsageError(f"{job.jobid} writes every run to the same place; preview {name} without --run")
    chunk = find_chunk(store, dataset, run["dataid"])
    note = run["message"] if run["status"] != "COMPLETE" else ""
    if chunk is not None and chunk.version == runid and chunk.status is ChunkStatus.READY:
        return find_published(store, dataset, run["dataid"], root=root)
    return Shown(run["dataid"], f"run {run['status']}", runid, place, None, None, None, None, note)


def _refused(question: Question, told: str) -> Refused:
    return Refused(told, exit_code=CODES[question][1])


# Reading --------------------------------------------------------------------------------------------------------------
def open_files(dataset: Dataset, shown: Shown, *, root: str) -> "ChunkFiles":
    """Its files, to be read; Refused when one of them is not below the root, OSError when they are not there."""
    from opendataflow.checks.chunk_reader import ChunkFiles

    found = find_inside(shown.location, root=root, told=f"{dataset.datasetid}/{shown.dataid}")
    declared = json.loads(dataset.definition or "{}")
    return ChunkFiles(
        shown.location, format_=dataset.format, options=declared.get("options") or {}, schema=declared.get("schema"),
        found=found, root=root,
    )  # fmt: skip


def read_rows(
    dataset: Dataset, shown: Shown, *, root: str, rows: int, columns: Sequence[str] | None
) -> Preview:  # fmt: skip
    """The first rows, and what its columns are. Raises a DataflowError for whatever cannot be read here."""
    name = f"{dataset.datasetid}/{shown.dataid}"
    if not is_reachable(shown.location):
        raise UsageError(
            f"{name} is at {shown.location}, where preview does not read; in Python: "
            f'Project(".").read(spark, "{dataset.datasetid}", dataids=["{shown.dataid}"]).show({rows})'
        )
    from opendataflow.checks.chunk_reader import NeedsSpark, Unreadable

    try:
        files = open_files(dataset, shown, root=root)
        if not files.files:
            raise _refused(Question.LOCATION, f"{name}: there are no data files in {shown.location}")
        return _read(files, shown, rows=rows, columns=columns)
    except OSError as error:
        raise _refused(Question.LOCATION, f"{name}: {shown.location}: {error.strerror or error}") from error
    except NeedsSpark as error:
        raise UsageError(f"{name}: {error}; read it with Project.read, see docs/reference/python.md") from error
    except Unreadable as error:
        raise _refused(Question.RIGHT, f"{name}: {error}") from error


def _read(files: "ChunkFiles", shown: Shown, *, rows: int, columns: Sequence[str] | None) -> Preview:
    names, types, counted = _head(files, rows)
    known = {**types, **(files.schema or {}), **(shown.schema or {})}
    schema = {column: known.get(column, "") for column in names}
    for column in columns or ():
        if column not in schema:
            from difflib import get_close_matches

            near = get_close_matches(column, schema, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(schema)}"
            raise UsageError(f"there is no column {column!r}; {hint}")
    wanted = list(columns or schema)
    found = list(_rows(files, wanted, schema, rows))
    size = shown.bytes if shown.bytes is not None else find_files(shown.location).bytes
    total = counted if shown.rows is None else shown.rows
    crooked = f"left out: {files.first_crooked}" if files.crooked else ""
    shown = shown._replace(rows=total, bytes=size, note="; ".join(filter(None, (shown.note, crooked))))
    return Preview(shown, {one: schema[one] for one in wanted}, found)


def _head(files: Any, rows: int) -> tuple[list[str], dict[str, str], int | None]:
    """Columns in order, types that the files tell, and how many rows they say they have."""
    from opendataflow.checks.arrow_types import spark_name

    names: dict[str, str] = {}
    total: int | None = 0
    for opening in files.openings():
        for name in opening.names or ():
            found = (opening.types or {}).get(name)
            names.setdefault(name, "" if found is None else spark_name(found))
        total = None if total is None or opening.rows is None else total + opening.rows
    if files.format == "json":
        names = dict.fromkeys([*(files.schema or {}), *_json_keys(files, rows)], "")
    if files.format == "text":
        names = {"value": "string"}
    return list(names), {name: type_ for name, type_ in names.items() if type_}, total


def _json_keys(files: Any, rows: int) -> Iterator[str]:
    """The keys of the first rows; what is no JSON is told with its line when the rows are read."""
    import io

    from opendataflow.storage.buckets.opened import open_stream

    for _, path in files.files[:1]:
        with contextlib.suppress(ValueError, OSError), open_stream(path, root=files.root) as source:
            for number, line in enumerate(io.TextIOWrapper(io.BufferedReader(source), encoding="utf-8-sig")):
                if number >= rows:
                    break
                row = json.loads(line) if line.strip() else {}
                yield from row if isinstance(row, dict) else ()


def _rows(files: Any, columns: list[str], schema: dict[str, str], rows: int) -> Iterator[dict[str, Any]]:
    left = rows
    if not left:
        return
    for batch in _batches(files, set(columns), rows):
        taken = {name: _values(column.slice(0, left), schema[name]) for name, column in batch.items()}
        size = max((len(values) for values in taken.values()), default=0)
        for number in range(size):
            yield {name: taken[name][number] if name in taken else None for name in columns}
        left -= size
        if left <= 0:
            return


def _batches(files: Any, columns: set[str], rows: int) -> Iterator[dict[str, Any]]:
    if files.format == "parquet":  # no more of a wide row group than is shown
        from opendataflow.checks.columnar import parquet_batches

        for _, path in files.files:
            for _, batch in parquet_batches(path, columns, rows, root=files.root):
                yield batch
        return
    for batch in files.batches(columns):
        yield batch.columns


def _values(column: Any, declared: str) -> list[Any]:
    """As Python has them; text of a CSV as the number or truth that it is declared to be, if it is one."""
    import pyarrow as pa

    from opendataflow.checks.arrow_types import typed

    raw = column.to_pylist()
    if declared and pa.types.is_string(column.type) and family(declared) in _TYPED:
        values, bad = typed(column, declared)
        masked = [False] * len(raw) if bad is None else bad.to_pylist()
        raw = [one if is_bad else value for one, value, is_bad in zip(raw, values.to_pylist(), masked, strict=True)]
    return [_plain(value) for value in raw]


def _plain(value: Any) -> Any:
    """A value that JSON can hold: bytes in hex, and numbers that are none by their name."""
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value

"""A dataset: named data with its connection, location template, format and partition scheme."""

import functools
import json
from typing import Any, NamedTuple

from opendataflow.domain.partitions.path_template import MARK, fill, has_form, has_mark
from opendataflow.domain.partitions.scheme import is_file_name, slot_of_json, why_no_dataid
from opendataflow.errors import UsageError

DESCRIPTOR_FIELDS = ("hostname", "database", "schemaname", "tablename", "username")
_TEXTS = (".csv", ".json", ".jsonl", ".ndjson", ".txt")
_ONE_FILE = (*_TEXTS, *(f"{suffix}.gz" for suffix in _TEXTS))
VARIABLE_SUFFIXES = ("datasetid", "itemtype", *DESCRIPTOR_FIELDS, "password", "location", "format", "dataid")


class Dataset(NamedTuple):
    project: str
    datasetid: str
    hostname: str | None = None
    database: str | None = None
    schemaname: str | None = None
    tablename: str | None = None
    username: str | None = None
    encryptedpass: str | None = None
    location: str | None = None  # template below the environment's root; may hold {dataid}
    format: str | None = None
    partitions: str | None = None  # JSON of the declared scheme
    definition: str | None = None  # JSON: schema, options, checks
    clock: str | None = None  # the clock whose slots are its chunks

    def declares(self, *keys: str) -> bool:
        """True when its definition says something under one of these keys; a column of that name is another thing."""
        text = self.definition or ""
        return any(f'"{key}"' in text and bool(_read_definition(text).get(key)) for key in keys)

    @property
    def has_own_runs(self) -> bool:
        """True when each run writes to a directory of its own and publishing points the chunk at it."""
        return self.location is not None and not has_mark(self.location) and self.partitions != '"none"'

    @property
    def is_one_file(self) -> bool:
        """True when its path names a text file: a pipeline then writes a file there, not a directory of parts."""
        return self.location is not None and self.location.endswith(_ONE_FILE)

    @property
    def is_export(self) -> bool:
        """True when a pipeline's chunks are shown together in one file."""
        return self.is_one_file and self.has_own_runs


@functools.lru_cache(maxsize=1024)
def _read_definition(definition: str) -> dict[str, Any]:
    return dict(json.loads(definition))


def variable_prefix(datasetid: str) -> str:
    """The dataset's id as a shell can name it: `my-data` → `my_data`, `9x` → `_9x`."""
    name = "".join(c if c.isascii() and c.isalnum() else "_" for c in datasetid)
    return f"_{name}" if not name or name[0].isdigit() else name


def path_segment(dataid: str) -> str:
    """The dataid as one file name: characters that paths or Hadoop give a meaning are percent-encoded."""
    safe = "".join(c if c.isalnum() or c in "-_.+@ " else "".join(f"%{b:02X}" for b in c.encode()) for c in dataid)
    return safe if safe.strip(".") else safe.replace(".", "%2E")


def _join(root: str, path: str) -> str:
    return path if path.startswith("/") or "://" in path else f"{root.rstrip('/')}/{path}"


def is_below(location: str, root: str) -> bool:
    """True when the location is the root or inside it; `..` never leads out of it."""
    parts = location.split("/")
    return ".." not in parts and (location == root or location.startswith(root.rstrip("/") + "/"))


def chunk_location(dataset: Dataset, dataid: str, *, root: str) -> str | None:
    """Where a chunk that nobody published through a run is expected, or None for data without a path.

    Raises UsageError for a dataid that is none of the dataset's: it never becomes part of a path.
    """
    if dataset.location is None:
        return None
    if problem := why_no_place(dataset, dataid):
        raise UsageError(problem)
    return _join(root, fill(dataset.location, dataid, dataset.partitions))


def why_no_place(dataset: Dataset, dataid: str) -> str:
    """Why the dataid cannot be put into the dataset's path; empty when it can, or need not."""
    if dataset.location is None or not has_mark(dataset.location):
        return ""
    problem = why_no_dataid(dataset.datasetid, dataset.partitions, dataid)
    if not problem and has_form(dataset.location) and slot_of_json(dataid, dataset.partitions) is None:
        problem = f"the dataid {dataid!r} of {dataset.datasetid} is no day, hour or month, and its path asks for one"
    if not problem and MARK in dataset.location and not is_file_name(dataid):
        problem = f"the dataid {dataid!r} of {dataset.datasetid} cannot be part of a file's name"
    return problem


def template_location(dataset: Dataset, *, root: str) -> str:
    """The dataset's path below the root, with its {dataid} as it is written."""
    return _join(root, dataset.location or "")


def run_location(dataset: Dataset, dataid: str, *, root: str, runid: int) -> str | None:
    """Where a run writes: its own directory, or the fixed place that the template names."""
    if dataset.location is None:
        return None
    if not dataset.has_own_runs:
        return chunk_location(dataset, dataid, root=root)
    return f"{_join(root, dataset.location)}/dataid={path_segment(dataid)}/_runs/{runid}"


def output_location(kind: str, dataset: Dataset, dataid: str, *, root: str, runid: int) -> str | None:
    """Where a run of a script or pipeline writes.

    A pipeline never writes over what is published, also where the dataset's path is fixed: it writes to `_runs/` beside
    or below it.
    """
    if kind != "pipeline" or dataset.location is None:
        return run_location(dataset, dataid, root=root, runid=runid)
    if dataset.is_one_file:
        place = chunk_location(dataset, dataid, root=root) or ""
        folder, _, name = place.rpartition("/")
        return f"{folder}/_runs/{runid}/{name}"
    place = run_location(dataset, dataid, root=root, runid=runid) or ""
    return place if dataset.has_own_runs else f"{place}/_runs/{runid}"


def check_prefixes(datasetids: list[str]) -> None:
    """Raise UsageError when two datasets of one job would share their variables."""
    seen: dict[str, str] = {}
    for datasetid in datasetids:
        other = seen.setdefault(variable_prefix(datasetid), datasetid)
        if other != datasetid:
            raise UsageError(
                f"datasets {other!r} and {datasetid!r} would share the variables "
                f"{variable_prefix(datasetid)}_…; rename one of them"
            )

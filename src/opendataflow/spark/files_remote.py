"""Chunks in object stores, without a jar: copied to this machine before Spark reads them, and put back when written.

So Spark's own readers and writers, the checks and the pandas engine see files, with the same types, the same strictness
and the same words as anywhere else. It costs a copy on this machine's disk, for as long as the chunk is worked on. A
cluster has other disks: there Spark's own connector reads and writes, or Python tasks do where it has none.
"""

import atexit
import errno
import itertools
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from enum import Enum
from typing import Any, NamedTuple

from opendataflow import faults
from opendataflow.errors import JobFailed
from opendataflow.spark.connect import is_connect
from opendataflow.spark.jvm import hadoop_setting, has_class
from opendataflow.spark.scratch import scratch_folder
from opendataflow.spark.spec import ChunkSpec, Place
from opendataflow.storage.buckets import files
from opendataflow.storage.buckets.address import GS, S3, is_in_bucket, parse
from opendataflow.storage.files import RACY_SECONDS

Result = dict[str, Any]
Hear = Callable[..., None]
Run = Callable[[Sequence[ChunkSpec], Hear], Iterator[tuple[ChunkSpec, Result]]]

CONNECTORS = {
    S3: "org.apache.hadoop.fs.s3a.S3AFileSystem",
    GS: "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
}
_LEFT_OUT = ("_SUCCESS",)  # what Spark writes beside the data


def is_remote(place: Place) -> bool:
    """True for a place in an object store."""
    return place.database is None and is_in_bucket(place.location)


def run_staged(spark: Any, specs: Sequence[ChunkSpec], run: Run, *, hear: Hear) -> Iterator[tuple[ChunkSpec, Result]]:
    """As `run`, which may take the chunks in object stores for files of this machine; each run's result.

    What a run wrote is there when its result is yielded; until the runner publishes it, nothing points at it. Paths in
    all that is told are the object store's.
    """
    if not any(is_remote(place) for spec in specs for place in _places(spec)):
        yield from run(specs, hear)
    elif any(way_to(spark, place) is not Way.COPY for spec in specs for place in _places(spec) if is_remote(place)):
        yield from run(specs, hear)  # what reads and writes finds its way itself
    else:
        yield from _run_here(specs, run, hear)


def _run_here(specs: Sequence[ChunkSpec], run: Run, hear: Hear) -> Iterator[tuple[ChunkSpec, Result]]:
    with staging() as stage:
        local: list[ChunkSpec] = []
        for spec, copied in zip(specs, stage.copy_sources(specs), strict=True):
            if isinstance(copied, ChunkSpec):
                local.append(copied)
            else:
                hear(spec, stream=2, text=f"{spec.name}: {copied}\n")
                yield spec, {"error": copied, "steps": []}

        def told(spec: ChunkSpec, **fields: Any) -> None:
            hear(spec, **stage.in_words_of_the_store(fields))

        asked = {spec.runid: spec for spec in specs}
        for done, result in run(local, told) if local else ():
            spec = asked[done.runid]
            trouble = "" if result.get("error") else stage.put_back(spec, done)
            if trouble:
                hear(spec, stream=2, text=f"{spec.name}: {trouble}\n")
                result = {**result, "error": trouble}  # noqa: PLW2901
            yield spec, stage.in_words_of_the_store(result)


def _places(spec: ChunkSpec) -> tuple[Place, ...]:
    return (*spec.sources, spec.destination)


# On this machine ------------------------------------------------------------------------------------------------------
@contextmanager
def staging() -> Iterator["Stage"]:
    """Room for copies below the machine's temporary folder; what a killed process leaves, the next one removes."""
    with scratch_folder() as folder:
        yield Stage(folder)


class Stage:
    """Copies on this machine, and where each of them belongs."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._homes: dict[str, str] = {}  # path here → location in the store
        self._numbers = itertools.count(1)

    def copy_sources(self, specs: Sequence[ChunkSpec]) -> list[ChunkSpec | str]:
        """Each spec with places here instead of in the store, or a sentence why there is none. What several runs read
        is copied once."""
        wanted = {one: "" for spec in specs for place in spec.sources if is_remote(place) for one in place.locations}
        copies = dict(zip(wanted, files.at_once(self.try_copy, wanted), strict=True))
        return [self._staged(spec, copies) for spec in specs]

    def _staged(self, spec: ChunkSpec, copies: dict[str, "str | OSError"]) -> "ChunkSpec | str":
        try:
            sources = tuple(self.place_here(place, copies) if is_remote(place) else place for place in spec.sources)
        except JobFailed as error:
            return str(error)
        destination = spec.destination
        if is_remote(destination):
            location = os.path.join(self._folder, "made", str(spec.runid), os.path.basename(destination.location))
            os.makedirs(os.path.dirname(location), exist_ok=True)
            self._homes[location] = destination.location
            destination = replace(destination, location=location)
        return replace(spec, sources=sources, destination=destination)

    def place_here(self, place: Place, copies: dict[str, "str | OSError"]) -> Place:
        """The place with these copies of its files; raise JobFailed for one that failed."""
        paths = []
        for location in place.locations:
            copied = copies[location]
            if isinstance(copied, OSError):
                raise JobFailed(f"{place.datasetid}: {_cannot_read(location, copied)}") from copied
            paths.append(copied)
        return replace(place, location="\n".join(paths))

    def home(self, path: str) -> str | None:
        return self._homes.get(path)

    def remove(self, path: str) -> None:
        """Remove a copy; its home stays known, for what is still said of it."""
        shutil.rmtree(os.path.dirname(path), ignore_errors=True)

    def try_copy(self, location: str) -> "str | OSError":
        path = os.path.join(self._folder, "read", str(next(self._numbers)), os.path.basename(location.rstrip("/")))
        self._homes[path] = location
        try:
            found = files.find(location)
            if not found or found[0].name:
                os.makedirs(path)
            files.fetch_all(location, found, path)
        except OSError as error:
            return error
        return path

    def put_back(self, spec: ChunkSpec, done: ChunkSpec) -> str:
        """Copy what a run wrote to where it belongs; why not, if it cannot be. Its files here are removed."""
        if not is_remote(spec.destination):
            return ""
        here, there = done.destination.location, spec.destination.location
        if done.destination.single_file:
            here, there = os.path.dirname(here), there.rpartition("/")[0]
        try:
            written = [(path, f"{there}/{os.path.relpath(path, here)}") for path in _files(here)]
            files.put_all(written, after_each=lambda: faults.point(faults.CHILD_UPLOADING))
        except OSError as error:
            where = error.filename or there
            return f"{spec.destination.datasetid}: {where} cannot be written: {error.strerror or error}"
        finally:
            shutil.rmtree(here, ignore_errors=True)
        return ""

    def in_words_of_the_store(self, told: Any) -> Any:
        """The same with the store's locations for the paths here, in all texts of a JSON value."""
        if isinstance(told, dict):
            return {key: self.in_words_of_the_store(value) for key, value in told.items()}
        if isinstance(told, list | tuple):
            return [self.in_words_of_the_store(value) for value in told]
        if not isinstance(told, str) or self._folder not in told:
            return told
        for path, location in list(self._homes.items()):
            for written in (f"file://{path}", f"file:{path}", path):
                told = told.replace(written, location)
        return told


def _files(folder: str) -> Iterator[str]:
    """What a run wrote, with what it took out of the data, without what only Spark needs."""
    for inside, _, names in os.walk(folder):
        for name in names:
            if name not in _LEFT_OUT and not (name.startswith(".") and name.endswith(".crc")):
                yield os.path.join(inside, name)


def _cannot_read(location: str, error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return f"{location} cannot be copied to this machine: {error.strerror}; TMPDIR may name a larger folder"
    return f"{error.filename or location} cannot be read: {error.strerror or error}"


# Whichever Spark it is ------------------------------------------------------------------------------------------------
class Way(Enum):
    """How a Spark gets at files in an object store."""

    COPY = "copied to this machine, where all its tasks are"
    CONNECTOR = "by a connector of its own"
    TASKS = "by its Python tasks"


def way_to(spark: Any, place: Place) -> Way:
    context = getattr(spark, "_sc", None)
    if context is None:  # a Connect server cannot be asked what it has; who writes s3a:// means the connector
        return Way.CONNECTOR if place.location.startswith("s3a://") else Way.TASKS
    if str(context.master).startswith("local"):
        # The connector has settings and credentials of its own: who writes s3a:// has given it some.
        is_meant = place.location.startswith("s3a://") and has_class(spark, CONNECTORS[S3])
        return Way.CONNECTOR if is_meant else Way.COPY
    return Way.CONNECTOR if has_class(spark, CONNECTORS[parse(place.location).store]) else Way.TASKS


def for_connector(place: Place) -> Place:
    """The place as Spark's own connector names it."""
    schemes = {S3: "s3a", GS: "gs"}
    named = [parse(location) for location in place.locations]
    return replace(place, location="\n".join(f"{schemes[one.store]}://{one.path}" for one in named))


# With these a task's output is uploaded as it is written, and seen when the job commits. A rename, which is what Hadoop
# does elsewhere, is a copy in an object store, and not atomic. The classes are in Spark's package spark-hadoop-cloud.
_PROTOCOL = ("spark.sql.sources.commitProtocolClass", "org.apache.spark.internal.io.cloud.PathOutputCommitProtocol")
_PARQUET = (
    "spark.sql.parquet.output.committer.class",
    "org.apache.spark.internal.io.cloud.BindingParquetOutputCommitter",
)
_COMMITTER = "fs.s3a.committer.name"


def committer_settings(settings: Mapping[str, str | None], *, is_there: Callable[[str], bool]) -> dict[str, str]:
    """What a session needs to commit in S3 without renames; nothing where the classes are not there.

    `settings` are those of the project and of Hadoop, of which a committer that is chosen stays.
    """
    if any((settings.get(name) or wanted) != wanted for name, wanted in (_PROTOCOL, _PARQUET)):
        return {}
    if not all(is_there(wanted) for _, wanted in (_PROTOCOL, _PARQUET)):
        return {}
    chosen = settings.get(_COMMITTER)
    return dict((_PROTOCOL, _PARQUET)) | {_COMMITTER: "magic" if chosen in (None, "", "file") else str(chosen)}


@contextmanager
def committed_in_store(spark: Any, place: Place) -> Iterator[None]:
    """A write to S3 by Spark's connector, for as long as it lasts in this session."""
    wanted: dict[str, str] = {}
    if not is_connect(spark) and is_remote(place) and parse(place.location).store == S3:
        declared = {name: spark.conf.get(name, None) for name, _ in (_PROTOCOL, _PARQUET)}
        declared = {name: None if value in _HADOOPS_OWN else value for name, value in declared.items()}
        declared[_COMMITTER] = hadoop_setting(spark, _COMMITTER)
        wanted = committer_settings(declared, is_there=lambda name: has_class(spark, name))
    before = {name: spark.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, earlier in before.items():
            if earlier is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, earlier)


_HADOOPS_OWN = (
    "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol",
    "org.apache.parquet.hadoop.ParquetOutputCommitter",
)

# Copies that outlive a call -------------------------------------------------------------------------------------------
KEPT_BYTES = 20 * 1024**3
KEPT_SECONDS = 24 * 3600.0


class _Copy(NamedTuple):
    path: str
    found: tuple[files.Stored, ...]  # what it is a copy of
    copied_at: float

    @property
    def bytes(self) -> int:
        return sum(one.size for one in self.found)

    def is_of(self, found: tuple[files.Stored, ...]) -> bool:
        # Stores tell times in whole seconds: what was put in the second of the copy may look the same.
        changed = max((one.changed_ns for one in found), default=0) / 1e9
        return self.found == found and changed < self.copied_at - RACY_SECONDS


class KeptCopies:
    """Copies that DataFrames refer to: used again while the files are the same, the oldest removed beyond a bound."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._copies: dict[str, _Copy] = {}  # by path, the one that was not used for longest first

    def copy_place(self, place: Place) -> Place:
        copies = dict(zip(place.locations, files.at_once(self._copy, place.locations), strict=True))
        here = self._stage.place_here(place, copies)
        for path in here.locations:
            self._copies[path] = self._copies.pop(path)
        self._evict(in_use=len(here.locations))
        return here

    def _copy(self, location: str) -> str | OSError:
        try:
            found = tuple(files.find(location))
        except OSError as error:
            return error
        same = (path for path, one in self._copies.items() if self._stage.home(path) == location and one.is_of(found))
        if (path := next(same, None)) is not None:
            return path
        now = time.time()
        copied = self._stage.try_copy(location)
        if not isinstance(copied, OSError):
            self._copies[copied] = _Copy(copied, found, now)
        return copied

    def _evict(self, *, in_use: int) -> None:
        """Remove what is too old, and of the rest what is too much, but not what was asked for last."""
        total, now = sum(one.bytes for one in self._copies.values()), time.time()
        for path, one in list(self._copies.items())[: len(self._copies) - in_use]:
            if total > KEPT_BYTES or now - one.copied_at > KEPT_SECONDS:
                total -= one.bytes
                del self._copies[path]
                self._stage.remove(path)


_lock = threading.Lock()
_kept: list[tuple[Stage, KeptCopies]] = []


def kept_copy(place: Place) -> Place:
    """The place with copies of its files, which stay while this process lives and there is room; raise JobFailed."""
    with _lock:
        if not _kept:
            rooms = ExitStack()
            stage = rooms.enter_context(staging())
            _kept.append((stage, KeptCopies(stage)))
            atexit.register(rooms.close)
        return _kept[0][1].copy_place(place)


def home_of(path: str) -> str:
    """Where a file of `kept_copy` belongs; any other path as it is."""
    return str(_kept[0][0].in_words_of_the_store(path)) if _kept else path

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
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from enum import Enum
from typing import Any

from opendataflow import faults
from opendataflow.errors import JobFailed
from opendataflow.spark.jvm import has_class
from opendataflow.spark.scratch import scratch_folder
from opendataflow.spark.spec import ChunkSpec, Place
from opendataflow.storage.buckets import files
from opendataflow.storage.buckets.address import GS, S3, is_in_bucket, parse

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
        copies = dict(zip(wanted, files.at_once(self._try_copy, wanted), strict=True))
        return [self._staged(spec, copies) for spec in specs]

    def copy_place(self, place: Place) -> Place:
        """The place with copies of its files; raise JobFailed."""
        copies = files.at_once(self._try_copy, place.locations)
        return self._place_here(place, dict(zip(place.locations, copies, strict=True)))

    def _staged(self, spec: ChunkSpec, copies: dict[str, "str | OSError"]) -> "ChunkSpec | str":
        try:
            sources = tuple(self._place_here(place, copies) if is_remote(place) else place for place in spec.sources)
        except JobFailed as error:
            return str(error)
        destination = spec.destination
        if is_remote(destination):
            location = os.path.join(self._folder, "made", str(spec.runid), os.path.basename(destination.location))
            os.makedirs(os.path.dirname(location), exist_ok=True)
            self._homes[location] = destination.location
            destination = replace(destination, location=location)
        return replace(spec, sources=sources, destination=destination)

    def _place_here(self, place: Place, copies: dict[str, "str | OSError"]) -> Place:
        paths = []
        for location in place.locations:
            copied = copies[location]
            if isinstance(copied, OSError):
                raise JobFailed(f"{place.datasetid}: {_cannot_read(location, copied)}") from copied
            paths.append(copied)
        return replace(place, location="\n".join(paths))

    def _try_copy(self, location: str) -> "str | OSError":
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
        return Way.COPY
    return Way.CONNECTOR if has_class(spark, CONNECTORS[parse(place.location).store]) else Way.TASKS


def for_connector(place: Place) -> Place:
    """The place as Spark's own connector names it."""
    schemes = {S3: "s3a", GS: "gs"}
    named = [parse(location) for location in place.locations]
    return replace(place, location="\n".join(f"{schemes[one.store]}://{one.path}" for one in named))


_lock = threading.Lock()
_kept: list["Stage"] = []


def kept_copy(place: Place) -> Place:
    """The place with copies of its files that stay for as long as this process lives; raise JobFailed."""
    with _lock:
        if not _kept:
            rooms = ExitStack()
            _kept.append(rooms.enter_context(staging()))
            atexit.register(rooms.close)
    return _kept[0].copy_place(place)


def home_of(path: str) -> str:
    """Where a file of `kept_copy` belongs; any other path as it is."""
    return str(_kept[0].in_words_of_the_store(path)) if _kept else path

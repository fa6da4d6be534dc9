"""Progress of long chunks: which Spark job belongs to which run, and how far its stages are."""

import contextvars
import threading
import time
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

from opendataflow.spark.spec import ChunkSpec

EVERY_SECONDS = 10.0  # shorter chunks are over before anybody asks


class Progress:
    """While it is open, Spark jobs of this thread are the run's, and their progress is told now and then."""

    def __init__(self, spark: SparkSession, spec: ChunkSpec, hear: Callable[..., None]) -> None:
        self._context = getattr(spark, "_sc", None)  # Connect has none, and tells no progress here
        self._spec, self._hear = spec, hear
        self._group = str(spec.runid)
        self._told = ""
        self._begun = time.monotonic()

    def __enter__(self) -> "Progress":
        if self._context is not None:
            self._context.setJobGroup(self._group, self._spec.name, interruptOnCancel=True)
            _watch(self)
        return self

    def __exit__(self, *_error: object) -> None:
        _forget(self)

    def tell(self) -> None:
        """Say how far it is, if that is new."""
        if time.monotonic() - self._begun < EVERY_SECONDS:
            return
        said = _describe(self._context, self._group)
        if said and said != self._told:
            self._told = said
            self._hear(self._spec, progress=f"{time.monotonic() - self._begun:.0f} s: {said}")


def _describe(context: Any, group: str) -> str:
    tracker = context.statusTracker()
    live = set(tracker.getActiveJobsIds()) & set(tracker.getJobIdsForGroup(group))
    stages = [
        stage for job in sorted(live) if (info := tracker.getJobInfo(job)) is not None
        for number in info.stageIds if (stage := tracker.getStageInfo(number)) is not None
    ]  # fmt: skip
    if not stages:
        return ""
    done = sum(stage.numCompletedTasks for stage in stages)
    return f"{done} of {sum(stage.numTasks for stage in stages)} tasks of {len(stages)} Spark stages are done"


_lock = threading.Lock()
_open: set[Progress] = set()
_watcher: threading.Thread | None = None


def _watch(progress: Progress) -> None:
    global _watcher  # noqa: PLW0603  one thread looks after all runs of the process
    with _lock:
        _open.add(progress)
        if _watcher is None:
            _watcher = threading.Thread(target=_look_now_and_then, name="progress", daemon=True)
            contextvars.Context().run(_watcher.start)  # it is nobody's chunk


def _forget(progress: Progress) -> None:
    with _lock:
        _open.discard(progress)


def _look_now_and_then() -> None:
    while True:
        time.sleep(EVERY_SECONDS)
        with _lock:
            running = list(_open)
        for progress in running:
            try:
                progress.tell()
            except Exception:  # noqa: BLE001, S110  progress is for the eye: a JVM that is ending tells none
                pass

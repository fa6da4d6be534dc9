"""Progress of long chunks: which Spark job belongs to which run, and how far its stages are."""

import contextlib
import contextvars
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import SparkSession

from opendataflow.spark.connect import is_connect
from opendataflow.spark.spec import ChunkSpec

EVERY_SECONDS = 10.0  # shorter chunks are over before anybody asks


class Progress:
    """While it is open, Spark jobs of this thread are the run's, and their progress is told now and then."""

    def __init__(
        self, spark: SparkSession, spec: ChunkSpec, hear: Callable[..., None], *, group: str | None = None
    ) -> None:
        """`group`: the jobs of this process are in this group as it is."""
        self._spec, self._hear = spec, hear
        self._jobs: _Jobs | _Operations = _Operations(spark) if is_connect(spark) else _Jobs(spark, spec, group)
        self._told = ""
        self._begun = time.monotonic()

    def __enter__(self) -> "Progress":
        self._jobs.begin()
        _watch(self)
        return self

    def __exit__(self, *_error: object) -> None:
        _forget(self)
        self._jobs.end()

    def tell(self) -> None:
        """Say how far it is, if that is new."""
        if time.monotonic() - self._begun < EVERY_SECONDS:
            return
        said = self._jobs.describe()
        if said and said != self._told:
            self._told = said
            self._hear(self._spec, progress=f"{time.monotonic() - self._begun:.0f} s: {said}")


class _Jobs:
    """The jobs of a run, as the SparkContext of this process knows them: by their group."""

    def __init__(self, spark: Any, spec: ChunkSpec, group: str | None) -> None:
        self._context, self._group, self._name = spark._sc, group or str(spec.runid), spec.name
        self._is_set = group is not None

    def begin(self) -> None:
        if not self._is_set:
            self._context.setJobGroup(self._group, self._name, interruptOnCancel=True)

    def end(self) -> None:
        pass  # the next run of this thread has another group

    def describe(self) -> str:
        tracker = self._context.statusTracker()
        live = set(tracker.getActiveJobsIds()) & set(tracker.getJobIdsForGroup(self._group))
        stages = [
            stage for job in sorted(live) if (info := tracker.getJobInfo(job)) is not None
            for number in info.stageIds if (stage := tracker.getStageInfo(number)) is not None
        ]  # fmt: skip
        return _sentence([(stage.numCompletedTasks, stage.numTasks) for stage in stages])


class _Operations:
    """What a Spark Connect server says while this thread waits for it."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._thread = threading.get_ident()
        self._stages: list[tuple[int, int]] = []

    def begin(self) -> None:
        self._spark.registerProgressHandler(self._take)

    def end(self) -> None:
        with contextlib.suppress(Exception):  # the chunk's code may have removed all of them
            self._spark.removeProgressHandler(self._take)

    def _take(self, stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:  # noqa: ARG002
        if threading.get_ident() == self._thread:  # a session may serve several runs
            self._stages = [] if done else [(stage.num_completed_tasks, stage.num_tasks) for stage in stages]

    def describe(self) -> str:
        return _sentence(self._stages)


def _sentence(stages: Sequence[tuple[int, int]]) -> str:
    if not stages:
        return ""
    done = sum(completed for completed, _ in stages)
    return f"{done} of {sum(tasks for _, tasks in stages)} tasks of {len(stages)} Spark stages are done"


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

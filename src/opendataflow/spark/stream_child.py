"""The child of a stream: it stays attached to Spark, and produces batch after batch, one at a time.

It is a fork of the zygote (execution/zygote.py), as the child of a chunk is, and each batch is a run as there
(chunk.py): with a session, modules and variables of its own. What stays are the static sources.

For each task it reads a line `{"task": path}` from its standard input. On descriptor 3 it sends what the child of a
chunk sends, and at the end of each run `{"done": path, "code": 0}`, when the run's result file is written. It ends when
its input does; after the batch in its hands when it is told `{"leave": true}`, or when somebody waits for the driver;
and when the driver ends. A task file that it has not begun with is still there.
"""

import json
import os
import signal
import threading
import traceback
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from opendataflow.project.shared_names import RefusedCall
from opendataflow.spark import chunk
from opendataflow.spark.channel import Channel, private_channels
from opendataflow.spark.chunk import ANSWERS_FD, Run, find_other_version, forget_seeds, settings_of_keeper
from opendataflow.spark.process_output import flush, open_streams
from opendataflow.spark.spec import ChunkSpec, chunk_spec

if TYPE_CHECKING:
    from opendataflow.spark.attach import Attachment
    from opendataflow.spark.cluster import Executors
    from opendataflow.spark.stream_batch import Statics

preload, prepare = chunk.preload, chunk.prepare
_INTERNAL = 70


def main(_argv: list[str]) -> int:
    """Produce what the lines of the standard input name."""
    tasks, channel = private_channels(ANSWERS_FD)
    os.register_at_fork(after_in_child=channel.drop)
    open_streams()
    forget_seeds()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # an interrupt is not for the code of a batch: it ends all of them
    child = StreamChild(channel)
    try:
        for line in tasks:
            message = json.loads(line)
            if "task" in message:
                child.serve(message["task"])
            else:
                child.leave()
    except BaseException:  # noqa: BLE001  of our own code; the user's is dealt with where it is called
        traceback.print_exc()
        return _INTERNAL
    finally:
        flush()
    return 0


class StreamChild:
    """Its use of Spark, and the batch in its hands."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._environ, self._pid = dict(os.environ), os.getpid()
        self._use: SparkUse | None = None
        self._lock = threading.RLock()
        self._run: BatchRun | None = None
        self._is_leaving = self._has_failed = False

    def serve(self, task: str) -> None:
        with self._lock:
            if (read := _take(task)) is None:
                return
            spec, result = read
            self._run = run = BatchRun(spec, result, self._channel, self)
        os.environ.clear()
        os.environ.update({**self._environ, **spec.environment})
        os.chdir(spec.home)
        code = run.run()
        flush()
        with self._lock:
            self._run = None
            self._channel.send(done=task, code=code)
            self._leave_if_idle()

    def leave(self) -> None:
        """End after the batch in hands; from any thread."""
        with self._lock:
            self._is_leaving = True
            self._leave_if_idle()

    def _leave_if_idle(self) -> None:
        if (self._is_leaving or self._has_failed) and self._run is None and os.getpid() == self._pid:
            os._exit(0)  # the keeper notices; nothing of ours is left to be done

    # Spark --------------------------------------------------------------------------------------------------------
    def use_spark(self, run: "BatchRun", spec: ChunkSpec) -> "SparkUse":
        """Attached since the first batch that needed it."""
        if self._use is None:
            self._has_failed = True  # unless it works: another process tries again
            self._use = self._attach(run, spec)
            self._has_failed = False
        return self._use

    def _attach(self, run: "BatchRun", spec: ChunkSpec) -> "SparkUse":
        from opendataflow.spark.attach import attach
        from opendataflow.spark.cluster import Executors
        from opendataflow.spark.stream_batch import Statics

        if why := find_other_version():
            run.give_back(why)
        settings = settings_of_keeper(spec.spark)
        store = os.environ.get("DATAFLOW_STORE_ID", "")
        attached = attach(
            settings, run=spec.slug, group=f"stream-{spec.slug}", identity=f"{store}/{spec.slug}",
            folder=settings.folder, on_wait=run.say_waiting, on_jvm_end=self._driver_ended, on_leave=self.leave,
        )  # fmt: skip
        return SparkUse(attached, Executors(attached.master, attached.scratch), Statics())

    def _driver_ended(self, end: Mapping[str, Any]) -> None:
        """Called from the thread that listens to the keeper."""
        with self._lock:
            run = self._run
            if run is None:
                os._exit(0)
        run.driver_ended(dict(end))


class SparkUse:
    """What stays from batch to batch."""

    def __init__(self, attached: "Attachment", executors: "Executors", statics: "Statics") -> None:
        self.attached, self.executors, self.statics = attached, executors, statics


class BatchRun(Run):
    """A run on the Spark that its process has already."""

    def __init__(self, spec: ChunkSpec, result: str, channel: Channel, child: StreamChild) -> None:
        super().__init__([spec], [result], channel)
        self._child = child

    def _produce(self) -> dict[int, dict[str, Any]]:
        from opendataflow.spark.pipeline import read_codes

        codes = read_codes(self._spec)
        use = self._child.use_spark(self, self._spec)
        self._attached = use.attached
        try:
            return self._produce_on(use.attached, codes, use.executors, use.statics)
        except RefusedCall:
            # Spark's workers have the modules that the first batch found, and only a process that begins can add some.
            self._child.leave()
            self.give_back("the project's modules have changed since the stream's process began")


def _take(path: str) -> tuple[ChunkSpec, str] | None:
    """The run of a task, which is then nobody else's; None for one that another process has begun, or that is over."""
    try:
        with open(path, encoding="utf-8") as file:
            task = json.load(file)
        os.unlink(path)
    except FileNotFoundError:
        return None
    (spec,), (result,) = [chunk_spec(fields) for fields in task["specs"]], task["results"]
    return spec, result

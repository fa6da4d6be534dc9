"""For chunks that share a job: a child that stays, and produces one task after the other in its own Spark.

`python -m opendataflow.spark.child` is supervised by the runner.
For each task it reads a line `{"task": path}` from its standard input; the file holds the specs of one or more runs,
and where the result of each goes. On file descriptor 3 it sends JSON lines: that Spark has begun with a run, what it
printed, how far its transformations are, and at its end `{"run": 7, "code": 0}` once the chunk is written and its
result file says what was, or `"code": 1` after a sentence, which is also the `error` of the result file. It ends when
its input does. When Spark's JVM is killed under it, it ends by the same signal: a death, not a failure of the user's
code. So it does when a Spark Connect server is gone.
"""

import contextlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NoReturn

from opendataflow.errors import DataflowError
from opendataflow.spark.own_spark import Channel, OwnSpark, private_channels, write_atomically
from opendataflow.spark.spec import ChunkSpec, chunk_spec

if TYPE_CHECKING:
    from opendataflow.spark.jvm import JvmEnd

ANSWERS_FD = 3
_INTERNAL = 70


def main() -> int:
    tasks, channel = private_channels(ANSWERS_FD)
    with contextlib.suppress(AttributeError, ValueError):
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # threads outlive their chunk
    pool = ThreadPoolExecutor(1, thread_name_prefix="chunk")  # chunks in threads of one interpreter see each other
    with OwnSpark() as warm:
        try:
            for line in tasks:
                pool.submit(_serve, warm, channel, json.loads(line)["task"])
            pool.shutdown()
        except KeyboardInterrupt:
            return 128 + signal.SIGINT
    return 0


def _serve(warm: OwnSpark, channel: Channel, path: str) -> None:
    """One task. Whatever happens, the runner hears of each of its runs, or that this process is no more."""
    try:
        _serve_task(warm, channel, path)
    except BaseException:  # noqa: BLE001  in a thread nobody would hear of it, and the runner would wait for ever
        traceback.print_exc(file=sys.__stderr__)
        os._exit(_INTERNAL)


def _serve_task(warm: OwnSpark, channel: Channel, path: str) -> None:
    try:
        with open(path, encoding="utf-8") as file:
            task = json.load(file)
        os.unlink(path)  # read once: whatever becomes of its runs, nothing of it stays
    except FileNotFoundError:
        return  # meant for a child that died before it read it
    specs = [chunk_spec(fields) for fields in task["specs"]]
    results = {spec.runid: result for spec, result in zip(specs, task["results"], strict=True)}
    served_by = os.getpid()

    def done(spec: ChunkSpec, result: dict[str, Any]) -> None:
        if os.getpid() != served_by:
            os._exit(0)  # a copy that the user's code forked came back here: its end is not the run's
        write_atomically(results[spec.runid], result)
        del results[spec.runid]
        channel.send(run=spec.runid, code=1 if result.get("error") else 0)

    def hear(spec: ChunkSpec, **fields: Any) -> None:
        channel.send(run=spec.runid, **fields)

    def end_if_jvm_ended(error: BaseException, spec: ChunkSpec) -> None:
        if os.getpid() != served_by:
            _end_copy(error)
        _end_if_jvm_ended(error, spec, results)

    try:
        _produce(warm, specs, done, hear, end_if_jvm_ended)
    except BaseException as error:  # noqa: BLE001  the user's code must not decide how this process ends
        for spec in specs:
            if spec.runid in results:
                end_if_jvm_ended(error, spec)
                _fail(spec, error, done, hear)


def _produce(
    warm: OwnSpark, specs: list[ChunkSpec], done: Callable[..., None], hear: Callable[..., None],
    end_if_jvm_ended: Callable[[BaseException, ChunkSpec], None],
) -> None:  # fmt: skip
    from opendataflow.spark.connect import sessions_released
    from opendataflow.spark.files_remote import run_staged
    from opendataflow.spark.pipeline import Task, read_codes

    codes = read_codes(specs[0])  # first: what is missing is said without waiting for Spark
    spark = warm.session(specs[0].spark, name=specs[0].slug)
    warm.executors.prepare(spark, specs)
    for spec in specs:
        hear(spec, begun=True)
    with sessions_released():

        def run(specs: Sequence[ChunkSpec], hear: Callable[..., None]) -> Iterator[tuple[ChunkSpec, dict[str, Any]]]:
            return Task(spark, codes, hear=hear, end_if_jvm_ended=end_if_jvm_ended).run(specs)

        for spec, result in run_staged(spark, specs, run, hear=hear):
            trouble = None if result.get("error") else warm.executors.find_trouble(spark, spec)
            done(spec, result if trouble is None else {**result, "error": trouble})


def _fail(spec: ChunkSpec, error: BaseException, done: Callable[..., None], hear: Callable[..., None]) -> None:
    from opendataflow.spark.explain import explain, user_traceback

    sentence = explain(error, home=spec.home)
    hear(spec, stream=2, text=f"{user_traceback(error, home=spec.home)}{spec.name}: {sentence}\n")
    try:
        done(spec, {"error": sentence, "steps": []})
    except OSError:  # a full disk, perhaps: then the log is what tells it
        hear(spec, code=1)


def _end_copy(error: BaseException) -> NoReturn:
    """End a process that the user's code forked as Python would have: it serves no run."""
    if isinstance(error, SystemExit) and not isinstance(error.code, str):
        os._exit(error.code or 0)
    traceback.print_exception(error, file=sys.__stderr__)
    os._exit(1)


def _end_if_jvm_ended(error: BaseException, spec: ChunkSpec, results: dict[int, str]) -> None:
    """Without its Spark this process is of no use: end as the JVM did, whatever Python made of it."""
    _end_if_server_lost(error, spec)
    end = _find_end_of_jvm()
    if end is None and not _is_stopped():
        return
    told = str(end or "the code stopped Spark, which serves other chunks too; leave out `sparkContext.stop()`")
    _say(f"{spec.name}: {told}")
    for path in results.values():
        with contextlib.suppress(OSError):
            write_atomically(path, {"error": told, "steps": []})
    if end is None:
        os._exit(1)
    # A JVM that ended by itself (out of memory, for one) is as dead as one that was killed. Nobody but the main thread
    # could have made the signal mean something else; there, SIGINT does.
    number = end.signal or signal.SIGKILL
    os.kill(os.getpid(), signal.SIGTERM if number == signal.SIGINT else number)


def _end_if_server_lost(error: BaseException, spec: ChunkSpec) -> None:
    """A Spark Connect server that went down was killed, for all we know: its chunks are not to blame, or not alone."""
    from opendataflow.spark import connect

    master = str(spec.spark.get("master") or "")
    if connect.is_address(master) and not isinstance(error, DataflowError) and connect.is_lost(error):
        _say(f"{spec.name}: {connect.end_told(master)}")
        os.kill(os.getpid(), signal.SIGKILL)


def _find_end_of_jvm() -> "JvmEnd | None":
    from opendataflow.spark.jvm import find_end, find_process, is_going_down

    process = find_process()
    # A JVM that was asked to end stops Spark first, and only then ends.
    return find_end(process, wait_seconds=10.0 if process is not None and is_going_down() else 0.0)


def _is_stopped() -> bool:
    """True when there is a JVM, but no Spark in it any more."""
    from pyspark import SparkContext

    from opendataflow.spark.jvm import find_process

    return find_process() is not None and SparkContext._active_spark_context is None


def _say(text: str) -> None:
    sys.__stderr__.write(f"{text}\n")  # type: ignore[union-attr]
    sys.__stderr__.flush()  # type: ignore[union-attr]


if __name__ == "__main__":
    exit_code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # No finalizers: results are durable, Spark has stopped, and nothing may turn this code into another.
    os._exit(exit_code)

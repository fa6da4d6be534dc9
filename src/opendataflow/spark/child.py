"""The supervised child: `python -m opendataflow.spark.child` produces chunks, one after the other, in one warm Spark.

For each run it reads a line `{"spec": path, "result": path}` from its standard input, and answers on file descriptor 3:
0 when the chunk is written and the result file says what was; 1 after a sentence on stderr, which is also the `error`
of the result file. It ends when its input does. When Spark's JVM is killed under it, it ends by the same signal: a
death, not a failure of the user's code.
"""

import contextlib
import json
import os
import signal
import sys
from typing import IO, TYPE_CHECKING, Any

from opendataflow.spark.spec import ChunkSpec, chunk_spec

if TYPE_CHECKING:  # pyspark takes its time; what is wrong with the code is said without it
    from pyspark.sql import SparkSession

    from opendataflow.spark.jvm import JvmEnd

ANSWERS_FD = 3


def main() -> int:
    tasks, answers = _private_channels()
    with WarmSpark() as warm:
        try:
            for line in tasks:
                task = json.loads(line)
                code = _produce(warm, task["spec"], task["result"])
                sys.stdout.flush()
                sys.stderr.flush()
                os.write(answers, f"{code}\n".encode())
        except KeyboardInterrupt:
            return 128 + signal.SIGINT
    return 0


def _private_channels() -> tuple[IO[str], int]:
    """Our input and our answers, out of reach of the user's code and of every process it starts."""
    tasks, answers = os.dup(0), os.dup(ANSWERS_FD)
    os.close(ANSWERS_FD)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return open(tasks, encoding="utf-8"), answers


class WarmSpark:
    """Spark, started when the first chunk needs it; its JVM and what it put aside go at the end."""

    def __init__(self) -> None:
        self._open = contextlib.ExitStack()
        self._session: SparkSession | None = None

    def __enter__(self) -> "WarmSpark":
        return self

    def __exit__(self, *_error: object) -> None:
        self._open.close()

    def session(self, spec: ChunkSpec) -> "SparkSession":
        """The session; the settings are the same for every chunk of a pipeline."""
        if self._session is None:
            self._session = self._start(spec)
        return self._session

    def _start(self, spec: ChunkSpec) -> "SparkSession":
        from opendataflow.spark.jvm import JvmOutput, end_process, find_process, require_java
        from opendataflow.spark.scratch import scratch_folder
        from opendataflow.spark.session import start_session

        if not str(spec.spark.get("master") or "").startswith("sc://"):
            require_java()
        output = JvmOutput()
        with contextlib.ExitStack() as started:
            scratch = started.enter_context(scratch_folder())
            started.callback(output.finish)
            started.callback(lambda: end_process(find_process()))
            with output.held():
                spark = start_session(spec.spark, name=spec.slug, scratch=scratch)
            started.callback(spark.stop)
            self._open = started.pop_all()
        return spark


def _produce(warm: WarmSpark, spec_path: str, result_path: str) -> int:
    """One chunk: 0 and a result file, or 1 and a sentence."""
    with open(spec_path, encoding="utf-8") as file:
        spec = chunk_spec(json.load(file))
    os.unlink(spec_path)  # read once: whatever becomes of this run, nothing of it stays
    os.environ.update(spec.environment)
    try:
        from opendataflow.spark.pipeline import read_codes, run_chunk

        codes = read_codes(spec)  # first: what is missing is said without waiting for Spark
        result = run_chunk(warm.session(spec), spec, codes)
        write_atomically(result_path, result)
    except (Exception, SystemExit) as error:  # noqa: BLE001  the user's code must not decide how this process ends
        end = _find_end_of_jvm(error)
        if end is not None:
            _end_like(end, spec)
        write_atomically(result_path, {"error": _report(error, spec)})
        return 1
    return 0


def _find_end_of_jvm(error: BaseException) -> "JvmEnd | None":
    from opendataflow.spark.jvm import find_end, find_process, looks_cut_off

    return find_end(find_process(), wait_seconds=5.0 if looks_cut_off(error) else 0.0)


def _end_like(end: "JvmEnd", spec: ChunkSpec) -> None:
    """Without its JVM this process is of no use: end as the JVM did, whatever Python made of it."""
    _say(f"{spec.name}: {end}")
    if end.signal is None:
        os._exit(1)
    if end.signal != signal.SIGKILL:
        signal.signal(end.signal, signal.SIG_DFL)
    os.kill(os.getpid(), end.signal)


def _report(error: BaseException, spec: ChunkSpec) -> str:
    from opendataflow.spark.explain import explain, user_traceback

    sys.stderr.write(user_traceback(error, home=spec.home))
    sentence = explain(error, home=spec.home)
    _say(f"{spec.name}: {sentence}")
    return sentence


def _say(text: str) -> None:
    sys.stdout.flush()
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def write_atomically(path: str, value: dict[str, Any]) -> None:
    """The whole file or none of it, also after a power cut."""
    handle = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(handle, "w", encoding="utf-8") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)


if __name__ == "__main__":
    exit_code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # No finalizers: results are durable, Spark has stopped, and nothing may turn this code into another.
    os._exit(exit_code)

"""The supervised child: `python -m opendataflow.spark.child spec.json result.json` produces one chunk.

Exit 0 and a result file when the chunk is written; exit 1, a sentence on stderr and no result when not.
When Spark's JVM is killed under it, it ends by the same signal: a death, not a failure of the user's code.
"""

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from opendataflow.spark.spec import ChunkSpec, chunk_spec

if TYPE_CHECKING:  # pyspark takes its time; what is wrong with the spec or the code is said without it
    from pyspark.sql import SparkSession


def main(arguments: list[str]) -> int:
    spec_path, result_path = arguments
    with open(spec_path, encoding="utf-8") as file:
        spec = chunk_spec(json.load(file))
    os.unlink(spec_path)  # read once: whatever becomes of this run, nothing of it stays
    try:
        return _produce(spec, result_path)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except Exception as error:  # noqa: BLE001  whatever kept Spark from starting
        return _report(error, spec)


def _produce(spec: ChunkSpec, result_path: str) -> int:
    from opendataflow.spark.pipeline import read_codes, run_chunk

    codes = read_codes(spec)
    with _session(spec) as spark:
        try:
            result = run_chunk(spark, spec, codes)
            write_atomically(result_path, result)
            spark.stop()
        except (Exception, SystemExit) as error:  # noqa: BLE001  the user's code must not decide how this process ends
            # In here, while the JVM lives: Spark's exceptions are read from it.
            _die_as_jvm_did(error, spec)
            return _report(error, spec)
    return 0


@contextlib.contextmanager
def _session(spec: ChunkSpec) -> Iterator["SparkSession"]:
    """A Spark session of our own; its JVM and what it put aside are gone afterwards."""
    from opendataflow.spark.jvm import JvmOutput, end_process, find_process, require_java
    from opendataflow.spark.scratch import scratch_folder
    from opendataflow.spark.session import start_session

    if not str(spec.spark.get("master") or "").startswith("sc://"):
        require_java()
    output = JvmOutput()
    with scratch_folder() as scratch:
        try:
            with output.held():
                spark = start_session(spec.spark, name=spec.name, scratch=scratch)
            yield spark
        finally:
            end_process(find_process())
            output.finish()


def _die_as_jvm_did(error: BaseException, spec: ChunkSpec) -> None:
    """When a signal ended the JVM, end by it too: whatever Python made of it, that is what happened."""
    from opendataflow.spark.jvm import find_end, find_process, looks_cut_off

    end = find_end(find_process(), wait_seconds=5.0 if looks_cut_off(error) else 0.0)
    if end is None:
        return
    _say(f"{spec.name}: {end}")
    if end.signal is not None:
        if end.signal != signal.SIGKILL:
            signal.signal(end.signal, signal.SIG_DFL)
        os.kill(os.getpid(), end.signal)


def _report(error: BaseException, spec: ChunkSpec) -> int:
    from opendataflow.spark.explain import explain, user_traceback

    sys.stderr.write(user_traceback(error, home=spec.home))
    _say(f"{spec.name}: {explain(error, home=spec.home)}")
    return 1


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
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # No finalizers: the result is durable, Spark has stopped, and nothing may turn this code into another.
    os._exit(code)

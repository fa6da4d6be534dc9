"""The child of one run of a pipeline: it reads the chunk's sources, runs its transformations, writes, audits, ends.

It is a fork of the zygote (execution/zygote.py), with the run's own environment, working directory and output. Its
Spark is a session of its own on the keeper's driver (attach.py). It sends JSON lines on descriptor 3: that its own time
begins, how far its transformations and its Spark jobs are. At its end the result file of its task says what it wrote,
or why there is no chunk, in a sentence; its exit code is 0 or 1.

A task may be of several runs, which share a Spark job (together.py). Its child has the variables of none of them, each
message says which run it is of, each run has a result file, and the exit code is 0. A task with `written` is of one run
that such a child has written already: it is produced alone, into a folder beside, and the result is what was written,
or has `differs`, a sentence.

When Spark's driver ends under it, the run is not to blame unless it was alone there: it is given back then.
"""

import contextlib
import importlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NoReturn

from opendataflow.errors import ConfigurationError, DataflowError
from opendataflow.spark.channel import Channel, write_atomically
from opendataflow.spark.process_output import flush, open_streams
from opendataflow.spark.spec import ChunkSpec, chunk_spec

if TYPE_CHECKING:
    from opendataflow.spark.attach import Attachment
    from opendataflow.spark.cluster import Executors
    from opendataflow.spark.connect_watch import Watcher
    from opendataflow.spark.keeper_settings import KeeperSettings
    from opendataflow.spark.stream_batch import Statics
    from opendataflow.spark.transformations import Code

ANSWERS_FD = 3
_INTERNAL = 70
_DRIVER_END_SECONDS = 15.0  # in which a driver that no longer answers is known to have ended
_watchers: list["Watcher"] = []  # one, of the zygote
_environ = dict(os.environ)  # of the zygote; that of a child is its run's
# pyspark.testing.utils: PySpark itself imports it, and unittest with it, when Python first hands an object to Java.
_PRELOADED = (
    "numpy", "pandas", "pyarrow", "pyarrow.parquet", "pyspark.sql.functions", "pyspark.sql.types", "pyspark.pandas",
    "pyspark.sql.classic.dataframe", "pyspark.testing.utils",
    "opendataflow.spark.attach", "opendataflow.spark.pipeline", "opendataflow.spark.files_remote",
    "opendataflow.spark.cluster", "opendataflow.spark.connect_watch",
)  # fmt: skip
_UPGRADED = ("opendataflow", "numpy", "pandas", "pyarrow", "pyspark", "pyspark.version")  # new files with each version


# What the zygote asks for ---------------------------------------------------------------------------------------------
def preload() -> list[str]:
    """Import what chunks need; nothing is opened, and no project's code is touched."""
    for name in _PRELOADED:
        importlib.import_module(name)
    if why := find_other_version():
        raise ImportError(why)
    from opendataflow.spark.connect_watch import Watcher
    from opendataflow.spark.keeper_settings import runtime_path

    # Children are forks of guards, which may be older than the watcher: they know its folder from here.
    _watchers.append(Watcher(os.path.join(runtime_path(_environ), f"connect-{os.getpid()}")))
    return [file for name in _UPGRADED if (file := sys.modules[name].__file__)]


def prepare(settings: Mapping[str, Any]) -> None:
    """See to it that the driver for these settings is there, or starts. It must not end with a run's guard."""
    from opendataflow.spark.connect import is_address
    from opendataflow.spark.keeper_client import ensure_keeper

    with contextlib.suppress(DataflowError, OSError):  # the child meets the same obstacle, and says so in its run
        wanted = settings_of_keeper(settings)
        if is_address(wanted.master):
            _watchers[0].ensure()
        else:
            ensure_keeper(wanted)


def settings_of_keeper(settings: Mapping[str, Any]) -> "KeeperSettings":
    """The same in the zygote and in each of its children, whatever a run has in its environment."""
    from opendataflow.spark.keeper_settings import KeeperSettings

    return KeeperSettings.from_project(settings, _environ)


def main(argv: list[str]) -> int:
    """Produce the chunk of the task in this file."""
    channel = Channel(os.dup(ANSWERS_FD))  # a duplicate is not inherited by what the code starts
    os.close(ANSWERS_FD)
    os.register_at_fork(after_in_child=channel.drop)
    open_streams()
    forget_seeds()
    try:
        with open(argv[0], encoding="utf-8") as file:
            task = json.load(file)
        os.unlink(argv[0])  # read once: whatever becomes of the run, nothing of it stays
        specs = [chunk_spec(fields) for fields in task["specs"]]
        return Run(specs, task["results"], channel, task.get("written")).run()
    except BaseException:  # noqa: BLE001  of our own code; the user's is dealt with where it is called
        traceback.print_exc()
        return _INTERNAL
    finally:
        flush()


def forget_seeds() -> None:
    """Random numbers of forks would all be the same; Python's own module sees to that itself."""
    import numpy

    numpy.random.seed()


# The run ----------------------------------------------------------------------------------------------------------
class Run:
    """The run of this process, or the runs that share it; `_produce` is where they get their Spark."""

    def __init__(
        self, specs: Sequence[ChunkSpec], results: Sequence[str], channel: Channel,
        written: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self._specs, self._spec = specs, specs[0]
        self._results = {spec.runid: path for spec, path in zip(specs, results, strict=True)}
        self._channel, self._written = channel, written
        self._pid = os.getpid()
        self._has_said_waiting = False
        self._attached: Attachment | None = None

    def run(self) -> int:
        from opendataflow.spark.connect import is_address

        try:
            results = self._produce()
        except BaseException as error:  # noqa: BLE001  the user's code must not decide how this process ends
            self._end_if_copy(error)
            self._end_if_driver_ended(error)
            results = {spec.runid: self._failed(spec, error) for spec in self._specs}
        self._end_if_copy()
        for spec in self._specs:
            self._say_what_is_missing(spec, results[spec.runid])
            write_atomically(self._results[spec.runid], results[spec.runid])
        if self._attached is not None and is_address(self._attached.master):  # a server would keep the session
            with contextlib.suppress(Exception):  # the result is written, whatever the code has made of this process
                self._attached.close()
        return 1 if len(self._specs) == 1 and results[self._spec.runid].get("error") else 0

    def _produce(self) -> dict[int, dict[str, Any]]:
        from opendataflow.spark.attach import attach
        from opendataflow.spark.cluster import Executors
        from opendataflow.spark.connect import is_address
        from opendataflow.spark.pipeline import read_codes

        spec = self._spec
        codes = read_codes(spec)  # first: what is missing is said without waiting for Spark
        store = os.environ.get("DATAFLOW_STORE_ID", "")
        settings = settings_of_keeper(spec.spark)
        if why := find_other_version():
            self.give_back(why)
        folder = _watchers[0].folder if is_address(settings.master) else settings.folder
        attached = self._attached = attach(
            settings, run=spec.name, group=str(spec.runid), identity=f"{store}/{spec.name}", folder=folder,
            on_wait=self.say_waiting, on_jvm_end=self.driver_ended,
        )  # fmt: skip
        with contextlib.nullcontext(attached.scratch) if attached.scratch else TemporaryDirectory() as scratch:
            return self._produce_on(attached, codes, Executors(attached.master, scratch))

    def _produce_on(
        self, attached: "Attachment", codes: "tuple[Code, ...]", executors: "Executors",
        statics: "Statics | None" = None,
    ) -> dict[int, dict[str, Any]]:  # fmt: skip
        """The result of each run."""
        from opendataflow.spark.connect import add_code_to, is_connect
        from opendataflow.spark.files_remote import run_staged
        from opendataflow.spark.pipeline import Task
        from opendataflow.spark.shared_state import refuse_shared_state

        spark, spec = attached.spark, self._spec
        executors.prepare(spark, self._specs)
        if is_connect(spark):
            add_code_to(spark)
        self._channel.send(begun=True)
        refuse_shared_state(spark, run=spec.runid)
        if spec.home not in sys.path:
            sys.path.append(spec.home)  # last, so that a project's files never replace a library's

        def run(specs: Sequence[ChunkSpec], hear: Any) -> Iterator[tuple[ChunkSpec, dict[str, Any]]]:
            task = Task(
                spark, codes, hear=hear, end_if_jvm_ended=self._end_if_lost, group=attached.group, statics=statics,
                tag=attached.tag,
            )  # fmt: skip
            return task.run(specs)

        if self._written is not None:
            from opendataflow.spark.compared import compared

            return {spec.runid: compared(spark, spec, self._written, run, hear=self._hear)}
        found: dict[int, dict[str, Any]] = {}
        for one, result in run_staged(spark, self._specs, run, hear=self._hear):
            trouble = None if result.get("error") else executors.find_trouble(spark, one)
            found[one.runid] = result if trouble is None else {**result, "error": trouble}
        return found

    # What is said -------------------------------------------------------------------------------------------------
    def _hear(self, spec: ChunkSpec, **fields: Any) -> None:
        if len(self._specs) > 1:
            self._channel.send(run=spec.runid, **fields)
        elif "text" in fields:
            stream = sys.stdout if fields["stream"] == 1 else sys.stderr
            with contextlib.suppress(OSError, ValueError):  # the code closed it
                stream.write(fields["text"])
                stream.flush()
        else:
            self._channel.send(**fields)

    def say_waiting(self, ahead: int) -> None:
        self._channel.send(waiting=ahead)
        if ahead and not self._has_said_waiting:
            self._has_said_waiting = True
            runs = "1 other run" if ahead == 1 else f"{ahead} other runs"
            self._channel.send(progress=f"waits for {runs}: Spark ended while it was one of several, so it runs alone")

    def _failed(self, spec: ChunkSpec, error: BaseException) -> dict[str, Any]:
        from opendataflow.spark.explain import explain, user_traceback

        sentence = explain(error, home=spec.home)
        self._hear(spec, stream=2, text=f"{user_traceback(error, home=spec.home)}{spec.name}: {sentence}\n")
        return {"error": sentence, "steps": []}

    def _say_what_is_missing(self, spec: ChunkSpec, result: dict[str, Any]) -> None:
        """A module that a worker cannot import may have been too large to be sent."""
        from opendataflow.spark.project_modules import why_missing

        data = [location for place in (*spec.sources, spec.destination) for location in place.locations]
        if told := why_missing(str(result.get("error") or ""), spec.home, besides=data):
            self._hear(spec, stream=2, text=f"{spec.name}: {told}\n")
            result["error"] = f"{result['error']}; {told}"

    # Ends ---------------------------------------------------------------------------------------------------------
    def _end_if_copy(self, error: BaseException | None = None) -> None:
        """A process that the user's code forked came back here: its end is not the run's."""
        if os.getpid() == self._pid:
            return
        if error is None:
            os._exit(0)
        if isinstance(error, SystemExit) and not isinstance(error.code, str):
            os._exit(error.code or 0)
        traceback.print_exception(error)
        os._exit(1)

    def _end_if_lost(self, error: BaseException, _spec: ChunkSpec) -> None:
        self._end_if_copy(error)
        self._end_if_driver_ended(error)

    def _end_if_driver_ended(self, error: BaseException) -> None:
        """What fails because the driver is gone, in whichever words, is not the run's failure."""
        from opendataflow.spark.jvm import is_going_down
        from opendataflow.spark.keeper_client import KeeperEnded

        if isinstance(error, KeeperEnded):
            self.give_back(str(error))
        self._end_if_server_lost(error)
        if self._attached is not None and is_going_down():
            time.sleep(_DRIVER_END_SECONDS)  # the thread that hears of the end does the rest

    def _end_if_server_lost(self, error: BaseException | None) -> None:
        """A Spark Connect server that went down was killed, for all we know: this is a death, not a failure."""
        from opendataflow.spark import connect

        if self._attached is None or not connect.is_address(self._attached.master):
            return
        while error is not None and not connect.is_lost(error):
            error = error.__cause__ or error.__context__
        if error is not None:
            told = f"{self._spec.name}: {connect.end_told(self._attached.master)}\n"
            os.write(2, told.encode(errors="backslashreplace"))
            os.kill(os.getpid(), signal.SIGKILL)

    def driver_ended(self, end: dict[str, Any]) -> None:
        """Called from the thread that listens to the keeper: this process is of no use any more."""
        if os.getpid() != self._pid:
            os._exit(1)
        reason, runs = str(end["jvm_ended"]), int(end["runs"])
        os.write(2, f"{self._spec.name}: {reason}\n".encode(errors="backslashreplace"))
        if end["stopped"]:
            self.give_back(reason)
        if (runs := runs - 1 + len(self._specs)) > 1:
            self.give_back(f"{reason} while {runs} runs used it; each is repeated alone")
        with contextlib.suppress(OSError):
            write_atomically(self._results[self._spec.runid], {"error": reason, "steps": []})
        # A death, however the driver ended; nobody else can have caused it.
        os.kill(os.getpid(), signal.SIGKILL)

    def give_back(self, why: str) -> NoReturn:
        result = {"error": why, "given_back": why, "used_spark": self._attached is not None, "steps": []}
        for path in self._results.values():
            with contextlib.suppress(OSError):
                write_atomically(path, result)
        os._exit(1)


def find_other_version() -> str:
    """A sentence when the PySpark on disk is no longer the one that was imported: it would start another's JVM."""
    import pyspark

    from opendataflow.spark.keeper_settings import installed_pyspark

    try:
        _, version = installed_pyspark()
    except ConfigurationError:
        version = ""
    if version == pyspark.__version__:
        return ""
    return f"PySpark {version or '(none)'} has replaced {pyspark.__version__}; the next process will use it"

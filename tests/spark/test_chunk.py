"""Parts of a chunk's process that need no Spark of their own."""

import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pyspark
import pytest

from opendataflow.domain.runs.run import MAX_HAND_BACKS, Claim, Ending
from opendataflow.execution.exit_audit import audit
from opendataflow.execution.pipeline import pipeline_work
from opendataflow.execution.supervise import Exited
from opendataflow.execution.work import Flight, Taken
from opendataflow.spark import jvm
from opendataflow.spark.channel import Channel
from opendataflow.spark.chunk import find_other_version, preload
from opendataflow.spark.jvm import JvmEnd
from opendataflow.store import open_store
from support.pipelines import SLUG, pipeline
from support.projects import Project


def claim(runid: int) -> Claim:
    return Claim("faults", SLUG, "1", runid, 1, 0, 60.0, 0, 30.0, ())


@pytest.mark.parametrize("code", [3, 52])
def test_a_jvm_that_ended_for_lack_of_memory_says_what_to_raise(code: int) -> None:
    assert str(JvmEnd(code)) == "Spark's Java process ran out of memory; raise `spark.driver.memory`"


def test_another_pyspark_on_the_disk_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_other_version() == ""
    monkeypatch.setattr("opendataflow.spark.keeper_settings.installed_pyspark", lambda: ("/somewhere", "9.9.9"))
    assert find_other_version().startswith(f"PySpark 9.9.9 has replaced {pyspark.__version__}")
    with pytest.raises(ImportError, match=r"PySpark 9\.9\.9 has replaced"):
        preload()


def test_a_copy_of_the_process_does_not_speak_for_the_run() -> None:
    read, write = os.pipe()
    channel = Channel(write)
    channel.send(mine=1)
    pid = os.fork()
    if pid == 0:
        channel.drop()
        channel.send(copied=1)
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(write)
    with open(read) as said:
        assert [json.loads(line) for line in said] == [{"mine": 1}]


def test_a_driver_that_hangs_is_asked_for_a_moment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    from pyspark import SparkContext

    class Silent:
        def sc(self) -> Any:
            threading.Event().wait()

    context = type("Context", (), {"_jsc": Silent()})()
    monkeypatch.setattr(SparkContext, "_active_spark_context", context)
    monkeypatch.setattr(jvm, "_PROBE_SECONDS", 0.2)
    assert jvm.is_going_down()


def test_what_audited_chunks_said_is_not_kept(sqlite_project: Project) -> None:
    pipeline(sqlite_project, chunks=1)
    store = open_store(sqlite_project.store, actor="tests")
    job = store.get_job(SLUG, project=None)
    work = pipeline_work(job, str(sqlite_project.folder), store=store, say=print)
    runs = sqlite_project.folder / "runs"
    runs.mkdir()
    place = sqlite_project.write("made.csv", "x")
    (output,) = job.outputs

    def one(runid: int) -> None:
        steps = [{"position": 1, "output": "x" * 65_536}]
        said = {"rows": 1, "schema": None, "findings": [], "steps": steps, "number": runid}
        (runs / f"{runid}.result.json").write_text(json.dumps(said))
        work.manifests(claim(runid), {output.dataset[:2]: str(place)})

    one(1)
    tracemalloc.start()
    for runid in range(2, 102):
        one(runid)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    store.close()
    assert kept < 1 << 20, f"{kept} bytes of a hundred results are kept"


@pytest.mark.parametrize(("before", "ending"), [(MAX_HAND_BACKS - 1, "HANDED_BACK"), (MAX_HAND_BACKS, "DIED")])
def test_a_run_that_is_handed_back_again_and_again_dies(before: int, ending: str, sqlite_project: Project) -> None:
    pipeline(sqlite_project, chunks=1)
    store = open_store(sqlite_project.store, actor="tests")
    job = store.get_job(SLUG, project=None)
    work = pipeline_work(job, str(sqlite_project.folder), store=store, say=print)
    assert work.forked is not None
    (sqlite_project.folder / "runs").mkdir()
    told: Path = sqlite_project.folder / "runs" / "100.result.json"
    told.write_text(json.dumps({"error": "gone", "given_back": "gone", "used_spark": False, "steps": []}))
    store.read = None  # type: ignore[method-assign]  # not asked: one that only waited for a driver never dies of it
    assert work.forked.hand_backs(claim(100)) == 0
    told.write_text(json.dumps({"error": "gone", "given_back": "gone", "used_spark": True, "steps": []}))
    work = work._replace(forked=work.forked._replace(hand_backs=lambda _: before))
    flight = Flight(Taken(None, claim(100), 0.0), None)  # type: ignore[arg-type]
    result = audit(job, work, flight, Exited(1))
    store.close()
    assert (result.ending, "gone" in result.message) == (Ending(ending), True)

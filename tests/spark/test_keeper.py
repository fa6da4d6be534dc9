"""The keeper of a warm Spark driver, and the runs that attach to it: real processes, real JVMs."""

import contextlib
import dataclasses
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opendataflow.errors import ConfigurationError
from opendataflow.spark.keeper_client import SOCKET, ensure_keeper, list_keepers, stop_keeper
from opendataflow.spark.keeper_settings import KeeperSettings, build_environment, runtime_folder
from support import clusters, keepers
from support.keepers import Client, find_keeper, get_keeper, is_alive, until

SECRET = "hidden-from-arguments"
SETTINGS: dict[str, Any] = {
    "master": "local[2]",
    "conf": {"spark.hadoop.fs.test.password": SECRET, "spark.sql.shuffle.partitions": 3},
}
_START = """
import sys
from opendataflow.spark.keeper_client import ensure_keeper
import json
print(ensure_keeper(json.loads(sys.argv[1])), flush=True)
"""


def starter(settings: dict[str, Any], **more: Any) -> "subprocess.Popen[str]":
    argv = [sys.executable, "-c", _START, json.dumps(settings)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, **more)


def own(name: str) -> dict[str, Any]:
    """Settings that no other test's keeper has."""
    return {"master": "local[1]", "conf": {"spark.dataflow.test": name}}


@pytest.fixture(scope="module", autouse=True)
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    # Longer than the address of a unix socket may be.
    with keepers.runtime_folder(tmp_path_factory.mktemp("k" * 100) / "runtime") as path:
        yield path


@pytest.fixture
def folder() -> str:
    """A keeper that most tests share; one that a test has ended is started anew."""
    return ensure_keeper(SETTINGS)


# Starting -------------------------------------------------------------------------------------------------------------
def test_starters_at_the_same_moment_get_one_keeper_and_one_jvm(base: Path) -> None:
    starters = [starter(SETTINGS) for _ in range(4)]
    folders = {one.communicate()[0].strip() for one in starters}
    assert len(folders) == 1
    (folder,) = folders
    with Client(SETTINGS, "tell(count=spark.range(5).count())", folder=folder) as client:
        assert client.hear("count") == {"count": 5}
    running = [pid for pid in keepers.processes_below(folder) if os.readlink(f"/proc/{pid}/exe").endswith("java")]
    assert running == [get_keeper(folder)["jvm_pid"]]


def test_a_starter_killed_in_mid_start_leaves_a_keeper_that_starts_or_none(base: Path) -> None:
    settings = own("killed-starter")
    for delay in (0.0, 0.05, 0.1, 0.2):
        with starter(settings) as killed:
            time.sleep(delay)
            killed.kill()
    with Client(settings, "tell(count=spark.range(5).count())") as client:
        assert client.hear("count") == {"count": 5}
    assert len([one for one in list_keepers() if one["folder"] == KeeperSettings.from_project(settings).folder]) == 1
    stop_keeper(KeeperSettings.from_project(settings).folder, force=True)


def test_a_keeper_that_is_killed_takes_its_jvm_along_and_the_next_command_starts_another(folder: str) -> None:
    with Client(SETTINGS, "wait()", folder=folder) as client:
        client.hear("attached")
        before = get_keeper(folder)
        os.kill(before["pid"], signal.SIGKILL)
        assert client.hear("jvm_ended")["jvm_ended"] == "the keeper of Spark was killed"
    until(lambda: not is_alive(before["jvm_pid"]))
    assert os.path.exists(os.path.join(folder, SOCKET))  # a leftover, which is no obstacle
    with Client(SETTINGS, "tell(count=spark.range(5).count())", folder=ensure_keeper(SETTINGS)) as client:
        assert client.hear("count") == {"count": 5}
    after = get_keeper(folder)
    assert after["pid"] != before["pid"]
    instances = [entry.name for entry in os.scandir(folder) if entry.is_dir()]
    assert [name.partition("-")[0] for name in instances] == [str(after["pid"])]


def test_spark_that_does_not_start_is_an_error_with_the_last_lines_of_the_log(base: Path) -> None:
    settings = {"master": "local[1]", "conf": {"spark.driver.memory": "1k"}}
    with Client(settings, _FAILING) as client:
        told = client.hear("error")
    assert told["error"] == "JobFailed"
    assert "Java ended before Spark had started" in told["text"]
    assert "heap" in told["text"]


def test_a_master_that_does_not_answer_is_an_error_that_says_so(base: Path) -> None:
    settings = {"master": "spark://127.0.0.1:1"}
    with Client(settings, _FAILING) as client:
        told = client.hear("error")
    assert told["error"] == "JobFailed"
    assert told["text"].startswith("no Spark master answers at spark://127.0.0.1:1")


_FAILING = """
try:
    attached()
except Exception as error:
    tell(error=type(error).__name__, text=str(error))
"""


# Deaths ---------------------------------------------------------------------------------------------------------------
def test_runs_that_were_attached_when_the_jvm_was_killed_hear_it_and_get_spark_alone_next(folder: str) -> None:
    with (
        Client(SETTINGS, "wait()", run="1", identity="s/j/1", folder=folder) as first,
        Client(SETTINGS, "wait()", run="2", identity="s/j/2", folder=folder) as second,
    ):
        first.hear("attached")
        second.hear("attached")
        os.kill(get_keeper(folder)["jvm_pid"], signal.SIGKILL)
        for client in (first, second):
            end = client.hear("jvm_ended")
            assert end["jvm_ended"] == "Spark's Java process was killed by signal 9"
            assert (end["signal"], end["runs"], end["stopped"]) == (signal.SIGKILL, 2, False)
    until(lambda: find_keeper(folder) is None)
    ensure_keeper(SETTINGS)
    with contextlib.ExitStack() as clients:
        suspect = clients.enter_context(Client(SETTINGS, "wait()", run="3", identity="s/j/1", folder=folder))
        suspect.hear("attached")
        other = clients.enter_context(Client(SETTINGS, "wait()", run="4", identity="s/j/other", folder=folder))
        assert other.hear("waiting")["waiting"] == 1
        suspect.go_on()
        other.hear("attached")
        with Client(SETTINGS, "wait()", run="5", identity="s/j/1", folder=folder) as cleared:
            cleared.hear("attached")  # it ended once without harm
            with Client(SETTINGS, "wait()", run="6", identity="s/j/2", folder=folder) as held_back:
                assert held_back.hear("waiting")["waiting"] == 2
                other.kill()
                cleared.kill()
                held_back.hear("attached")


def test_a_jvm_that_ends_with_one_run_makes_no_suspect(folder: str) -> None:
    with Client(SETTINGS, "wait()", identity="s/j/alone", folder=folder) as client:
        client.hear("attached")
        os.kill(get_keeper(folder)["jvm_pid"], signal.SIGTERM)
        end = client.hear("jvm_ended")
    assert (end["signal"], end["runs"]) == (signal.SIGTERM, 1)
    until(lambda: find_keeper(folder) is None)
    ensure_keeper(SETTINGS)
    assert until(lambda: find_keeper(folder))["suspects"] == 0


def test_a_jvm_that_hangs_is_killed_and_its_runs_hear_of_it(base: Path) -> None:
    settings = own("hangs")
    folder = ensure_keeper(dataclasses.replace(KeeperSettings.from_project(settings), hang_seconds=3.0))
    with (
        Client(settings, "wait()", run="1", identity="s/j/1", folder=folder) as first,
        Client(settings, "wait()", run="2", identity="s/j/2", folder=folder) as second,
    ):
        first.hear("attached")
        second.hear("attached")
        time.sleep(8.0)  # longer than it may be silent: it is asked, and answers
        keeper = get_keeper(folder)
        os.kill(keeper["jvm_pid"], signal.SIGSTOP)
        for client in (first, second):
            end = client.hear("jvm_ended")
            assert end["jvm_ended"] == "Spark's Java process did not answer for 3 s and was killed"
            assert (end["runs"], end["stopped"]) == (2, False)
    assert not is_alive(keeper["jvm_pid"])
    until(lambda: not is_alive(keeper["pid"]))
    assert len(json.loads((Path(folder) / "suspects.json").read_text())) == 2


_IMPATIENT = """
from opendataflow.spark.keeper_client import Line
Line.receive.__kwdefaults__["seconds"] = 2.0
"""


def test_a_keeper_that_was_stopped_hands_its_runs_back(folder: str) -> None:
    with Client(SETTINGS, "pass", folder=folder) as client:
        client.hear("attached")
    keeper = get_keeper(folder)
    os.kill(keeper["pid"], signal.SIGSTOP)
    try:
        with Client(SETTINGS, _IMPATIENT + _FAILING, folder=folder) as client:
            told = client.hear("error")
        assert told["error"] == "KeeperEnded"
        assert "does not answer" in told["text"]
    finally:
        os.kill(keeper["pid"], signal.SIGCONT)


_EXHAUSTS = """
wait()
try:
    held = [spark._jvm.java.util.Arrays.copyOf(bytes(8), 100 << 20) for _ in range(20)]
    kept = spark._jvm.java.util.ArrayList()
    for _ in range(20):
        kept.add(spark._jvm.java.nio.ByteBuffer.allocate(100 << 20))
except Exception as error:
    tell(error=type(error).__name__)
wait()
"""


def test_a_driver_out_of_memory_ends_and_all_its_runs_hear_why(base: Path) -> None:
    settings = {"master": "local[1]", "conf": {"spark.driver.memory": "512m"}}
    folder = ensure_keeper(settings)
    with (
        Client(settings, "wait()", run="1", identity="s/j/1", folder=folder) as neighbour,
        Client(settings, _EXHAUSTS, run="2", identity="s/j/2", folder=folder) as greedy,
    ):
        neighbour.hear("attached")
        greedy.hear("attached")
        greedy.go_on()
        for client in (neighbour, greedy):
            end = client.hear("jvm_ended")
            assert end["jvm_ended"] == "Spark's Java process ran out of memory; raise `spark.driver.memory`"
            assert (end["runs"], end["stopped"]) == (2, False)


def test_runs_hear_of_the_end_when_it_cannot_be_written_down_who_is_suspect(base: Path) -> None:
    settings = own("full disk")
    folder = ensure_keeper(settings)
    with (
        Client(settings, "wait()", run="1", identity="s/j/1", folder=folder) as first,
        Client(settings, "wait()", run="2", identity="s/j/2", folder=folder) as second,
    ):
        first.hear("attached")
        second.hear("attached")
        (Path(folder) / "suspects.json").mkdir()  # as good as a disk that is full
        os.kill(get_keeper(folder)["jvm_pid"], signal.SIGKILL)
        for client in (first, second):
            assert client.hear("jvm_ended")["jvm_ended"] == "Spark's Java process was killed by signal 9"
    assert "could not be written down" in (Path(folder) / "log").read_text()
    (Path(folder) / "suspects.json").rmdir()


def test_runs_of_a_keeper_that_was_killed_get_spark_alone_next(base: Path) -> None:
    settings = own("killed keeper")
    folder = ensure_keeper(settings)
    with Client(settings, "wait()", run="1", identity="s/j/1", folder=folder) as client:
        client.hear("attached")
        os.kill(get_keeper(folder)["pid"], signal.SIGKILL)
        assert client.hear("jvm_ended")["stopped"]
    ensure_keeper(settings)
    assert until(lambda: find_keeper(folder))["suspects"] == 1
    with Client(settings, "wait()", run="2", identity="s/j/1", folder=folder) as suspect:
        suspect.hear("attached")
        with Client(settings, "wait()", run="3", identity="s/j/2", folder=folder) as other:
            assert other.hear("waiting")["waiting"] == 1
            suspect.kill()
            other.hear("attached")
    stop_keeper(folder, force=True)


_SLOW = "spark.range(0, 2, 1, 2).mapInPandas(lambda pages: (time.sleep(600) or page for page in pages), 'id long')"


@pytest.mark.parametrize("where", ["the main thread", "a thread of the run's own"])
def test_the_jobs_of_a_killed_run_are_cancelled_within_five_seconds(folder: str, where: str) -> None:
    action = f"{_SLOW}.count()"
    code = f"""
        import threading
        def act():
            {action}
        worker = threading.Thread(target=act, daemon=True)
        {"act()" if where == "the main thread" else "worker.start(); worker.join()"}
    """
    look = """
        tracker = spark.sparkContext._jsc.sc().statusTracker()
        for _ in range(200):
            tell(jobs=len(tracker.getActiveJobIds()))
            wait()
    """
    with Client(SETTINGS, look, run="look", identity="s/j/look", folder=folder) as observer:

        def jobs() -> int:
            observer.go_on()
            return int(observer.hear("jobs")["jobs"])

        with Client(SETTINGS, code, run="slow", identity="s/j/slow", folder=folder) as slow:
            slow.hear("attached")
            until(lambda: jobs() == 1)
            slow.kill()
            killed_at = time.monotonic()
            until(lambda: jobs() == 0, seconds=5.0)
            assert time.monotonic() - killed_at < 5.0


def test_a_process_that_the_run_forked_does_not_keep_it_attached(folder: str) -> None:
    code = """
        copy = os.fork()
        if copy == 0:
            os.close(1)
            time.sleep(60)
            os._exit(0)
        tell(copy=copy)
        wait()
    """
    with Client(SETTINGS, code, folder=folder) as client:
        copy = client.hear("copy")["copy"]
        assert len(get_keeper(folder)["runs"]) == 1
        client.kill()
        until(lambda: get_keeper(folder)["runs"] == [], seconds=5.0)
        assert is_alive(copy)
        os.kill(copy, signal.SIGKILL)


# What runs share ------------------------------------------------------------------------------------------------------
def test_a_session_is_the_runs_own_and_pyspark_answers_with_it(folder: str) -> None:
    code = """
        from pyspark.sql import SparkSession
        use = attached()
        spark = use.spark
        mine = [SparkSession.builder.getOrCreate(), SparkSession.active(), SparkSession.getActiveSession()]
        views = [table.name for table in spark.catalog.listTables()]
        partitions = spark.conf.get("spark.sql.shuffle.partitions")
        tell(same=[one is spark for one in mine], views=views, partitions=partitions)
        spark.range(1).createOrReplaceTempView("left_behind")
        spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        spark.stop()
        spark.sparkContext.stop()
        tell(count=spark.range(7).count(), secret=os.environ.get("PYSPARK_GATEWAY_SECRET"))
        use.close()
        use = attached()
        tell(zone=use.spark.conf.get("spark.sql.session.timeZone"))
    """
    for _ in range(2):
        with Client(SETTINGS, code, folder=folder) as client:
            assert client.hear("same") == {"same": [True] * 3, "views": [], "partitions": "3"}
            assert client.hear("count") == {"count": 7, "secret": None}
            assert client.hear("zone") == {"zone": "UTC"}
    assert get_keeper(folder)["state"] == "ready"


def test_what_another_run_cached_is_not_read(folder: str, tmp_path: Path) -> None:
    data = tmp_path / "data.csv"
    data.write_text("".join(f"{number}\n" for number in range(10)))
    read = f"spark.read.csv({str(data)!r})"
    cached = f"df = {read}.cache(); tell(count=df.count()); wait()"
    with Client(SETTINGS, cached, run="1", folder=folder) as first:
        assert first.hear("count") == {"count": 10}
        data.write_text("".join(f"{number}\n" for number in range(99)))
        with Client(
            SETTINGS, f"tell(count={read}.count()); wait()", run="2", identity="other", folder=folder
        ) as second:
            assert second.hear("count") == {"count": 99}
            first.kill()
    until(lambda: get_keeper(folder)["runs"] == [])
    look = "tell(cached=len(spark.sparkContext._jsc.getPersistentRDDs()), count=spark.read.csv(PATH).count())"
    with Client(SETTINGS, look.replace("PATH", repr(str(data))), folder=folder) as after:
        assert after.hear("cached") == {"cached": 0, "count": 99}


_SEEN_BY_UI = """
import urllib.request
from urllib.parse import urlsplit
context = spark.sparkContext._jsc.sc()
spark.range(7).createOrReplaceGlobalTempView("numbers")
spark.range(3).count()
tabs = [tab.prefix() for tab in spark._jvm.scala.jdk.javaapi.CollectionConverters.asJava(context.ui().get().getTabs())]
listeners = [one.getClass().getSimpleName() for one in context.listenerBus().listeners()]
port = urlsplit(spark.sparkContext.uiWebUrl).port
address = f"http://127.0.0.1:{port}/api/v1/applications/{spark.sparkContext.applicationId}/sql"
give_up_at = time.monotonic() + 10
while "run 1" not in (page := urllib.request.urlopen(address).read().decode()) and time.monotonic() < give_up_at:
    time.sleep(0.1)
tell(tabs=tabs, listeners=listeners.count("SQLAppStatusListener"), named="run 1" in page, views=views)
"""


def test_runs_have_catalogs_of_their_own_and_sparks_ui_shows_the_queries_of_all(base: Path) -> None:
    settings = {"master": "local[1]", "conf": {"spark.ui.enabled": "true", "spark.ui.port": "0"}}
    folder = ensure_keeper(settings)
    has_view = "views = spark.catalog._jcatalog.tableExists('global_temp.numbers')\n"
    with Client(settings, f"{has_view}{_SEEN_BY_UI}wait()", run="1", folder=folder) as first:
        assert first.hear("tabs")["views"] is False
        with Client(settings, has_view + _SEEN_BY_UI, run="2", folder=folder) as second:
            told = second.hear("tabs")
    assert (told["views"], told["named"]) == (False, True)
    assert sorted(told["tabs"]) == ["SQL", "environment", "executors", "jobs", "stages", "storage"]
    assert told["listeners"] == 1  # those of sessions are taken back, or each query would be noted once for each run
    stop_keeper(folder, force=True)


def test_ctrl_c_of_one_run_does_not_cancel_the_jobs_of_others(folder: str) -> None:
    job = "spark.range(0, 1).mapInPandas(lambda pages: (time.sleep(3) or page for page in pages), 'id long').count()"
    with (
        Client(SETTINGS, f"tell(count={job})", run="1", folder=folder) as lasting,
        Client(SETTINGS, "wait()", run="2", identity="other", folder=folder) as interrupted,
    ):
        lasting.hear("attached")
        interrupted.hear("attached")
        time.sleep(1.0)
        interrupted.process.send_signal(signal.SIGINT)
        assert interrupted.process.wait() == -signal.SIGINT
        assert lasting.hear("count") == {"count": 1}


# Secrets and the environment ------------------------------------------------------------------------------------------
def test_no_secret_is_in_the_arguments_or_the_environment_of_any_process(folder: str) -> None:
    code = "tell(secret=spark.sparkContext._gateway.gateway_parameters.auth_token); wait()"
    mine = {"DATAFLOW_PASSKEY": "pass-of-the-caller", "dataid": "day-of-the-caller"}
    with Client(SETTINGS, code, folder=folder, env=mine) as client:
        secret = client.hear("secret")["secret"]
        udf = "spark.range(1).mapInPandas(lambda pages: pages, 'id long').count(); tell(done=True); wait()"
        with Client(SETTINGS, udf, run="2", identity="other", folder=folder) as other:
            other.hear("done")
            looked_at = keepers.processes_below(folder)
            assert len(looked_at) >= 3  # keeper, JVM and a Python worker
            for pid in (*looked_at, client.process.pid):
                arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode()
                environment = Path(f"/proc/{pid}/environ").read_bytes().decode()
                assert secret not in arguments + environment
                if pid != client.process.pid:
                    assert SECRET not in arguments + environment
                    assert "of-the-caller" not in arguments + environment
        for path in (Path(folder), *Path(folder).rglob("*")):
            with contextlib.suppress(FileNotFoundError):  # a folder of the run that has just ended
                assert stat.S_IMODE(path.lstat().st_mode) & 0o077 == 0 or path.is_symlink() or "tmp" in path.parts
                if path.is_file() and path.suffix != ".so":
                    assert secret.encode() not in path.read_bytes()


def test_a_python_worker_sees_nothing_of_the_callers_environment_or_folder(folder: str) -> None:
    code = """
        import pandas
        def look(pages):
            for _ in pages:
                yield pandas.DataFrame({"seen": [json.dumps([dict(os.environ), os.getcwd(), os.listdir()])]})
        tell(seen=spark.range(1).mapInPandas(look, "seen string").first()["seen"])
    """
    mine = {"dataid": "today", "DATAFLOW_PASSKEY": "passkey", "MY_TOKEN": "token", "DATAFLOW_STORE": "store"}
    with Client(SETTINGS, code, folder=folder, env=mine) as client:
        environment, working, listed = json.loads(client.hear("seen")["seen"])
    assert not set(mine) & set(environment)
    assert environment["PYTHONSAFEPATH"] == "1"
    assert working.startswith(f"{folder}/")
    assert listed == []


def test_the_environment_of_a_keeper_is_built_from_what_it_may_have() -> None:
    given = {
        "PATH": "/bin", "LC_ALL": "C", "AWS_REGION": "x", "https_proxy": "p", "dataid": "d", "PASSKEY": "k",
        "DATAFLOW_STORE": "s", "SPARK_REMOTE": "sc://x", "SPARK_CONF_DIR": "/c", "ORDERS_PASSWORD": "o",
        "PYTHONPATH": "relative:/absolute:", "SPARK_BUFFER_SIZE": "1",
    }  # fmt: skip
    built = build_environment(given, master="yarn", conf={})
    assert built == {
        "PATH": "/bin", "LC_ALL": "C", "AWS_REGION": "x", "https_proxy": "p", "SPARK_CONF_DIR": "/c",
        "PYTHONPATH": "/absolute", "PYSPARK_PYTHON": sys.executable, "PYTHONSAFEPATH": "1",
    }  # fmt: skip
    local = build_environment({"SPARK_LOCAL_IP": "10.0.0.1"}, master="local[2]", conf={"spark.pyspark.python": "py"})
    assert (local["SPARK_LOCAL_IP"], local["SPARK_LOCAL_HOSTNAME"]) == ("10.0.0.1", "127.0.0.1")
    assert local["PYSPARK_PYTHON"] == "py"


def test_who_can_share_a_driver_has_its_key_and_nobody_else() -> None:
    def key(conf: dict[str, Any], environ: dict[str, str] | None = None, master: str = "local[2]") -> str:
        return KeeperSettings.from_project({"master": master, "conf": conf}, environ or {"PATH": "/bin"}).key

    alike = key({"spark.driver.memory": "2g"})
    assert key({"spark.driver.memory": "2g", "spark.sql.ansi.enabled": False}) == alike
    assert key({"spark.driver.memory": "2g"}, {"PATH": "/bin", "dataid": "2025-01-01"}) == alike
    assert key({"spark.driver.memory": "3g"}) != alike
    assert key({"spark.driver.memory": "2g", "spark.sql.warehouse.dir": "/w"}) != alike
    assert key({"spark.driver.memory": "2g"}, {"PATH": "/usr/bin"}) != alike
    assert key({"spark.driver.memory": "2g"}, master="local[3]") != alike


@pytest.mark.parametrize("mode", [0o755, 0o710])
def test_a_folder_that_others_can_enter_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(mode)
    monkeypatch.setenv("DATAFLOW_RUNTIME_DIR", str(tmp_path / "open"))
    with pytest.raises(ConfigurationError, match=r"other users can enter .*chmod 700"):
        runtime_folder()


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = "/"
    if os.getuid() == 0:
        foreign = str(tmp_path / "foreign")
        os.mkdir(foreign, 0o700)
        os.chown(foreign, 65_534, 65_534)
    monkeypatch.setenv("DATAFLOW_RUNTIME_DIR", foreign)
    with pytest.raises(ConfigurationError, match="is not a folder of this user"):
        runtime_folder()


def test_a_link_to_a_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    monkeypatch.setenv("DATAFLOW_RUNTIME_DIR", str(tmp_path / "link"))
    with pytest.raises(ConfigurationError, match="is not a folder of this user"):
        runtime_folder()


# Settings -------------------------------------------------------------------------------------------------------------
def test_the_list_of_static_settings_is_sparks_own(folder: str) -> None:
    code = """
        from opendataflow.spark.static_settings import STATIC_SQL_SETTINGS
        jvm = spark._jvm
        def singleton(name):
            return getattr(getattr(jvm, f"org.apache.spark.sql.{name}$"), "MODULE$")
        singleton("hive.HiveUtils").HIVE_METASTORE_VERSION()  # its settings are known once it is loaded
        known = singleton("internal.SQLConf").getConfigEntries().toArray()
        keys = sorted({entry.key() for entry in known if entry.key().startswith("spark.sql.")})
        fixed = [key for key in keys if not spark.conf.isModifiable(key)]
        missing, gone = set(fixed) - STATIC_SQL_SETTINGS, STATIC_SQL_SETTINGS - set(fixed)
        tell(keys=len(keys), missing=sorted(missing), gone=sorted(gone))
    """
    with Client(SETTINGS, code, folder=folder) as client:
        told = client.hear("keys")
    assert told["keys"] > 500
    assert (told["missing"], told["gone"]) == ([], [])


def test_settings_arrive_as_they_were_written(base: Path) -> None:
    value = " # ünïcode \U0001f680 = : ! \\ 'single' \"double\" a\tb"
    settings = {"master": "local[1]", "conf": {"spark.hadoop.odd.key": value.strip(), "plain.key": "kept"}}
    code = (
        "conf = spark.sparkContext.getConf(); tell(odd=conf.get('spark.hadoop.odd.key'), plain=conf.get('plain.key'))"
    )
    with Client(settings, code) as client:
        assert client.hear("odd") == {"odd": value.strip(), "plain": "kept"}
    stop_keeper(KeeperSettings.from_project(settings).folder, force=True)


# Ends -----------------------------------------------------------------------------------------------------------------
def test_a_keeper_that_nobody_uses_stops_and_leaves_no_temporary_files(base: Path) -> None:
    settings = {**own("idle"), "idle": 2}
    folder = ensure_keeper(settings)
    with Client(settings, "wait()", folder=folder) as client:
        client.hear("attached")
        keeper = get_keeper(folder)
        time.sleep(4.0)
        assert get_keeper(folder)["pid"] == keeper["pid"]  # it is used
    until(lambda: not is_alive(keeper["pid"]))
    assert not is_alive(keeper["jvm_pid"])
    assert sorted(os.listdir(folder)) == ["lock", "log", "settings.json"]


def test_an_aged_keeper_is_replaced_and_ends_with_its_last_run(base: Path) -> None:
    settings = own("aged")
    folder = ensure_keeper(dataclasses.replace(KeeperSettings.from_project(settings), most_runs=2))
    with Client(settings, "wait(); tell(count=spark.range(5).count())", run="1", folder=folder) as lasting:
        lasting.hear("attached")
        old = get_keeper(folder)
        for number in (2, 3):
            with Client(settings, "pass", run=str(number), identity=str(number), folder=folder) as client:
                client.hear("attached")
                client.process.wait()
        new = until(lambda: (one := find_keeper(folder)) is not None and one["pid"] != old["pid"] and one)
        with Client(settings, "tell(app=spark.sparkContext.applicationId)", run="4", folder=folder) as client:
            client.hear("attached")
        assert is_alive(old["pid"])
        assert {one["pid"] for one in list_keepers()} >= {old["pid"], new["pid"]}
        lasting.go_on()
        assert lasting.hear("count") == {"count": 5}
    until(lambda: not is_alive(old["pid"]))
    assert is_alive(new["pid"])
    stop_keeper(folder, force=True)


def test_a_keeper_asked_to_end_serves_its_runs_and_asked_twice_ends_at_once(base: Path) -> None:
    settings = own("asked")
    folder = ensure_keeper(settings)
    for is_asked_twice in (False, True):
        with Client(settings, "wait(); tell(count=spark.range(5).count())", folder=folder) as client:
            client.hear("attached")
            keeper = get_keeper(folder)
            os.kill(keeper["pid"], signal.SIGTERM)
            until(lambda: find_keeper(folder) is None)  # new runs do not find it
            if is_asked_twice:
                os.kill(keeper["pid"], signal.SIGTERM)
                end = client.hear("jvm_ended")
                assert (end["signal"], end["runs"], end["stopped"]) == (None, 1, True)
            else:
                client.go_on()
                assert client.hear("count") == {"count": 5}
                client.process.wait()
                ensure_keeper(settings)
        until(lambda pid=keeper["pid"]: not is_alive(pid))
        assert not is_alive(keeper["jvm_pid"])


def test_the_log_stays_bounded_whatever_a_run_prints(folder: str) -> None:
    code = """
        def shout(pages):
            for page in pages:
                for _ in range(200):
                    sys.stderr.write("x" * 99_999 + "\\n")
                yield page
        tell(count=spark.range(0, 1, 1, 1).mapInPandas(shout, "id long").count())
    """
    with Client(SETTINGS, code, folder=folder) as client:
        assert client.hear("count") == {"count": 1}
    until(lambda: os.path.exists(os.path.join(folder, "log.1")))
    assert sum(os.path.getsize(os.path.join(folder, name)) for name in ("log", "log.1")) < 10 << 20


# Without a keeper, and by hand ---------------------------------------------------------------------------------------
def test_a_spark_connect_server_needs_no_keeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATAFLOW_RUNTIME_DIR", str(tmp_path / "unused"))
    with clusters.connect(tmp_path / "server") as server:
        settings = {"master": server.master, "conf": {"spark.sql.ansi.enabled": "false"}}
        code = "tell(count=spark.range(5).count(), ansi=spark.conf.get('spark.sql.ansi.enabled')); use.close()"
        with Client(settings, code) as client:
            assert client.hear("count") == {"count": 5, "ansi": "false"}
            assert client.process.wait() == 0
    assert not (tmp_path / "unused").exists()


def test_the_commands_show_and_stop_what_runs(tmp_path: Path) -> None:
    dataflow = str(Path(sys.executable).with_name("dataflow"))

    def call(*argv: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([dataflow, *argv], capture_output=True, text=True, check=False, cwd=tmp_path)

    with keepers.runtime_folder(tmp_path / "runtime"):
        nothing = call("spark", "status")
        assert (nothing.returncode, nothing.stdout) == (0, "")
        assert "no Spark driver is running" in nothing.stderr
        settings = own("commands")
        folder = ensure_keeper(settings)
        with Client(settings, "wait()", run="42", folder=folder) as client:
            client.hear("attached")
            (shown,) = json.loads(call("spark", "status", "--json").stdout)
            assert (shown["master"], shown["state"], [one["run"] for one in shown["runs"]]) == (
                "local[1]",
                "ready",
                ["42"],
            )
            assert " 42 " in call("spark", "status").stdout
            assert "local[1], ready" in call("doctor").stdout
            assert "is ready after" in call("spark", "logs").stdout
            stopped = call("spark", "stop", "--force")
            assert (stopped.returncode, client.hear("jvm_ended")["stopped"]) == (0, True)
            assert "has stopped" in stopped.stderr
        assert not is_alive(shown["pid"])
        assert not is_alive(shown["jvm_pid"])
        assert json.loads(call("spark", "status", "--json").stdout) == []


# Endurance ------------------------------------------------------------------------------------------------------------
_MANY = """
import signal
from opendataflow.spark.attach import attach
def child(number):
    pid = os.fork()
    if pid == 0:
        own = attach(settings, run=str(number), group="g", identity=str(number), folder=folder).spark
        noted = own._jvm.java.lang.System.getProperties()
        noted.put(f"session-{number}", own._jvm.java.lang.ref.WeakReference(own._jsparkSession))
        if number % 10 < 2:
            own.range(10).cache().count()
        if number % 2:
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(0)
    return pid
for begin in (0, 20, MANY // 2 + 20, MANY + 20):
    tell(upto=begin)
    wait()
    for first in range(begin, {0: 20, 20: MANY // 2 + 20, MANY // 2 + 20: MANY + 20}.get(begin, begin), 5):
        for pid in [child(number) for number in range(first, first + 5)]:
            os.waitpid(pid, 0)
use = attached()
noted = use.spark._jvm.java.lang.System.getProperties()
for _ in range(3):
    use.spark._jvm.java.lang.System.gc()
    time.sleep(1)
tell(alive=sum(noted.remove(f"session-{number}").get() is not None for number in range(MANY + 20)))
"""


@pytest.mark.timeout(900)
def test_many_runs_half_of_them_killed_leave_nothing_in_the_jvm(folder: str) -> None:
    many = 200 if "DATAFLOW_EVERY_FAULT" in os.environ else 40
    with Client(SETTINGS, f"MANY = {many}\n{_MANY}", folder=folder) as client:

        def state() -> dict[str, int]:
            until(lambda: get_keeper(folder)["runs"] == [])
            time.sleep(4.0)  # the last repeated cancel is over
            keeper = get_keeper(folder)
            return {
                "gateway threads": keepers.count_threads(keeper["jvm_pid"], "Thread-"),
                "descriptors": len(os.listdir(f"/proc/{keeper['jvm_pid']}/fd")),
                "of the keeper": len(os.listdir(f"/proc/{keeper['pid']}/fd")),
                "its threads": len(os.listdir(f"/proc/{keeper['pid']}/task")),
                "temporary folders": len(list(Path(folder).glob("*/tmp/*")))
                + len(list(Path(folder).glob("*/tmp/spark-*/*"))),
            }

        seen = []
        for upto in (0, 20, many // 2 + 20, many + 20):
            assert client.hear("upto") == {"upto": upto}
            seen.append(state())
            client.go_on()
        alive = client.hear("alive")["alive"]
    for name, before in seen[1].items():
        assert seen[3][name] <= before + 8, (name, seen)
    assert alive < many // 2 + 20, f"{alive} of {many + 20} sessions are still referred to"


# One that stays -------------------------------------------------------------------------------------------------------
STAYS = """
left = []
use = attached(on_leave=lambda: (left.append(1), tell(leave=True)))
tell(attached=True)
wait()
"""


def test_one_that_stays_is_asked_to_leave_when_a_run_must_be_alone_and_when_the_keeper_ends(base: Path) -> None:
    settings = own("stays")
    folder = ensure_keeper(settings)
    with (
        Client(settings, STAYS, run="1", identity="s/stream", folder=folder) as stays,
        Client(settings, "wait()", run="2", identity="s/j/2", folder=folder) as other,
    ):
        stays.hear("attached")
        other.hear("attached")
        os.kill(get_keeper(folder)["jvm_pid"], signal.SIGKILL)
        assert stays.hear("jvm_ended")["runs"] == 2
    until(lambda: find_keeper(folder) is None)
    ensure_keeper(settings)
    # Both are suspects now. The one that stays has the driver alone, and would keep it for ever.
    with Client(settings, STAYS, run="3", identity="s/stream", folder=folder) as stays:
        stays.hear("attached")
        with Client(settings, "wait()", run="4", identity="s/j/2", folder=folder) as other:
            assert other.hear("waiting")["waiting"] == 1
            assert stays.hear("leave")
            stays.go_on()
            other.hear("attached")
            with Client(settings, STAYS, run="5", identity="s/stream", folder=folder) as stays_again:
                assert stays_again.hear("waiting")["waiting"] == 1
                other.go_on()
                stays_again.hear("attached")
                keeper = get_keeper(folder)
                stop_keeper(folder, force=False)
                assert stays_again.hear("leave")
                assert is_alive(keeper["pid"])
                stays_again.go_on()
                until(lambda: not is_alive(keeper["pid"]))

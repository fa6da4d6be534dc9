"""Code that does what it likes, and neighbours that run at the same time on the same driver and notice nothing.

Every chunk of one pipeline behaves in another way; between them are innocent ones.
"""

import csv
import os
import subprocess
from typing import NamedTuple

import pytest

from support.pipelines import SLUG, messages, pipeline, states
from support.processes import is_alive
from support.projects import DATAFLOW, Project

EVERY_FAULT = "DATAFLOW_EVERY_FAULT" in os.environ  # `make faults`
MEGABYTES = 1024 if EVERY_FAULT else 50
HEAD = f"""\
import os
import resource
import signal
import subprocess
import sys
import threading
import time

from pyspark.sql import functions as F

HOME = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MEGABYTES = {MEGABYTES}


def until(name):
    give_up_at = time.monotonic() + 60
    while not os.path.exists(f"{{HOME}}/{{name}}"):
        if time.monotonic() > give_up_at:
            raise RuntimeError(f"there is no {{name}}")
        time.sleep(0.05)


def rates(spark):
    by_path = spark.sql(f"SELECT * FROM csv.`{{HOME}}/rates`").first()[0]
    return f"{{spark.read.csv(f'{{HOME}}/rates').first()[0]}} {{by_path}}"


def innocent(df):
    spark = df.sparkSession
    patches = ("capture", "chunk_environment", "active_session", "inherit", "leftovers", "together")
    seen = {{
        "variables": "SEEN" in os.environ or "HOME" not in os.environ,
        "folder": os.getcwd() != HOME,
        "umask": os.umask(0o022) == 0,
        "module": "SEEN" in vars(threading),
        "path": "/of/a/neighbour" in sys.path,
        "settings": spark.conf.get("spark.sql.ansi.enabled") == "false",
        "names": [name for name in ("seen", "global_temp.seen") if spark.catalog._jcatalog.tableExists(name)],
        "function": spark.catalog._jcatalog.functionExists("seen"),
        "patches": [name for name in patches if f"opendataflow.spark.{{name}}" in sys.modules],
        "patched": {{threading.Thread.start.__module__, subprocess.Popen.__init__.__module__,
                    type(os.environ).__module__}} != {{"threading", "subprocess", "os"}},
    }}
    time.sleep(0.5)
    return df.withColumn("seen", F.lit(str([name for name, found in seen.items() if found])))


"""


class Behaviour(NamedTuple):
    code: str
    status: str = "COMPLETE"
    message: str = ""


BEHAVIOURS = {
    "caches a common source and changes it": Behaviour("""
        kept = df.sparkSession.read.csv(f"{HOME}/rates").cache()
        first = kept.first()[0]
        df.sparkSession.sql(f"CACHE TABLE by_path AS SELECT * FROM csv.`{HOME}/rates`")
        with open(f"{HOME}/rates/part.csv", "w") as file:
            file.write("2\\n")
        open(f"{HOME}/changed", "w").close()
        until("read")
        return df.withColumn("seen", F.lit(f"{first} then {kept.first()[0]}"))
    """),
    "reads the changed source": Behaviour("""
        until("changed")
        found = rates(df.sparkSession)
        open(f"{HOME}/read", "w").close()
        return df.withColumn("seen", F.lit(found))
    """),
    "bytes that are no text": Behaviour("""
        sys.stdout.buffer.write(b"raw \\xff\\xfe bytes\\n")
        sys.stdout.flush()
        os.write(1, b"direct \\xff\\n")
        subprocess.run(["printf", "from another process\\\\n"], check=True)
        thread = threading.Thread(target=print, args=("half a character \\ud800 in a thread",))
        thread.start()
        thread.join()
        sys.stderr.write("to stderr, without an end")
    """),
    "a flood of output": Behaviour("""
        print("first")
        page = "x" * 1023 + "\\n"
        for _ in range(MEGABYTES):
            sys.stdout.write(page * 1024)
        print("last")
    """),
    "sys.exit": Behaviour("sys.exit(0)", "FAILED", "the code ended its interpreter: sys.exit(0)"),
    "os._exit": Behaviour("os._exit(0)", "FAILED", "the Spark child ended without saying what it wrote"),
    "kills itself": Behaviour("os.kill(os.getpid(), signal.SIGKILL)", "FAILED", "died 3 times in a row"),
    "a fork that comes back": Behaviour("""
        if os.fork() == 0:
            return df.limit(0)
        os.wait()
    """),
    "a daemon": Behaviour("""
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                with open(f"{HOME}/daemon", "w") as file:
                    file.write(str(os.getpid()))
                time.sleep(600)
            os._exit(0)
        until("daemon")
    """),
    "threads that go on": Behaviour("""
        for daemon in (True, False):
            threading.Thread(target=time.sleep, args=(600,), daemon=daemon).start()
    """),
    "a changed process": Behaviour("""
        os.environ["SEEN"] = os.environ.pop("HOME")
        os.putenv("dataid", "another")
        os.chdir("/")
        os.umask(0)
        sys.path.insert(0, "/of/a/neighbour")
        threading.SEEN = True
        threading.Thread.start = subprocess.Popen.__init__ = None
    """),
    "a changed session": Behaviour("""
        spark = df.sparkSession
        spark.conf.set("spark.sql.ansi.enabled", "false")
        df.createOrReplaceTempView("seen")
        spark.udf.register("seen", lambda: 1)
        spark.catalog.clearCache()
        spark.stop()
    """),
    "memory without end": Behaviour(
        """
        with open("/proc/self/statm") as file:
            most = int(file.read().split()[0]) * resource.getpagesize() + (256 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        kept = []
        while True:
            kept.append(bytearray(64 << 20))
        """,
        "FAILED",
        "MemoryError",
    ),
    "a global view": Behaviour(
        'getattr(df, "create" + "GlobalTempView")("seen")',
        "FAILED",
        "createGlobalTempView() makes a view for other sessions",
    ),
    "a global view in the JVM": Behaviour(
        'df._jdf.createGlobalTempView("seen")', "FAILED", "the code makes global_temp.seen in Spark's catalog"
    ),
    "a view in the JVM": Behaviour(
        'df.sparkSession._jsparkSession.sql("CREATE VIEW seen AS SELECT 1 AS a")',
        "FAILED",
        "the code makes default.seen in Spark's catalog",
    ),
    "a function by a variable": Behaviour(
        """
        df.sparkSession.sql("DECLARE made = 'CREATE FUNCTION seen() RETURNS INT RETURN 1'")
        df.sparkSession.sql("EXECUTE IMMEDIATE made")
        """,
        "FAILED",
        "the code makes default.seen() in Spark's catalog",
    ),
    "a table by its writer": Behaviour(
        'df.writeTo("seen").create()', "FAILED", "writeTo() writes a table for other sessions"
    ),
    "a saved table": Behaviour(
        'df.write.saveAsTable("seen")', "FAILED", "saveAsTable() writes a table for other sessions"
    ),
    "a table in SQL": Behaviour(
        'df.sparkSession.sql("CREATE /* a */ TABLE seen (a int)")',
        "FAILED",
        "CREATE TABLE makes a name for other sessions",
    ),
    "a file for all": Behaviour(
        'df.sparkSession.sparkContext.addFile("/etc/hosts")', "FAILED", "addFile() gives the file to all runs"
    ),
    "a relative path to write": Behaviour(
        'df.write.csv("copies")', "FAILED", "a relative path; Spark's driver has no folder of its own"
    ),
    "a relative path": Behaviour('df.sparkSession.read.csv("rates")', "FAILED", "`rates` is a relative path"),
}
SEEN = {"caches a common source and changes it": "1 then 1", "reads the changed source": "2 2"}
NUMBERS = {number * 3 // 2: name for number, name in enumerate(BEHAVIOURS, 1)}  # two of them, an innocent, …
CHUNKS = max(NUMBERS) + 1
WAYS = {
    "drain": ("run", SLUG, "--drain", "--slots", "4"),
    "worker": ("worker", "--once", "--slots", "4"),
    "tick": ("tick",),
}


def code() -> str:
    """A function for each behaviour, and `run`, which calls that of its chunk."""
    functions = []
    for number, name in NUMBERS.items():
        lines = [line.removeprefix("        ") for line in BEHAVIOURS[name].code.strip("\n").splitlines()]
        body = "\n".join(f"    {line}".rstrip() for line in lines)
        functions.append(f"def behave_{number}(df):\n{body}\n    return df\n")
    last = "def run(df):\n    return globals().get(f\"behave_{os.environ['dataid']}\", innocent)(df)\n"
    return HEAD + "\n\n".join([*functions, last])


def rows(project: Project, dataid: str) -> list[dict[str, str]] | None:
    try:
        with open(project.folder / "data" / "totals" / f"{dataid}.csv", newline="") as file:
            return sorted(csv.DictReader(file), key=lambda row: row["order"])
    except FileNotFoundError:
        return None


def expected(number: int) -> list[dict[str, str]] | None:
    """None: nothing is published."""
    name = NUMBERS.get(number, "")
    if name and BEHAVIOURS[name].status != "COMPLETE":
        return None
    more = {"seen": SEEN.get(name, "[]")} if name in SEEN or not name else {}
    plain = (("1", "nut", number), ("2", "bolt", number * 10))
    return [{"order": order, "item": item, "amount": str(amount), **more} for order, item, amount in plain]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", WAYS if EVERY_FAULT else ["drain"])
def test_whatever_a_chunk_does_concerns_it_alone(sqlite_project: Project, way: str) -> None:
    project = pipeline(sqlite_project, code(), chunks=CHUNKS, path='"totals/{dataid}.csv"', settings="engine: spark")
    (project.folder / "rates").mkdir()
    (project.folder / "rates" / "part.csv").write_text("1\n")
    for _ in range(12):
        commands = [  # a tick runs one chunk after the other; several may run at once
            subprocess.Popen([DATAFLOW, *WAYS[way]], cwd=project.folder, env=project.env(), stdout=subprocess.DEVNULL)
            for _ in range(4 if way == "tick" else 1)
        ]
        assert {command.wait(600) for command in commands} <= {0, 1, 137}  # one chunk kills itself
        if "PENDING" not in states(project).values():
            break
    found = {dataid: (status, rows(project, dataid)) for dataid, status in states(project).items()}
    numbers = range(1, CHUNKS + 1)
    wanted = {
        str(number): ("COMPLETE" if expected(number) is not None else "FAILED", expected(number)) for number in numbers
    }
    told = {dataid: (NUMBERS.get(int(dataid)), messages(project, dataid)) for dataid in wanted}
    assert found == wanted, told
    for number, name in NUMBERS.items():
        assert BEHAVIOURS[name].message in messages(project, str(number))[-1], name
    assert not is_alive(int((project.folder / "daemon").read_text()))
    assert not (project.folder / "copies").exists()
    assert_output_is_whole(project)


def assert_output_is_whole(project: Project) -> None:
    logs = sorted((project.folder / ".dataflow" / "logs" / SLUG).iterdir(), key=lambda path: path.stat().st_size)
    assert logs[-1].stat().st_size == MEGABYTES * 1024 * 1024 + len("first\nlast\n")
    logs[-1].unlink()  # nobody needs so much of it any longer
    (log,) = [text for path in logs[:-1] if b"raw " in (text := path.read_bytes())]
    for part in (b"raw \xff\xfe bytes\n", b"direct \xff\n", b"from another process\n", b"to stderr, without an end"):
        assert part in log
    assert b"half a character \\ud800 in a thread\n" in log
    (kept,) = project.sql("SELECT output FROM transformation WHERE output LIKE '%half a character%'")
    assert "raw \N{REPLACEMENT CHARACTER}" in kept[0]
    assert "to stderr" in kept[0]
    (flood,) = project.sql("SELECT output FROM transformation WHERE output LIKE 'first%'")
    assert flood[0].endswith("last\n")
    assert len(flood[0]) < 100_000

"""Projects written for pandas: one Spark job, a task for each chunk, and whatever a chunk does stays its own."""

import json
import os
import subprocess
import sys
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas
import pytest
from pyspark.sql import SparkSession

from opendataflow.spark.pandas_engine import run_pandas
from opendataflow.spark.pandas_modules import project_texts
from opendataflow.spark.spec import ChunkSpec, Place
from opendataflow.spark.transformations import Code, read_code

MB = 1024 * 1024
PASS = "import pandas\ndef run(df):\n    return df\n"


def place(location: Path | str, *, name: str = "orders", **fields: Any) -> Place:
    suffix = Path(str(location)).suffix.removeprefix(".")
    known = {"format": suffix or "parquet", "options": {}, "schema": None}
    return Place(**{"datasetid": name, "location": str(location), **known, **fields})


def spec(home: Path, sources: list[Place], destination: Place, *, dataid: str = "1", runid: int = 1) -> ChunkSpec:
    return ChunkSpec(
        home=str(home),
        slug="clean",
        transformations=(),
        dataid=dataid,
        runid=runid,
        spark={},
        environment={"dataid": dataid},
        sources=tuple(sources),
        destination=destination,
    )


def codes(home: Path, *texts: str) -> list[Code]:
    folder = home / "pipelines" / "clean"
    folder.mkdir(parents=True, exist_ok=True)
    for number, text in enumerate(texts, 1):
        (folder / f"t{number}.py").write_text(text)
    return [read_code(str(home), "clean", f"t{number}") for number in range(1, len(texts) + 1)]


def run_one(spark: SparkSession, home: Path, source: Place, destination: Place, *texts: str) -> dict[str, Any]:
    (result,) = run_pandas(spark, [spec(home, [source], destination)], codes(home, *(texts or (PASS,))))
    return result


# What a project sees ----------------------------------------------------------------------------------------------
CSV = '﻿id,price,name,day,flag,note\n1,1.5,"a\n""b""",2013-01-01,True,\n2,,Zoë,2013-01-02,False,x\n'
FIRST = """\
import sys, subprocess, warnings
import pandas as pd
from shared.words import greeting
print("loading")
def run(df, other, stream=None):
    assert stream is None
    assert not any(name.startswith("opendataflow") for name in sys.modules), "executors may not have it"
    print(greeting, {name: str(dtype) for name, dtype in df.dtypes.items()})
    print("to stderr", file=sys.stderr)
    subprocess.run(["echo", "from a process"])
    warnings.warn("careful")
    other["seen"] = 1
    return df[df["price"].notna()]
"""
SECOND = """\
import os
import pandas as pd
def run(df, other):
    assert list(other.columns) == ["id", "seen"], "the first one's change is kept"
    return df.assign(dataid=os.environ["dataid"], when=pd.Timestamp("2013-01-01 05:00:00.123456789"))
"""


def test_a_project_in_pandas_runs_unchanged_and_spark_reads_what_it_wrote(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "words.py").write_text("greeting = 'hello'\n")
    (tmp_path / "a.csv").write_text(CSV)
    (tmp_path / "b.csv").write_text("id\n1\n")
    sources = [place(tmp_path / name) for name in ("a.csv", "b.csv", "b.csv")]
    out = tmp_path / "out" / "_runs" / "7"
    (result,) = run_pandas(
        spark, [spec(tmp_path, sources, place(out), dataid="2013-01-01", runid=7)], codes(tmp_path, FIRST, SECOND)
    )
    assert (result["error"], result["traceback"], result["runid"], result["rows"]) == (None, "", 7, 1)
    types = {name: str(dtype) for name, dtype in pandas.read_csv(tmp_path / "a.csv").dtypes.items()}
    first, second = result["steps"]
    assert first["output"].splitlines()[:4] == ["loading", f"hello {types}", "to stderr", "from a process"]
    assert "t1.py:11: UserWarning: careful" in first["output"]
    assert [(one["name"], one["position"], one["status"], one["rows"], one["error"]) for one in (first, second)] == [
        ("t1", 1, "DONE", 1, ""),
        ("t2", 2, "DONE", 1, ""),
    ]
    df = spark.read.parquet(str(out))
    assert result["schema"] == json.dumps({field.name: field.dataType.simpleString() for field in df.schema})
    assert df.schema.simpleString() == (
        "struct<id:bigint,price:double,name:string,day:string,flag:boolean,note:string,dataid:string,when:timestamp>"
    )
    (row,) = df.collect()
    assert row["name"] == 'a\n"b"'
    assert str(row["when"]) == "2013-01-01 05:00:00.123456"
    assert [name for name in os.listdir(out) if not name.startswith("part-")] == []


# What a chunk may do ----------------------------------------------------------------------------------------------
WILD = """\
import os, signal, subprocess, sys, time
import pandas as pd
def run(df):
    match os.environ["dataid"]:
        case "raise":
            raise ValueError("bad value")
        case "exit":
            sys.exit(0)
        case "_exit":
            os._exit(3)
        case "crash":
            print("before")
            os.kill(os.getpid(), signal.SIGSEGV)
        case "memory":
            df = pd.DataFrame({"x": bytes(400 * 1024 * 1024)}, index=[0])
        case "hang":
            subprocess.Popen(["sleep", "987654"])
            time.sleep(1000)
        case "none":
            return None
        case "series":
            return df["id"]
        case "flood":
            for number in range(100_000):
                print("line", number)
    return df
"""
ENDS = {
    "raise": "pipelines/clean/t1.py:6: ValueError: bad value",
    "exit": "pipelines/clean/t1.py:8: the code ended its interpreter: sys.exit(0)",
    "_exit": "pipelines/clean/t1.py: the code ended its interpreter: exit code 3",
    "crash": "pipelines/clean/t1.py:13: its process was ended by SIGSEGV",
    "memory": "pipelines/clean/t1.py:15: MemoryError: the task may take 300.0 MB; make the chunks smaller, ",
    "hang": "pipelines/clean/t1.py:18: not done after 4 s, and ended",
    "none": "pipelines/clean/t1.py:3: `run` returned None; end it with `return df`",
    "series": "pipelines/clean/t1.py:3: `run` returned a pandas.core.series.Series, not a pandas DataFrame; ",
}


def test_whatever_a_chunk_does_the_others_of_its_job_are_unharmed(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    kinds = ["good", *ENDS, "flood"]
    specs = [
        spec(tmp_path, [place(tmp_path / "a.csv")], place(tmp_path / "out" / kind), dataid=kind, runid=number)
        for number, kind in enumerate(kinds)
    ]
    results = run_pandas(spark, specs, codes(tmp_path, WILD, PASS), memory_limit=300 * MB, timeout_seconds=4)
    assert [result["runid"] for result in results] == list(range(len(kinds)))
    by_kind = dict(zip(kinds, results, strict=True))
    for kind, told in ENDS.items():
        result = by_kind[kind]
        first, second = result["steps"]
        assert result["error"].startswith(told), kind
        assert (first["status"], second["status"], result["rows"]) == ("ERROR", "PENDING", None)
        assert first["error"].splitlines()[-1].startswith(told)
        assert not (tmp_path / "out" / kind).exists()
    for kind in ("good", "flood"):
        assert (by_kind[kind]["error"], by_kind[kind]["rows"]) == (None, 1)
    assert by_kind["crash"]["steps"][0]["output"].startswith("before\nFatal Python error: Segmentation fault")
    flood = by_kind["flood"]["steps"][0]["output"]
    assert flood.startswith("line 0\nline 1\n")
    assert flood.endswith("line 99999\n")
    assert "characters left out" in flood
    assert len(flood) < 70_000
    assert by_kind["raise"]["traceback"].splitlines() == [
        "Traceback (your code only):",
        '  File "pipelines/clean/t1.py", line 6, in run',
        '    raise ValueError("bad value")',
    ]
    assert not running("sleep 987654")


def running(command: str) -> bool:
    """Whether a process of this command line is there (a moment is given to the kernel)."""
    wanted = command.replace(" ", "\0") + "\0"
    for _ in range(20):
        found = False
        for entry in Path("/proc").iterdir():
            try:
                found |= entry.name.isdigit() and (entry / "cmdline").read_text() == wanted
            except OSError:
                continue
        if not found:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import pandas\nimport no_such_thing\n", "pipelines/clean/t1.py:2: ModuleNotFoundError: No module named"),
        ("import pandas\nrun = 1\n", "pipelines/clean/t1.py:1: has no function `run(df)`"),
        ("def run(df, stream): return df\n", "pipelines/clean/t1.py:1: `stream` has no default"),
        ("def run(df, b): return df\n", "pipelines/clean/t1.py:1: `run` asks for 2 sources, and the pipeline has 1"),
        ("from shared import broken\n", "shared/broken.py:2: expected ':'"),
    ],
)
def test_code_that_cannot_be_called_is_its_steps_error(
    spark: SparkSession, tmp_path: Path, text: str, told: str
) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "broken.py").write_text("x = 1\ndef run(df)\n    return df\n")
    (tmp_path / "a.csv").write_text("id\n1\n")
    result = run_one(spark, tmp_path, place(tmp_path / "a.csv"), place(tmp_path / "out"), text)
    assert result["error"].startswith(told)
    assert result["steps"][0]["status"] == "ERROR"


SENT = """\
import json, sys
from opendataflow.spark.pandas_modules import make_importable
make_importable("/not/here", json.loads(sys.argv[1]))
from shared.words import greeting
import plain, shared.deep.below, json as real
print(greeting, plain.answer, shared.deep.below.__file__, hasattr(real, "loads"))
try:
    import broken
except ValueError:
    import traceback
    print(traceback.format_exc().splitlines()[-2].strip())
"""


def test_modules_of_the_project_are_imported_from_what_was_sent_where_the_project_is_not(tmp_path: Path) -> None:
    for path, text in {
        "shared/__init__.py": "",
        "shared/words.py": "greeting = 'hello'\n",
        "shared/deep/below.py": "",
        "plain.py": "answer = 42\n",
        "json.py": "raise ImportError('never instead of a library')\n",
        "broken.py": "raise ValueError\n",
        "venv/pyvenv.cfg": "",
        "venv/lib.py": "",
        ".git/hook.py": "",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    texts = project_texts(str(tmp_path))
    assert sorted(texts) == [
        "broken.py", "json.py", "plain.py", "shared/__init__.py", "shared/deep/below.py", "shared/words.py"
    ]  # fmt: skip
    done = subprocess.run([sys.executable, "-c", SENT, json.dumps(texts)], capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout == "hello 42 /not/here/shared/deep/below.py True\nraise ValueError\n"
    (tmp_path / "large.py").write_text("#" * 5 * MB)
    assert project_texts(str(tmp_path)) == {}


# Too large --------------------------------------------------------------------------------------------------------
def test_a_chunk_too_large_for_one_task_is_refused_before_it_is_read(spark: SparkSession, tmp_path: Path) -> None:
    with open(tmp_path / "a.csv", "wb") as file:
        file.truncate(200 * MB)  # reading it would say that it is no CSV
    chunk = spec(tmp_path, [place(tmp_path / "a.csv")], place(tmp_path / "out"))
    (result,) = run_pandas(spark, [chunk], codes(tmp_path, PASS), memory_limit=100 * MB)
    assert result["error"] == (
        "the chunk is too large for one pandas task: its sources have 200.0 MB, which need about 600.0 MB in memory, "
        "and a task has 100.0 MB (the limit that is set for it); make the chunks smaller, give tasks more memory "
        "(spark.conf: spark.executor.pyspark.memory), or write the pipeline for PySpark (`engine: spark`)"
    )
    assert result["steps"][0]["status"] == "PENDING"


# Files ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("format_", ["csv", "json", "parquet", "orc"])
def test_every_format_comes_back_from_spark_as_it_went(spark: SparkSession, tmp_path: Path, format_: str) -> None:
    make = (
        "import pandas as pd\n"
        "def run(df):\n"
        "    return pd.DataFrame({'n': [1, 2], 'x': [0.5, None], 's': ['Zoë', None]}, index=[5, 6])\n"
    )
    (tmp_path / "a.csv").write_text("id\n1\n")
    out = tmp_path / "out"
    result = run_one(spark, tmp_path, place(tmp_path / "a.csv"), place(out, format=format_), make)
    assert (result["error"], result["rows"]) == (None, 2)
    assert json.loads(result["schema"]) == {"n": "bigint", "x": "double", "s": "string"}
    reader = spark.read.options(header=True, inferSchema=True)
    rows = [tuple(row) for row in reader.format(format_).load(str(out)).select("n", "x", "s").collect()]
    assert sorted(rows) == [(1, 0.5, "Zoë"), (2, None, None)]
    # And once more through the engine, from the folder that it wrote.
    result = run_one(spark, tmp_path, place(out, format=format_), place(tmp_path / "again.csv", single_file=True))
    assert result["error"] is None
    assert (tmp_path / "again.csv").read_text() == "n,x,s\n1,0.5,Zoë\n2,,\n"


def test_text_options_and_several_chunks_are_read_as_the_dataset_says(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    out = tmp_path / "out.txt"
    result = run_one(
        spark, tmp_path, place(tmp_path / "a.txt", format="text"), place(out, format="text", single_file=True)
    )
    assert (result["error"], out.read_text()) == (None, "one\ntwo\n")

    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_bytes(f"{name};'ü;1'\n".encode("latin-1"))
    options = {"sep": ";", "header": False, "encoding": "latin-1", "quote": "'"}
    window = place(f"{tmp_path}/a.csv\n{tmp_path}/b.csv", format="csv", options=options)
    out = tmp_path / "both.csv"
    result = run_one(spark, tmp_path, window, place(out, options=options, single_file=True))
    assert (result["error"], out.read_bytes().decode("latin-1")) == (None, "a;'ü;1'\nb;'ü;1'\n")


DECLARED = {
    "small": "int",
    "maybe": "bigint",
    "flag": "boolean",
    "x": "double",
    "code": "string",
    "cost": "decimal(10,2)",
    "at": "timestamp",
    "day": "date",
}
TYPED = "small,maybe,flag,x,code,cost,at,day\n1,,true,1,007,1.10,2013-01-01T00:00:00Z,2013-01-01\n"


def test_a_declared_schema_decides_the_types(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(TYPED)
    show = "import pandas\ndef run(df):\n    print(list(map(str, df.dtypes)))\n    return df\n"
    out = tmp_path / "out"
    source = place(tmp_path / "a.csv", schema=DECLARED)
    result = run_one(spark, tmp_path, source, place(out, schema=DECLARED), show)
    assert result["error"] is None
    shown = "['int32', 'Int64', 'bool', 'float64', 'object', 'object', 'datetime64[ns, UTC]', 'object']\n"
    assert result["steps"][0]["output"] == shown
    seen = json.loads(result["schema"])
    assert seen == DECLARED | {"cost": seen["cost"]}
    (row,) = spark.read.parquet(str(out)).collect()
    assert tuple(row)[:6] == (1, None, True, 1.0, "007", Decimal("1.10"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("n,s\n1,a\nx,b\n", "orders: column 'n' is declared as int, but record 2 has 'x': "),
        ("n,s\n1.5,a\n", "orders: column 'n' is declared as int, but record 1 has '1.5': "),
        ("n\n1\n", "orders: column 's' is declared, but not there: "),
        ("n,s,new\n1,a,b\n", "orders: column 'new' is there, but not declared: "),
        ("n,s\n1,a\n1,2,3,4\n", "orders: FILE cannot be read as csv: Error tokenizing data. C error: Expected 2 "),
        ("", "orders: FILE cannot be read as csv: No columns to parse from file"),
        (None, "orders: FILE: No such file or directory"),
    ],
)
def test_a_source_that_cannot_be_read_is_told_with_file_and_column(
    spark: SparkSession, tmp_path: Path, text: str | None, told: str
) -> None:
    source = tmp_path / "a.csv"
    if text is not None:
        source.write_text(text)
    declared = {"n": "int", "s": "string"}
    result = run_one(spark, tmp_path, place(source, schema=declared), place(tmp_path / "out"))
    assert result["error"].startswith(told.replace("FILE", str(source)))
    assert str(source) in result["error"]
    assert result["steps"][0]["status"] == "PENDING"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ("{'m': [1, 'a']}", "orders: column 'm' holds int and str, and a parquet column holds one type; convert it, "),
        ("{'d': pd.to_timedelta([1])}", "orders: column 'd' is of type duration[ns], which Spark cannot read from "),
        ("[[1, 2]], columns=['a', 'a']", "orders: two columns of the result are named 'a'"),
    ],
)
def test_a_result_that_cannot_be_written_names_its_column(
    spark: SparkSession, tmp_path: Path, made: str, told: str
) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    make = f"import pandas as pd\ndef run(df):\n    return pd.DataFrame({made})\n"
    result = run_one(spark, tmp_path, place(tmp_path / "a.csv"), place(tmp_path / "out"), make)
    assert result["error"].startswith(told)
    assert (result["steps"][0]["status"], result["rows"]) == ("DONE", None)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_place_that_cannot_be_written_or_reached_is_named(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    blocked = tmp_path / "a.csv" / "out"
    result = run_one(spark, tmp_path, place(tmp_path / "a.csv"), place(blocked))
    assert result["error"] == f"orders: {blocked}/part-00000.parquet cannot be written: Not a directory"
    result = run_one(spark, tmp_path, place("s3a://bucket/a.csv"), place(tmp_path / "out"))
    assert result["error"].startswith("s3a://bucket/a.csv: the pandas engine reads and writes mounted file systems")
    assert run_pandas(spark, [], []) == []

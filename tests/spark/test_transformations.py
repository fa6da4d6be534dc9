"""Transformations: found by path, loaded by content, chained on the first DataFrame."""

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.connect import DataFrameQueryContext, SparkConnectGrpcException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.connect.proto import FetchErrorDetailsResponse

from opendataflow.spark.blame import blame
from opendataflow.spark.explain import explain, user_traceback
from opendataflow.spark.kept import Kept
from opendataflow.spark.steps import Steps, new_steps
from opendataflow.spark.transformations import (
    Code,
    Transformation,
    TransformationError,
    apply,
    engine_of,
    load_anew,
    read_code,
)


def transformation(home: Path, name: str, source: str) -> Transformation:
    file = home / "pipelines" / "clean" / f"{name}.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source)
    (loaded,) = load_anew([read_code(str(home), "clean", name)])
    return loaded


def rows(df: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in df.limit(100).collect())


def test_a_name_works_with_and_without_its_ending_and_never_leads_elsewhere(tmp_path: Path) -> None:
    transformation(tmp_path, "double", "def run(df):\n    return df\n")
    assert read_code(str(tmp_path), "clean", "double.py") == read_code(str(tmp_path), "clean", "double")
    for name in ("../clean/double", "/etc/passwd", ""):
        with pytest.raises(TransformationError, match="leads out of pipelines/clean/"):
            read_code(str(tmp_path), "clean", name)


def test_a_changed_file_is_a_new_module_even_at_the_same_time_and_size(tmp_path: Path) -> None:
    first = transformation(tmp_path, "answer", "def run(df):\n    return 1\n")
    seen = os.stat(first.code.path)
    second = transformation(tmp_path, "answer", "def run(df):\n    return 2\n")
    os.utime(second.code.path, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    assert (first.run(None), second.run(None)) == (1, 2)


def test_what_a_transformation_imports_is_never_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "common_one.py").write_text("answer = 1\n")
    (tmp_path / "common_two.py").write_text("from common_one import answer\n")
    source = "from common_two import answer\ndef run(df):\n    return answer\n"
    first = transformation(tmp_path, "imports", source)
    (tmp_path / "common_one.py").write_text("answer = 2\n")
    assert (first.run(None), transformation(tmp_path, "imports", source).run(None)) == (1, 2)


def test_a_library_in_c_that_is_not_installed_is_loaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `pip install --target` leaves it: such a library breaks when its parts in Python are loaded twice."""
    import _decimal

    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "quick").mkdir()
    (tmp_path / "quick" / "__init__.py").write_text("from quick import _core\nloads = []\n")
    (tmp_path / "quick" / "_core.py").write_text("")
    source = "import quick\ndef run(df):\n    quick.loads.append(df)\n    return quick.loads\n"
    first = transformation(tmp_path, "uses", source)
    sys.modules["quick._core"].__file__ = _decimal.__file__
    assert (first.run(1), transformation(tmp_path, "uses", source).run(2)) == ([1, 2], [1, 2])
    for name in ("quick", "quick._core"):
        del sys.modules[name]


def test_every_load_begins_with_nothing_of_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "kept_in").mkdir()  # a package without a file of its own
    (tmp_path / "kept_in" / "lists.py").write_text("seen = []\n")
    source = "from kept_in import lists\nown = []\ndef run(df):\n    lists.seen.append(df)\n    own.append(df)\n"
    source += "    return lists.seen, own\n"
    for day in ("Monday", "Tuesday"):
        assert transformation(tmp_path, "keeps", source).run(day) == ([day], [day])


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("x = 1\n", "pipelines/clean/bad.py:1: has no function `run(df)`"),
        ("run = 3\n", "pipelines/clean/bad.py:1: has no function `run(df)`"),
        (
            "\n\ndef run():\n    return 1\n",
            "pipelines/clean/bad.py:3: `run` takes no DataFrame; write `def run(df):`",
        ),
        ("\ndef run(df)\n    return df\n", "pipelines/clean/bad.py:2: expected ':'"),
        ("x = '\0'\n", "pipelines/clean/bad.py:1: source code"),
    ],
)
def test_a_module_without_a_proper_run_is_refused_with_file_and_line(tmp_path: Path, source: str, told: str) -> None:
    with pytest.raises(TransformationError) as refused:
        transformation(tmp_path, "bad", source)
    assert str(refused.value).startswith(told)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TransformationError, match=r"pipelines/clean/nowhere\.py: there is no transformation 'nowhere'"):
        read_code(str(tmp_path), "clean", "nowhere")


def test_each_gets_as_many_sources_as_it_asks_for_in_order(spark: SparkSession, tmp_path: Path) -> None:
    one, two, three = (spark.range(n, n + 1) for n in (10, 20, 30))
    add = transformation(tmp_path, "add", "def run(df, other):\n    return df.union(other)\n")
    alone = transformation(tmp_path, "alone", "def run(df, stream=None):\n    assert stream is None\n    return df\n")
    every = transformation(tmp_path, "every", "def run(df, *others):\n    return df.union(others[-1])\n")
    optional = transformation(tmp_path, "optional", "def run(df, a, b, c=None):\n    assert c is None\n    return df\n")
    assert rows(apply([add, alone, every, optional], [one, two, three])) == [(10,), (20,), (30,)]
    assert rows(apply([], [two, one])) == [(20,)]
    with pytest.raises(TransformationError, match=r"optional\.py:1: `run` asks for 3 sources, and the pipeline has 2"):
        apply([optional], [one, two])


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("df.select('id')", "`run` returned None; end it with `return df`"),
        ("return [1]", "`run` returned a list, not a Spark DataFrame"),
        (
            "import pandas; return pandas.DataFrame()",
            "`run` returned a pandas.core.frame.DataFrame, not a Spark DataFrame; use PySpark here, or write "
            "`engine: pandas` at the pipeline in project.yml",
        ),
        (
            "import pyspark.pandas as ps; return df.pandas_api()",
            "`run` returned a pyspark.pandas.frame.DataFrame, not a Spark DataFrame; end it with "
            "`return df.to_spark()`",
        ),
    ],
)
def test_what_is_not_a_dataframe_is_refused(spark: SparkSession, tmp_path: Path, body: str, told: str) -> None:
    step = transformation(tmp_path, "wrong", f"# a comment\ndef run(df):\n    {body}\n")
    with pytest.raises(TransformationError) as refused:
        apply([step], [spark.range(1)])
    assert str(refused.value) == f"pipelines/clean/wrong.py:2: {told}"


def test_errors_are_placed_at_the_users_line_also_when_spark_raises_them_late(
    spark: SparkSession, tmp_path: Path
) -> None:
    unknown = transformation(
        tmp_path, "unknown", "def run(df):\n    df = df.filter('id > 0')\n    return df.select('nope')\n"
    )
    with pytest.raises(Exception, match="nope") as early:
        apply([unknown], [spark.range(1)])
    told = explain(early.value, home=str(tmp_path))
    assert told.startswith("pipelines/clean/unknown.py:3: [UNRESOLVED_COLUMN")
    assert "\n" not in told
    trace = user_traceback(early.value, home=str(tmp_path))
    assert trace.splitlines()[1:] == [
        '  File "pipelines/clean/unknown.py", line 3, in run',
        "    return df.select('nope')",
    ]

    cast = (
        "from pyspark.sql import functions as F\n"
        "def run(df):\n"
        "    number = F.lit('x').cast('int')\n"
        "    return df.select(number)\n"
    )
    lazy = apply([transformation(tmp_path, "late", cast)], [spark.range(1)])
    with pytest.raises(Exception, match="CAST_INVALID_INPUT") as late:
        lazy.write.format("noop").mode("overwrite").save()
    assert explain(late.value, home=str(tmp_path)).startswith(
        "pipelines/clean/late.py:3: [CAST_INVALID_INPUT] The value 'x'"
    )


def test_stream_comes_last_and_has_a_default(tmp_path: Path) -> None:
    for source, told in (
        ("def run(df, stream):\n    return df\n", r"bad\.py:1: `stream` has no default, and batch passes none"),
        ("def run(df, stream=None, b=None):\n    return df\n", r"bad\.py:1: `stream` comes before `b`; write it last"),
        ("def run(df, *, mode):\n    return df\n", r"bad\.py:1: `mode` can only be passed by name"),
    ):
        with pytest.raises(TransformationError, match=told):
            transformation(tmp_path, "bad", source)
    assert transformation(tmp_path, "good", "def run(df, *, stream=None):\n    return df\n").most == 1


def test_the_engine_is_the_declared_one_or_the_one_that_the_imports_tell(tmp_path: Path) -> None:
    def code(name: str, first_line: str) -> Code:
        return transformation(tmp_path, name, f"{first_line}\ndef run(df):\n    return df\n").code

    pandas, spark, neither = code("p", "import pandas as pd"), code("s", "import pyspark"), code("n", "import json")
    assert engine_of([pandas, neither], None) == "pandas"
    assert engine_of([neither, spark], None) == engine_of([neither]) == engine_of([]) == "spark"
    assert engine_of([pandas], "spark") == "spark"
    assert engine_of([pandas, spark], "pandas") == "pandas"
    with pytest.raises(TransformationError) as mixed:
        engine_of([spark, pandas], None)
    assert str(mixed.value).startswith(
        "pipelines/clean/p.py is written for pandas and pipelines/clean/s.py for PySpark; one pipeline has one engine"
    )


# Steps ------------------------------------------------------------------------------------------------------------
@contextlib.contextmanager
def kept_output() -> Iterator[Kept]:
    """What the code prints."""
    kept, said = Kept(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            yield kept
        finally:
            kept.add(said.getvalue())


def chain(home: Path, *sources: str) -> tuple[list[Transformation], Steps, list[tuple[str, str]]]:
    """Transformations `t1`, `t2`, …, their steps, and a list that is told of each change."""
    changes: list[tuple[str, str]] = []
    loaded = [transformation(home, f"t{number}", source) for number, source in enumerate(sources, 1)]
    named = [(one.code.name, one.code.digest) for one in loaded]
    steps = new_steps(named, lambda step: changes.append((step.name, step.status)), keep_output=kept_output)
    return loaded, steps, changes


def test_steps_tell_how_far_each_got_and_what_it_printed(spark: SparkSession, tmp_path: Path) -> None:
    loaded, steps, changes = chain(
        tmp_path,
        "def run(df):\n    print('one')\n    return df\n",
        "def helper(df):\n    raise ValueError('no\\nsuch thing')\ndef run(df):\n    print('two')\n    helper(df)\n",
        "def run(df):\n    return df\n",
    )
    with pytest.raises(ValueError, match="such thing"):
        apply(loaded, [spark.range(1)], steps)
    assert changes == [("t1", "RUNNING"), ("t1", "DONE"), ("t2", "RUNNING"), ("t2", "ERROR")]
    first, second, third = steps.steps
    assert (first.output, first.error, second.output, third.status) == ("one\n", "", "two\n", "PENDING")
    assert second.error.splitlines() == [
        "Traceback (your code only):",
        '  File "pipelines/clean/t2.py", line 5, in run',
        "    helper(df)",
        '  File "pipelines/clean/t2.py", line 2, in helper',
        "    raise ValueError('no\\nsuch thing')",
        "pipelines/clean/t2.py:2: ValueError: no such thing",
    ]
    assert (first.rows, first.seconds) == (None, None)


def test_a_module_that_fails_to_load_is_its_own_steps_error(tmp_path: Path) -> None:
    folder = tmp_path / "pipelines" / "clean"
    folder.mkdir(parents=True)
    (folder / "good.py").write_text("print('loading')\ndef run(df):\n    return df\n")
    (folder / "bad.py").write_text("import json\nimport no_such_thing\n")
    codes = [read_code(str(tmp_path), "clean", name) for name in ("good", "bad")]
    steps = new_steps([(code.name, code.digest) for code in codes], keep_output=kept_output)
    with pytest.raises(ModuleNotFoundError):
        load_anew(codes, steps)
    good, bad = steps.steps
    assert (good.status, good.output) == ("PENDING", "loading\n")
    assert bad.status == "ERROR"
    assert bad.error.endswith("pipelines/clean/bad.py:2: ModuleNotFoundError: No module named 'no_such_thing'")


def test_exit_is_an_error_of_the_step_and_an_interrupt_passes(spark: SparkSession, tmp_path: Path) -> None:
    loaded, steps, _ = chain(tmp_path, "import sys\ndef run(df):\n    print('bye')\n    sys.exit(0)\n")
    with pytest.raises(TransformationError) as ended:
        apply(loaded, [spark.range(1)], steps)
    assert str(ended.value) == "pipelines/clean/t1.py:4: the code ended its interpreter: sys.exit(0)"
    assert (steps.steps[0].status, steps.steps[0].output) == ("ERROR", "bye\n")

    loaded, steps, _ = chain(tmp_path, "def run(df):\n    raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        apply(loaded, [spark.range(1)], steps)
    assert steps.steps[0].status == "RUNNING"


CAST = """\
from pyspark.sql import functions as F
def run(df):
    return df.withColumn('number', F.col('word').cast('int'))
"""
UDF = """\
from pyspark.sql import functions as F
@F.udf('int')
def parse(word):
    return int(word)
def run(df):
    return df.withColumn('number', parse('word'))
"""
SHARED_UDF = """\
from pyspark.sql import functions as F
from shared_words import number
def parse(word):
    return number(word)
def run(df):
    return df.withColumn('number', F.udf(parse, 'int')('word'))
"""
SQL = """\
def run(df):
    return df.selectExpr('word', 'cast(word as int) as number')
"""
PASS = "def run(df):\n    return df\n"


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (CAST, "pipelines/clean/t2.py:3: [CAST_INVALID_INPUT]"),
        (UDF, "pipelines/clean/t2.py:4: "),
        (SHARED_UDF, "pipelines/clean/t2.py:4: "),
        (SQL, "pipelines/clean/t2.py:2: [CAST_INVALID_INPUT]"),
    ],
)
def test_what_spark_raises_late_is_blamed_on_the_transformation_whose_line_it_was(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, told: str
) -> None:
    (tmp_path / "shared_words.py").write_text("def number(word):\n    return int(word)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "shared_words", raising=False)
    loaded, steps, changes = chain(tmp_path, PASS, source, PASS)
    files = [one.code.path for one in loaded]
    df = apply(loaded, [spark.createDataFrame([("x",)], ["word"])], steps)
    assert {step.status for step in steps.steps} == {"DONE"}
    with pytest.raises(PySparkException) as late:
        df.write.format("noop").mode("overwrite").save()
    assert blame(late.value, steps, str(tmp_path), files) is steps.steps[1]
    assert [step.status for step in steps.steps] == ["DONE", "ERROR", "PENDING"]
    *traceback, sentence = steps.steps[1].error.splitlines()
    assert sentence.startswith(told)
    assert [line.strip() for line in traceback[-1:]] == (["return int(word)"] if source in (UDF, SHARED_UDF) else [])
    assert changes[-2:] == [("t3", "PENDING"), ("t2", "ERROR")]
    assert blame(ValueError("another"), steps, str(tmp_path)) is steps.steps[1]
    assert steps.steps[1].error.splitlines()[-1].startswith(told)


def test_a_line_that_a_spark_connect_server_names_is_blamed_too(tmp_path: Path) -> None:
    _, steps, _ = chain(tmp_path, PASS)
    context = FetchErrorDetailsResponse.QueryContext(
        context_type=FetchErrorDetailsResponse.QueryContext.DATAFRAME, fragment="cast",
        call_site=f"{tmp_path}/pipelines/clean/t1.py:2",
    )  # fmt: skip
    error = SparkConnectGrpcException(
        "Cannot cast.", errorClass="CAST_INVALID_INPUT", contexts=[DataFrameQueryContext(context)],
        messageParameters={"expression": "'x'", "sourceType": '"STRING"', "targetType": '"INT"'},
    )  # fmt: skip
    assert blame(error, steps, str(tmp_path)) is steps.steps[0]
    assert steps.steps[0].error.startswith("pipelines/clean/t1.py:2: [CAST_INVALID_INPUT] The value 'x' cannot")


def test_what_no_transformation_caused_is_blamed_on_none(spark: SparkSession, tmp_path: Path) -> None:
    loaded, steps, _ = chain(tmp_path, PASS)
    bad = tmp_path / "bad.parquet"
    bad.write_bytes(b"PAR1 no parquet at all PAR1")
    df = apply(loaded, [spark.read.schema("a int").parquet(str(bad))], steps)
    with pytest.raises(Exception, match="FAILED_READ_FILE") as late:
        df.write.format("noop").mode("overwrite").save()
    assert blame(late.value, steps, str(tmp_path)) is None
    assert blame(ValueError("x"), steps, str(tmp_path)) is None
    assert steps.steps[0].status == "DONE"


def test_profile_gives_rows_and_seconds_of_each_step_and_finds_its_errors_there(
    spark: SparkSession, tmp_path: Path
) -> None:
    half = "def run(df):\n    return df.filter('id % 2 = 0')\n"
    loaded, steps, _ = chain(tmp_path, half, PASS, "def run(df):\n    return df.limit(1)\n")
    df = apply(loaded, [spark.range(10)], steps, profile=True)
    assert rows(df) == [(0,)]
    assert [step.rows for step in steps.steps] == [5, 5, 1]
    assert all(step.seconds is not None and step.seconds >= 0 for step in steps.steps)
    assert df.is_cached
    df.unpersist()

    loaded, steps, _ = chain(tmp_path, PASS, CAST, PASS)
    with pytest.raises(PySparkException):
        apply(loaded, [spark.createDataFrame([("x",)], ["word"])], steps, profile=True)
    assert [step.status for step in steps.steps] == ["DONE", "ERROR", "PENDING"]
    spark.catalog.clearCache()


# The chunk's session ----------------------------------------------------------------------------------------------

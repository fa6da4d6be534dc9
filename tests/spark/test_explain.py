"""Errors of Spark in plain words, attributed to the user's line, also when Spark raises them late."""

import importlib.util
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.connect import AnalysisException, PythonException, SparkConnectGrpcException
from pyspark.sql import DataFrame, SparkSession

from opendataflow.spark import connect
from opendataflow.spark.explain import explain, late_place
from opendataflow.spark.spark_errors import causes, message

WORDS = {
    # code → what is said; the failing line is always line 6
    'return df.withColumn(\n        "n", F.col("s").cast("int"))': (
        "[CAST_INVALID_INPUT] The value 'abc' cannot be cast to INT; `try_cast` makes null of what does not fit"
    ),
    'pass\n    return df.selectExpr("cast(s as int) n")': "[CAST_INVALID_INPUT] The value 'abc' cannot be cast to INT",
    'pass\n    return df.select("amuont")': "[UNRESOLVED_COLUMN] there is no column `amuont`; the nearest are `s`, `z`",
    "pass\n    return df.select(F.lit(1) / F.col('z'))": "[DIVIDE_BY_ZERO] Division by zero.",
    "pass\n    return df.select(F.element_at(F.array('z'), 5))": (
        "[INVALID_ARRAY_INDEX_IN_ELEMENT_AT] The index 5 is out of bounds."
    ),
    'pass\n    return df.sparkSession.read.parquet("/gone/x")': "[PATH_NOT_FOUND] there is no file or folder /gone/x",
    'fail = F.udf(lambda _x:\n        {}["nope"])\n    return df.select(fail("s"))': "KeyError: 'nope'",
}


@pytest.fixture
def transform(tmp_path: Path) -> Callable[[str], tuple[Path, Callable[[DataFrame], DataFrame]]]:
    def make(code: str) -> tuple[Path, Callable[[DataFrame], DataFrame]]:
        file = tmp_path / "pipelines" / "p" / "t.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"from pyspark.sql import functions as F\n\n\ndef run(df):\n    {code}\n")
        spec = importlib.util.spec_from_file_location("t_explained", file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return file, module.run

    return make


@pytest.mark.parametrize("code", list(WORDS))
def test_frequent_errors_are_told_in_plain_words_with_the_line_that_made_them(
    spark: SparkSession,
    tmp_path: Path,
    transform: Callable[[str], tuple[Path, Callable[[DataFrame], DataFrame]]],
    code: str,
) -> None:
    file, run = transform(code)
    df = spark.createDataFrame([("abc", 0)], "s string, z int")
    with pytest.raises(Exception) as error:  # noqa: PT011  whatever Spark raises
        run(df).write.parquet(str(tmp_path / "never"))
    told = explain(error.value, home=str(tmp_path), files=[str(file)])
    assert told.startswith(f"pipelines/p/t.py:6: {WORDS[code]}"), told
    assert "SQLSTATE" not in told
    assert late_place(error.value, str(tmp_path), [str(file)]) == (str(file), 6)


def test_a_place_that_cannot_be_known_is_not_guessed(
    spark: SparkSession,
    tmp_path: Path,
    transform: Callable[[str], tuple[Path, Callable[[DataFrame], DataFrame]]],
) -> None:
    code = "df = df.withColumn('a', F.element_at(F.array('z'), 1))\n    return df.select(F.element_at(F.array('z'), 5))"
    file, run = transform(code)
    df = spark.createDataFrame([("abc", 0)], "s string, z int")
    with pytest.raises(Exception, match="INVALID_ARRAY_INDEX") as error:
        run(df).write.parquet(str(tmp_path / "never"))
    assert late_place(error.value, str(tmp_path), [str(file)]) is None, "either line may be the one"
    assert late_place(ValueError("no Spark"), str(tmp_path)) is None


def test_a_python_worker_that_dies_is_told_as_that(
    spark: SparkSession,
    tmp_path: Path,
    transform: Callable[[str], tuple[Path, Callable[[DataFrame], DataFrame]]],
) -> None:
    _, run = transform(
        textwrap.dedent("""\
        import os
            end = F.udf(lambda _x: os._exit(3))
            return df.select(end("s"))""")
    )
    with pytest.raises(Exception, match="exited unexpectedly") as error:
        run(spark.createDataFrame([("abc",)], "s string")).write.parquet(str(tmp_path / "never"))
    assert explain(error.value, home=str(tmp_path)).startswith("a Python worker died: ")


def test_an_inner_cause_on_a_spark_connect_server_is_told_in_the_same_words() -> None:
    """The server sends conditions and parameters of the outermost error alone, and the others as Java prints them."""
    cast = (
        "org.apache.spark.SparkException\n\tat org.apache.spark.x(Y.scala:1)\nCaused by: org.apache.spark."
        'SparkNumberFormatException: [CAST_INVALID_INPUT] The value \'x\' of the type "STRING" cannot be cast to "INT" '
        "because it is malformed. SQLSTATE: 22018\n\tat org.apache.spark.z(Z.scala:2)\n"
    )
    read = (
        "Caused by: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file "
        "file:///in/a%20b.csv.  SQLSTATE: KD001\nCaused by: java.lang.RuntimeException: it is not a Parquet file\n"
    )
    for stack, told in (
        (cast, "[CAST_INVALID_INPUT] The value 'x' cannot be cast to INT; `try_cast` makes null of what does not fit"),
        (read, "/in/a b.csv cannot be read: it is not a Parquet file"),
        ("Caused by: java.io.IOException: No space left on device", "no space left on device while writing /out/7"),
    ):
        error = SparkConnectGrpcException(
            "[TASK_WRITE_FAILED] Task failed while writing rows to file:/out/7. SQLSTATE: 58030",
            errorClass="TASK_WRITE_FAILED", messageParameters={"path": "file:/out/7"}, server_stacktrace=stack,
        )  # fmt: skip
        assert message(error) == told
        assert causes(error)[0].is_a("TASK_WRITE_FAILED")


def test_memory_that_runs_out_and_executors_that_are_lost_are_told_as_that() -> None:
    class Java:
        """A Java exception of a cluster, which is not here."""

        def __init__(self, message: str) -> None:
            self.getMessage, self.getCause, self.toString = lambda: message, lambda: None, lambda: message

    class FromJava(Exception):
        def __init__(self, message: str) -> None:
            super().__init__(message)
            self.java_exception = Java(message)

    stage = "Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times, most recent failure: Lost task 0.3"
    lost = (
        f"{stage}: ExecutorLostFailure (executor 3 exited caused by one of the running tasks) Reason: Container killed"
    )
    assert explain(FromJava(lost), home="/p") == "executor 3 was lost: Container killed"
    memory = f"{stage} in stage 1.0: java.lang.OutOfMemoryError: Java heap space"
    assert explain(FromJava(memory), home="/p").startswith("Spark ran out of memory; raise `spark.driver.memory`")


def test_what_a_python_worker_raised_is_told_also_where_spark_connect_adds_a_state_below_it(tmp_path: Path) -> None:
    said = "Traceback (most recent call last):\n  File x\nModuleNotFoundError: No module named 'shop'\n SQLSTATE: 38000"
    assert explain(PySparkException(message=said), home=str(tmp_path)) == "ModuleNotFoundError: No module named 'shop'"


def test_a_connect_server_is_lost_by_what_it_reports_and_not_by_what_a_function_raised() -> None:
    words = "failed to connect to all addresses; StatusCode.UNAVAILABLE"
    raised = PythonException(f"An exception was thrown from the Python worker.\nRuntimeError: {words}")
    assert not connect.is_lost(raised), "the function called a server of its own"
    refused = AnalysisException(words, errorClass="UNRESOLVED_COLUMN.WITHOUT_SUGGESTION", messageParameters={})
    assert not connect.is_lost(refused)
    assert connect.is_lost(SparkConnectGrpcException(words))
    closed = SparkConnectGrpcException("x", errorClass="INVALID_HANDLE.SESSION_CLOSED", messageParameters={})
    assert connect.is_lost(closed)

"""Transformations: found by path, loaded by content, chained on the first DataFrame."""

import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from opendataflow.spark.explain import explain, user_traceback
from opendataflow.spark.transformations import Transformation, TransformationError, apply, load, read_code


def transformation(home: Path, name: str, source: str) -> Transformation:
    file = home / "pipelines" / "clean" / f"{name}.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source)
    return load(read_code(str(home), "clean", name))


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
    assert load(read_code(str(tmp_path), "clean", "answer")).run is second.run


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

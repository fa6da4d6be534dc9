"""`dataflow check-project`: everything that is wrong at once, and nothing of the project is run."""

from pathlib import Path

import pytest

from opendataflow.project.check import Problem, check_project
from opendataflow.project.inspect_code import find_engine
from opendataflow.project.new_project import make_project

GOOD = """\
expected_inputs = [[{"a": 1}], [{"b": 2}]]
expected_output = [{"a": 1, "b": 2}]


def run(df, df2, stream=None):
    return df.crossJoin(df2)
"""


def project(folder: Path, *, code: str | None = GOOD, keys: str = "", sources: str = "[a, b]") -> Path:
    """A project with one pipeline of one transformation."""
    text = f"name: x\npipelines:\n  - slug: p\n    sources: {sources}\n    destination: c\n    transformations: [t]\n"
    write(folder, "project.yml", text + keys)
    for name in ("a", "b"):
        write(folder, f"sources/{name}.csv", f"{name}\n1\n")
    if code is not None:
        write(folder, "pipelines/p/t.py", code)
    return folder


def write(folder: Path, path: str, text: str) -> None:
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def found(folder: Path) -> list[tuple[str, str, int, str]]:
    return [(one.severity, one.file, one.line, one.message) for one in check_project(str(folder))]


# Right ----------------------------------------------------------------------------------------------------------------
def test_a_good_project_has_nothing_wrong(tmp_path: Path) -> None:
    assert check_project(str(project(tmp_path))) == []


@pytest.mark.parametrize("engine", ["spark", "pandas"])
def test_a_new_project_has_nothing_wrong(tmp_path: Path, engine: str) -> None:
    make_project(str(tmp_path / "new"), engine=engine)
    assert check_project(str(tmp_path / "new")) == []


def test_no_code_of_the_project_is_run(tmp_path: Path) -> None:
    mark = tmp_path / "it was run"
    project(tmp_path, code=f"open({str(mark)!r}, 'w')\n{GOOD}")
    assert check_project(str(tmp_path)) == []
    assert not mark.exists()


def test_what_the_text_does_not_tell_is_no_problem(tmp_path: Path) -> None:
    assert check_project(str(project(tmp_path, code="from shared import *\n"))) == []
    assert found(project(tmp_path, code="from shared import run, expected_inputs, expected_output\n")) == []
    assert found(project(tmp_path, code=GOOD.replace("df, df2, stream=None", "*frames"))) == []


# Transformations ------------------------------------------------------------------------------------------------------
SIGNATURE = "def run(df, df2, stream=None):"
CODE = {
    "a syntax error": (GOOD + "def broken(:\n", "error", 7, "is no Python: "),
    "a NUL": (GOOD + "\0", "error", 1, "is no Python: "),
    "no run": (GOOD.replace("def run", "def ran"), "error", 1, "has no function `run`"),
    "no parameter": (GOOD.replace(SIGNATURE, "def run():"), "error", 5, "`run` takes no DataFrame"),
    "only stream": (GOOD.replace(SIGNATURE, "def run(stream=None):"), "error", 5, "`run` takes no DataFrame"),
    "more sources than there are": (
        GOOD.replace(SIGNATURE, "def run(a, b, c):").replace("[{\"b\": 2}]]", "[{\"b\": 2}], []]"),
        "error", 5, "`run` asks for 3 sources, and pipeline 'p' has 2"),
    "stream without a default": (
        GOOD.replace("stream=None", "stream"), "error", 5, "`stream` has no default, and a batch gives none"),
    "stream that is not last": (
        GOOD.replace("df2, stream=None", "stream=None, df2=None"), "error", 5, "`stream` is not the last parameter"),
    "a parameter by name": (
        GOOD.replace("df2,", "df2, *, limit,"), "error", 5, "`run` needs limit by name, which nothing gives"),
    "async": (GOOD.replace("def run", "async def run"), "error", 5, "`run` is async"),
    "a generator": (GOOD.replace("return", "yield"), "error", 5, "`run` yields, so it is a generator"),
    "no return": (GOOD.replace("return df", "df"), "error", 5, "`run` returns nothing"),
    "a return of an inner function only": (
        GOOD.replace("return df", "def inner():\n        return 1\n    df"), "error", 5, "`run` returns nothing"),
    "no expected inputs": (
        GOOD.replace("expected_inputs", "inputs"), "warning", 5, "has no `expected_inputs`"),
    "no expected output": (GOOD.replace("expected_output", "output"), "warning", 5, "has no `expected_output`"),
    "too few expected inputs": (
        GOOD.replace("[[{\"a\": 1}], [{\"b\": 2}]]", "[{\"a\": 1}, {\"b\": 2}]"),
        "error", 1, "`expected_inputs` has 1 inputs, and `run` asks for 2"),
    "too many expected inputs": (
        GOOD.replace("[{\"b\": 2}]]", "[{\"b\": 2}], []]"),
        "warning", 1, "`expected_inputs` has 3 inputs, and `run` takes 2"),
    "both libraries": (
        f"import pandas\nimport pyspark\n{GOOD}", "warning", 2,
        "imports both pandas and pyspark, so it gets Spark DataFrames"),
    "a global view": (
        GOOD.replace("    return", "    df.createOrReplaceGlobalTempView('x')\n    return"), "error", 6,
        "createOrReplaceGlobalTempView() makes a view for other sessions"),
    "a saved table": (
        GOOD.replace("    return", "    df.write.mode('append').saveAsTable('x')\n    return"), "error", 6,
        "saveAsTable() writes a table for other sessions"),
    "a file for all runs": (
        GOOD.replace("    return", "    df.sparkSession.sparkContext.addPyFile('x')\n    return"), "error", 6,
        "addPyFile() gives the file to all runs"),
    "a table in SQL": (
        GOOD.replace("    return", "    df.sparkSession.sql(f'CREATE TABLE {df2} (a int)')\n    return"), "error", 6,
        "CREATE TABLE makes a name for other sessions"),
    "pandas without its import": (
        GOOD.replace("    return", "    df['c'] = 1\n    return"), "warning", 6,
        "sets a column as only pandas can, but imports neither pandas nor pyspark, so it gets Spark's"),
}  # fmt: skip


@pytest.mark.parametrize(("code", "severity", "line", "message"), CODE.values(), ids=CODE)
def test_what_is_wrong_with_a_transformation_is_found_with_its_line(
    tmp_path: Path, code: str, severity: str, line: int, message: str
) -> None:
    (one,) = found(project(tmp_path, code=code))
    assert one[:3] == (severity, "pipelines/p/t.py", line)
    assert one[3].startswith(message)


def test_a_missing_transformation_is_found_with_the_nearest_name(tmp_path: Path) -> None:
    write(project(tmp_path, code=None), "pipelines/p/tt.py", GOOD)
    missing, unused = check_project(str(tmp_path))
    assert missing == Problem(
        severity="error", file="project.yml", line=6, message="there is no transformation pipelines/p/t.py",
        next_step="did you mean 'tt'?",
    )  # fmt: skip
    assert (unused.severity, unused.file) == ("warning", "pipelines/p/tt.py")
    assert unused.message == "is never used: its pipeline does not name it"


def test_code_of_a_pipeline_that_does_not_exist_is_found(tmp_path: Path) -> None:
    write(project(tmp_path), "pipelines/old/t.py", GOOD)
    write(tmp_path, "pipelines/p/_shared.py", "x = 1\n")
    assert found(tmp_path) == [("warning", "pipelines/old/t.py", 1, "is never used: there is no pipeline 'old'")]


# Engines --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "engine"),
    [
        ("import pandas as pd", "pandas"),
        ("from pandas import DataFrame", "pandas"),
        ("import pandas.api.types", "pandas"),
        ("import pyspark", "spark"),
        ("from pyspark.sql import functions as F\nimport pandas as pd", "spark"),
        ("try:\n    import pandas\nexcept ImportError:\n    pass", "pandas"),
        ("if True:\n    import pyspark", "spark"),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pyspark\nimport pandas", "pandas"),
        ("def run(df):\n    import pandas\n    return df", None),
        ("from .pandas import x", None),
        ("import pandas_profiling", None),
        ("x = 'import pandas'", None),
        ("import pandas as", None),
        ("\0", None),
        ("", None),
    ],
)
def test_an_engine_is_recognised_by_what_the_module_imports(text: str, engine: str | None) -> None:
    assert find_engine(text) == engine


@pytest.mark.parametrize(("declared", "imported"), [("spark", "pandas"), ("pandas", "pyspark")])
def test_code_for_another_engine_than_the_declared_one_is_found(tmp_path: Path, declared: str, imported: str) -> None:
    project(tmp_path, code=f"\nimport {imported}\n{GOOD}", keys=f"    engine: {declared}\n")
    written_for = "spark" if imported == "pyspark" else imported
    told = f"is written for {written_for}, and project.yml says `engine: {declared}`"
    assert found(tmp_path) == [("error", "pipelines/p/t.py", 2, told)]


def test_one_pipeline_for_two_engines_is_found(tmp_path: Path) -> None:
    project(tmp_path, code=f"import pandas\n{GOOD}")
    write(tmp_path, "pipelines/p/u.py", f"import pyspark\n{GOOD}")
    text = (tmp_path / "project.yml").read_text().replace("[t]", "[t, u]")
    write(tmp_path, "project.yml", text)
    told = "pipelines/p/u.py is written for Spark, and pipelines/p/t.py for pandas"
    assert found(tmp_path) == [("error", "project.yml", 3, told)]


# project.yml against the folder ---------------------------------------------------------------------------------------
def test_a_missing_source_is_found_with_the_nearest_name(tmp_path: Path) -> None:
    project(tmp_path, sources="[a, bb.csv]")
    (one,) = check_project(str(tmp_path))
    assert (one.file, one.line, one.message) == (
        "project.yml", 4, "source 'bb': sources/bb.csv is not there",
    )  # fmt: skip
    assert one.next_step == "did you mean 'b'?"
    (tmp_path / "sources" / "b.csv").unlink()
    (one,) = check_project(str(tmp_path))
    assert one.next_step == "put the file there, or declare 'bb' under `datasets:`"


def test_a_declared_source_may_still_be_on_its_way(tmp_path: Path) -> None:
    project(tmp_path, sources="[a, later]", keys="datasets: {later: {path: later.csv, partitions: none}}\n")
    assert found(tmp_path) == []


def test_a_dataset_that_pipelines_cannot_use_is_found(tmp_path: Path) -> None:
    project(tmp_path, sources="[a, crm]", keys="datasets: {crm: {hostname: db1, partitions: none}}\n")
    assert found(tmp_path) == [("error", "project.yml", 3, "pipeline 'p' uses 'crm', which has no path")]


def test_scripts_that_cannot_run_are_found(tmp_path: Path) -> None:
    project(
        tmp_path,
        keys="datasets: {x: {}, y: {}}\njobs:\n  gone: {script: gone.sh, outputs: [x]}\n"
        "  plain: {script: plain.sh, outputs: [y]}\n",
    )
    write(tmp_path, "plain.sh", "#!/bin/sh\n")
    assert found(tmp_path) == [
        ("error", "project.yml", 9, "there is no script gone.sh"),
        ("error", "project.yml", 10, "the script plain.sh is not executable"),
    ]


def test_everything_is_told_at_once(tmp_path: Path) -> None:
    write(
        tmp_path,
        "project.yml",
        """\
name: x
datasets:
  one: {formt: csv}
pipelines:
  - {slug: p, sources: [gone, a], destination: [c], transformations: [t, missing]}
  - {slug: q, sources: [z], destination: z2, transformations: [broken], frequency: 7m}
  - {slug: q, sources: [z2], destination: z3}
""",
    )
    write(tmp_path, "pipelines/p/t.py", GOOD.replace("return df", "df"))
    write(tmp_path, "pipelines/q/broken.py", "def run(df)\n")
    write(tmp_path, "pipelines/q/unused.py", GOOD)
    told = [(severity, f"{file}:{line}") for severity, file, line, _ in found(tmp_path)]
    assert told == [
        ("error", "project.yml:3"),  # formt
        ("error", "project.yml:5"),  # two destinations
        ("error", "project.yml:5"),  # no missing.py
        ("error", "project.yml:6"),  # 7m
        ("error", "project.yml:6"),  # no sources/z.csv
        ("error", "project.yml:7"),  # q twice
        ("error", "pipelines/p/t.py:5"),  # returns nothing
        ("error", "pipelines/q/broken.py:1"),
        ("warning", "pipelines/q/unused.py:1"),
    ]
    assert all(one.next_step for one in check_project(str(tmp_path)))


@pytest.mark.parametrize("text", ["", "a: [\n", "name: x\npipelines: {}\n", "name: x\npipelines: [1, {slug: [a]}]\n"])
def test_a_file_that_is_hardly_a_project_is_told_with_its_line(tmp_path: Path, text: str) -> None:
    write(tmp_path, "project.yml", text)
    problems = check_project(str(tmp_path))
    assert problems
    assert all(one.severity == "error" and one.file == "project.yml" and one.line >= 1 for one in problems)
    assert not any(str(tmp_path) in one.message for one in problems)


def test_another_environment_can_be_looked_at(tmp_path: Path) -> None:
    project(tmp_path, keys="environments: {dev: {}, prod: {root: data}}\n")
    assert check_project(str(tmp_path)) == []
    assert [one.message for one in check_project(str(tmp_path), "prod")] == [
        "source 'a': data/sources/a.csv is not there",
        "source 'b': data/sources/b.csv is not there",
    ]
    (one,) = check_project(str(tmp_path), "test")
    assert one.message == "environments: there is no environment 'test'; known are dev, prod"

"""The files that start first, and those that share a process, are files that there are."""

import re

from support.order import IN_PROCESS, LONGEST_FIRST, SOME_IN_PROCESS, TESTS, group_of

USES_SPARK = re.compile(r"^(?:async )?def (test_\w+)\([^)]*\bspark: SparkSession", flags=re.MULTILINE)


def test_the_files_that_take_longest_are_there_once_each() -> None:
    assert [name for name in LONGEST_FIRST if not (TESTS / name).is_file()] == []
    assert len(set(LONGEST_FIRST)) == len(LONGEST_FIRST)


def test_whatever_uses_spark_in_its_process_is_in_a_group() -> None:
    named = [name for group in IN_PROCESS for name in group]
    assert len(set(named)) == len(named)
    assert [name for name in named if not (TESTS / name).is_file()] == []
    for name in SOME_IN_PROCESS:
        file, _, test = name.partition("::")
        assert test in USES_SPARK.findall((TESTS / file).read_text())
    for file in sorted((TESTS / "spark").glob("test_*.py")):
        for test in USES_SPARK.findall(file.read_text()):
            nodeid = f"tests/spark/{file.name}::{test}"
            assert group_of(nodeid).startswith("Spark "), nodeid


def test_a_group_goes_to_one_process_and_other_files_go_alone() -> None:
    assert group_of("tests/spark/test_together.py::test_x[a::b]") == group_of("tests/spark/test_files.py::test_y")
    assert group_of("tests/spark/test_together.py::test_x") != group_of("tests/spark/test_sql_read.py::test_y")
    assert group_of("tests/unit/test_rows.py::test_z") == "unit/test_rows.py"

"""What a run's reads carry where runs share a cache."""

from typing import Any

import pytest

from opendataflow.spark.shared_state import RUN_OPTION, reader_of_run


@pytest.mark.parametrize("kind", ["csv", "jdbc", "JDBC"])
def test_a_read_from_a_server_carries_its_run_and_one_through_jdbc_carries_nothing_that_a_driver_would_refuse(
    kind: str,
) -> None:
    from pyspark.sql.connect.readwriter import DataFrameReader

    session: Any = None
    options = reader_of_run(DataFrameReader, 7)(session).option("a", "b").format(kind)._options
    assert options == ({"a": "b"} if kind.lower() == "jdbc" else {"a": "b", RUN_OPTION: "7"})

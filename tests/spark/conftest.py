"""One Spark session for all tests that do not go through the installed command."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from opendataflow.spark.jvm import end_process, find_process
from opendataflow.spark.scratch import scratch_folder
from opendataflow.spark.session import start_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    settings = {"master": "local[2]", "conf": {"spark.sql.shuffle.partitions": 2}}  # for a handful of rows
    with scratch_folder() as scratch:
        session = start_session(settings, name="tests", scratch=scratch)
        process = find_process()
        yield session
        session.stop()
        end_process(process)

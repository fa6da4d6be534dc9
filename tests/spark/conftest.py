"""One Spark session for all tests that do not go through the installed command."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from opendataflow.spark.jvm import end_process, find_process
from opendataflow.spark.scratch import scratch_folder
from opendataflow.spark.session import start_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with scratch_folder() as scratch:
        session = start_session({"master": "local[2]"}, name="tests", scratch=scratch)
        process = find_process()
        yield session
        session.stop()
        end_process(process)

"""A chunk's rows as Parquet files in a bucket, where BigQuery loads them from: its driver takes no rows itself."""

import contextlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession

from opendataflow.errors import JobFailed
from opendataflow.spark.files_local import data_files
from opendataflow.spark.files_read import read_chunk
from opendataflow.spark.files_remote import Way, is_remote, way_to
from opendataflow.spark.files_write import write_chunk
from opendataflow.spark.scratch import scratch_folder
from opendataflow.spark.spec import Place
from opendataflow.storage.buckets import files


class StagedFiles:
    """The files of one attempt. Nothing of them is left once they are removed."""

    def __init__(self, datasetid: str, location: str) -> None:
        self._there = Place(datasetid=datasetid, location=location, format="parquet", options={}, schema=None)
        self._here = self._there  # a copy on this machine, where there is one
        self._rooms = contextlib.ExitStack()

    @property
    def pattern(self) -> str:
        """All of them, as BigQuery is told."""
        return f"{self._there.location}/*.parquet"

    def write(self, df: DataFrame, sources: Sequence[Place]) -> int:
        """Write all rows; how many there are. Raises JobFailed in one sentence."""
        is_copied = is_remote(self._there) and way_to(df.sparkSession, self._there) is Way.COPY
        if is_copied:
            folder = self._rooms.enter_context(scratch_folder())
            self._here = replace(self._there, location=os.path.join(folder, "staged"))
        try:
            rows = write_chunk(df, self._here, sources).rows
            if is_copied:
                there = self._there.location
                files.put_all((path, f"{there}/{os.path.basename(path)}") for path in data_files(self._here.location))
        except OSError as error:
            told = f"{error.filename or self._there.location} cannot be written: {error.strerror or error}"
            raise JobFailed(f"{self._there.datasetid}: {told}") from error
        if rows is None:
            raise JobFailed(f"{self._there.datasetid}: the files in {self._there.location} do not tell their rows")
        return rows

    def read(self, spark: SparkSession) -> DataFrame:
        return read_chunk(spark, self._here)

    def remove(self) -> None:
        """Remove them; a bucket that cannot be reached keeps them."""
        location = self._there.location
        with contextlib.suppress(OSError):
            if is_remote(self._there):
                files.remove(location)
            else:
                shutil.rmtree(location)
        self._rooms.close()

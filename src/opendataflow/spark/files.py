"""A chunk through Spark: read it, write it, and say what was written without reading it again."""

from pyspark.sql import DataFrame, SparkSession

from opendataflow.spark import files_read
from opendataflow.spark.files_bad import explain_read_failure
from opendataflow.spark.files_read import ddl
from opendataflow.spark.files_write import Written, find_rows, schema_json, write_chunk
from opendataflow.spark.spec import Place

__all__ = ["Written", "ddl", "explain_read_failure", "find_rows", "read_chunk", "schema_json", "write_chunk"]


def read_chunk(spark: SparkSession, place: Place) -> DataFrame:
    """The chunk, from its files or from its database; raises JobFailed for what is seen without reading the rows."""
    if place.database is None:
        return files_read.read_chunk(spark, place)
    from opendataflow.spark.sql_read import read_table

    return read_table(spark, place)

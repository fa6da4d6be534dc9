"""Sales of the day by city."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f


def run(orders: DataFrame) -> DataFrame:
    return orders.groupBy("city").agg(f.count("*").alias("orders"), f.round(f.sum("amount"), 2).alias("amount"))

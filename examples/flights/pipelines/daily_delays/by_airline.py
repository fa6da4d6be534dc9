"""A row for each airline: how many flights, how late they left, in the mean and at worst."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

expected_inputs = [
    {"airline": "Envoy Air", "dep_delay": 10.0, "time_hour": "2013-01-01 10:00:00"},
    {"airline": "Endeavor Air", "dep_delay": -2.0, "time_hour": "2013-01-01 11:00:00"},
    {"airline": "Envoy Air", "dep_delay": 5.0, "time_hour": "2013-01-01 12:00:00"},
]
expected_output = [
    {"airline": "Endeavor Air", "flights": 1, "mean_delay": -2.0, "worst_delay": -2.0},
    {"airline": "Envoy Air", "flights": 2, "mean_delay": 7.5, "worst_delay": 10.0},
]


def run(df: DataFrame) -> DataFrame:
    late = F.col("dep_delay")
    return (
        df.groupBy("airline")
        .agg(
            F.count(F.lit(1)).alias("flights"),
            F.round(F.avg(late), 1).alias("mean_delay"),
            F.max(late).alias("worst_delay"),
        )
        .orderBy("airline")
    )

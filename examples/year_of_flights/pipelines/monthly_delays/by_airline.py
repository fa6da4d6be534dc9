"""A row for each airline: how many flights left, how late in the mean, how many more than an hour late."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

expected_inputs = [
    {"airline": "Envoy Air", "dep_delay": 70.0},
    {"airline": "Endeavor Air", "dep_delay": -2.0},
    {"airline": "Envoy Air", "dep_delay": 5.0},
]
expected_output = [
    {"airline": "Endeavor Air", "flights": 1, "mean_delay": -2.0, "over_an_hour": 0},
    {"airline": "Envoy Air", "flights": 2, "mean_delay": 37.5, "over_an_hour": 1},
]


def run(df: DataFrame) -> DataFrame:
    late = F.col("dep_delay")
    return (
        df.groupBy("airline")
        .agg(
            F.count(F.lit(1)).alias("flights"),
            F.round(F.avg(late), 1).alias("mean_delay"),
            F.count(F.when(late > 60, 1)).alias("over_an_hour"),
        )
        .orderBy("airline")
    )

"""Miles per hour in the air; null where the time in the air is not known, as for diverted flights."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

expected_inputs = [
    {"flight": 1545, "distance": 1400.0, "air_time": 227.0},
    {"flight": 4525, "distance": 1147.0, "air_time": None},
    {"flight": 1, "distance": 10.0, "air_time": 0.0},
]
expected_output = [
    {"flight": 1545, "distance": 1400.0, "air_time": 227.0, "speed": 370.0},
    {"flight": 4525, "distance": 1147.0, "air_time": None, "speed": None},
    {"flight": 1, "distance": 10.0, "air_time": 0.0, "speed": None},
]


def run(df: DataFrame) -> DataFrame:
    hours = F.nullif(F.col("air_time"), F.lit(0.0)) / 60
    return df.withColumn("speed", F.round(F.col("distance") / hours, 1))

"""A flight that never departed has no delay; it is not counted here."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

expected_inputs = [
    {"carrier": "UA", "flight": 1545, "dep_time": 517, "dep_delay": 2.0},
    {"carrier": "AA", "flight": 791, "dep_time": None, "dep_delay": None},
]
expected_output = [{"carrier": "UA", "flight": 1545, "dep_time": 517, "dep_delay": 2.0}]


def run(df: DataFrame) -> DataFrame:
    departed = F.col("dep_time").isNotNull()
    return df.where(departed)

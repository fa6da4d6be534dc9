"""The departures that came, with the name of their airline; `df` is the source `airlines`."""

from pyspark.sql import DataFrame

expected_inputs = [[{"carrier": "UA", "name": "United Air Lines Inc."}]]
expected_stream = [{"carrier": "UA", "flight": 1545, "origin": "EWR", "dest": "IAH", "dep_delay": 2.0}]
expected_output = [
    {"airline": "United Air Lines Inc.", "flight": 1545, "origin": "EWR", "dest": "IAH", "dep_delay": 2.0}
]


def run(df: DataFrame, stream: DataFrame | None = None) -> DataFrame:
    named = stream.join(df, on="carrier", how="left")
    return named.select(df["name"].alias("airline"), "flight", "origin", "dest", "dep_delay")

"""Temperature, wind and rain at the airport in the hour of departure."""

from pyspark.sql import DataFrame

MEASURED = ("temp", "wind_speed", "precip")

expected_inputs = [
    [
        {"flight": 1545, "origin": "EWR", "time_hour": "2013-01-01T10:00:00Z"},
        {"flight": 4525, "origin": "LGA", "time_hour": "2013-01-01T20:00:00Z"},
    ],
    [{"tailnum": "N14228"}],
    [{"carrier": "UA"}],
    [{"faa": "IAH"}],
    [{"origin": "EWR", "time_hour": "2013-01-01T10:00:00Z", "temp": 39.02, "wind_speed": 12.66, "precip": 0.0}],
]
expected_output = [
    {"flight": 1545, "origin": "EWR", "time_hour": "2013-01-01T10:00:00Z", "temp": 39.02, "wind_speed": 12.66,
     "precip": 0.0},
    {"flight": 4525, "origin": "LGA", "time_hour": "2013-01-01T20:00:00Z", "temp": None, "wind_speed": None,
     "precip": None},
]  # fmt: skip


def run(df: DataFrame, _planes: DataFrame, _airlines: DataFrame, _airports: DataFrame, weather: DataFrame) -> DataFrame:
    hourly = weather.select("origin", "time_hour", *MEASURED)
    return df.join(hourly, on=["origin", "time_hour"], how="left").select(*df.columns, *MEASURED)

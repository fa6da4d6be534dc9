"""Names for the airline, the plane's maker and the destination; what nobody registered stays, with nulls."""

from pyspark.sql import DataFrame

KEPT = (
    "carrier", "airline", "flight", "tailnum", "manufacturer", "seats", "origin", "dest", "dest_name", "dep_delay",
    "arr_delay", "distance", "speed", "time_hour",
)  # fmt: skip

expected_inputs = [
    [
        {"carrier": "UA", "flight": 1545, "tailnum": "N14228", "origin": "EWR", "dest": "IAH", "dep_delay": 2.0,
         "arr_delay": 11.0, "distance": 1400.0, "speed": 370.0, "time_hour": "2013-01-01T10:00:00Z"},
        {"carrier": "MQ", "flight": 4525, "tailnum": "N719MQ", "origin": "LGA", "dest": "XNA", "dep_delay": -5.0,
         "arr_delay": None, "distance": 1147.0, "speed": None, "time_hour": "2013-01-01T20:00:00Z"},
    ],
    [{"tailnum": "N14228", "manufacturer": "BOEING", "seats": 149, "year": 1999}],
    [{"carrier": "UA", "name": "United Air Lines Inc."}, {"carrier": "MQ", "name": "Envoy Air"}],
    [{"faa": "IAH", "name": "George Bush Intercontinental", "tz": -6}],
]  # fmt: skip
expected_output = [
    {"carrier": "UA", "airline": "United Air Lines Inc.", "flight": 1545, "tailnum": "N14228", "manufacturer": "BOEING",
     "seats": 149, "origin": "EWR", "dest": "IAH", "dest_name": "George Bush Intercontinental", "dep_delay": 2.0,
     "arr_delay": 11.0, "distance": 1400.0, "speed": 370.0, "time_hour": "2013-01-01T10:00:00Z"},
    {"carrier": "MQ", "airline": "Envoy Air", "flight": 4525, "tailnum": "N719MQ", "manufacturer": None,
     "seats": None, "origin": "LGA", "dest": "XNA", "dest_name": None, "dep_delay": -5.0,
     "arr_delay": None, "distance": 1147.0, "speed": None, "time_hour": "2013-01-01T20:00:00Z"},
]  # fmt: skip


def run(df: DataFrame, planes: DataFrame, airlines: DataFrame, airports: DataFrame) -> DataFrame:
    makers = planes.select("tailnum", "manufacturer", "seats")
    names = airlines.select("carrier", airlines["name"].alias("airline"))
    destinations = airports.select(airports["faa"].alias("dest"), airports["name"].alias("dest_name"))
    joined = df.join(makers, on="tailnum", how="left").join(names, on="carrier", how="left")
    return joined.join(destinations, on="dest", how="left").select(*KEPT)

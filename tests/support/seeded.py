"""A store with many chunks, put in by SQL as an operator would: the triggers write history and wake readers."""

import sqlite3
from typing import Any

import psycopg

_SQLITE = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {last})"
_POSTGRES = "WITH n(i) AS (SELECT generate_series(0, {last}))"
# By chance, and the same each time: some that failed, some on their way, some missing.
_STATUS = (
    "CASE WHEN i % 97 = 13 THEN 'FAILED' WHEN i % 89 = 5 THEN 'RESUBMIT' WHEN i % 101 = 7 THEN 'HOLD' "
    "WHEN i % 211 = 3 THEN 'RUNNING' WHEN i % 53 = 11 THEN 'PENDING' ELSE 'READY' END"
)


class Shell:
    """What an operator types into psql or the sqlite3 shell."""

    def __init__(self, url: str) -> None:
        self.is_sqlite = url.startswith("sqlite")
        if self.is_sqlite:
            path = url.removeprefix("sqlite:///")
            self._connection: Any = sqlite3.connect(path, timeout=60, isolation_level=None)
        else:
            self._connection = psycopg.connect(url, autocommit=True)

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        cursor = self._connection.execute(statement)
        return [tuple(row) for row in cursor.fetchall()] if cursor.description else []

    def put_shards(self, dataset: str, number: int, *, width: int = 6) -> None:
        """Numbers from 1 on, with leading zeros; every 997th is missing."""
        padded = f"printf('%0{width}d', i + 1)" if self.is_sqlite else f"lpad((i + 1)::text, {width}, '0')"
        text = padded if width else "CAST(i + 1 AS text)"
        self._put(f"'{dataset}'", text, number - 1, "i % 997 <> 500")

    def put_days(self, prefix: str, datasets: int, days: int, *, first: str) -> None:
        """So many datasets prefix0, prefix1, …, each with a chunk for each day; some are missing."""
        day = f"i % {days}"
        name = f"'{prefix}' || (i / {days})"
        date = (
            f"date('{first}', ({day}) || ' days')" if self.is_sqlite else f"(date '{first}' + ({day})::integer)::text"
        )
        self._put(name, date, datasets * days - 1, "i % 199 <> 77")

    def _put(self, dataset: str, dataid: str, last: int, where: str) -> None:
        numbers = (_SQLITE if self.is_sqlite else _POSTGRES).format(last=last)
        what = f"{numbers} SELECT {dataset}, {dataid}, {_STATUS} FROM n WHERE {where}"
        self.run(f"INSERT INTO datastatus (project, datasetid, dataid, status) SELECT 'grid', w.* FROM ({what}) w")

    def close(self) -> None:
        self._connection.close()


def many_days(datasets: int, *, first: str, more: str = "") -> str:
    """A project of so many daily datasets."""
    lines = [
        f'  d{n}: {{path: "d{n}/{{dataid}}.csv", format: csv, partitions: {{daily: {first}}}}}' for n in range(datasets)
    ]
    return "\n".join(["name: grid", "datasets:", *lines, more, ""])

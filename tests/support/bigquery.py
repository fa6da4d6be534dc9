"""A stand-in for BigQuery below its ADBC driver, as far as one can go without the service.

Every statement must be BigQuery's SQL to sqlglot, and is then done: SQLite holds the rows. What BigQuery refuses in a
transaction is refused here, and a script that fails changes nothing. It is no judge of types, costs or permissions.
"""

import datetime
import json
import re
import sqlite3
import threading
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import sqlglot
from adbc_driver_manager import AdbcStatusCode, dbapi
from sqlglot import exp

_LOAD = re.compile(
    r"LOAD DATA OVERWRITE (?P<table>\S+) \((?P<columns>.*)\)\s+OPTIONS \((?P<options>.*)\)\s+"
    r"FROM FILES \((?P<files>.*)\)",
    re.DOTALL,
)
_URIS = re.compile(r"uris = \['(?P<pattern>[^']*)'\]")


def failure(said: str) -> dbapi.Error:
    """An error as the driver raises it."""
    return dbapi.ProgrammingError(f"INVALID_ARGUMENT: [bq] {said}", status_code=AdbcStatusCode.INVALID_ARGUMENT)


class BigQuery:
    """Tables of one dataset, and all that was asked of it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.options: list[Mapping[str, Any]] = []
        self.types: dict[str, dict[str, str]] = {}  # of each table: column → BigQuery's type
        self.clustered: dict[str, str] = {}
        self.expires: set[str] = set()
        self.before: list[tuple[str, Callable[[], None]]] = []  # what is done once before a statement with such words
        self.after: list[tuple[str, Callable[[], None]]] = []
        self._rows = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self._rows.create_function("error", 1, self._error)
        self._said = ""
        self._changed = 0
        self._lock = threading.RLock()

    def connect(self, *_: object) -> "_Connection":
        return _Connection(self)

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        """The rows of SQLite's own SQL."""
        return self._rows.execute(text).fetchall()

    @property
    def scripts(self) -> list[str]:
        return [one for one in self.asked if one.startswith("BEGIN TRANSACTION")]

    def say_once(self, words: str, said: str) -> None:
        """Refuse the next statement with these words."""

        def refuse() -> None:
            raise failure(said)

        self.before.append((words, refuse))

    # Statements -------------------------------------------------------------------------------------------------------
    def execute(self, sql: str, options: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        with self._lock:
            self.asked.append(sql.strip())
            self.options.append(options)
            self._happen(self.before, sql)
            found = self._execute(sql.strip())
            self._happen(self.after, sql)
            return found

    def _happen(self, what: list[tuple[str, Callable[[], None]]], sql: str) -> None:
        for one in [one for one in what if one[0] in sql]:
            what.remove(one)
            one[1]()

    def _execute(self, sql: str) -> list[tuple[Any, ...]]:
        if load := _LOAD.fullmatch(sql):
            return self._load(load)
        statements = [one for one in sqlglot.parse(sql, read="bigquery") if one is not None]
        is_script = len(statements) > 1
        found: list[tuple[Any, ...]] = []
        try:
            for statement in statements:
                if is_script and isinstance(statement, exp.Create | exp.Drop):
                    raise failure("DDL on permanent tables is not supported in a transaction")
                found = self._one(statement)
        except sqlite3.Error as error:
            raise failure(f"Query error: {self._said or error} at [3:1]") from error
        finally:
            self._said = ""
            if self._rows.in_transaction:
                self._rows.execute("ROLLBACK")
        return found

    def _one(self, statement: Any) -> list[tuple[Any, ...]]:
        assert not isinstance(statement, exp.Command), f"sqlglot does not know {statement.sql('bigquery')}"
        if isinstance(statement, exp.Select) and "INFORMATION_SCHEMA" in statement.sql("bigquery"):
            return self._columns(statement)
        for table in statement.find_all(exp.Table):
            table.set("db", None)
            table.set("catalog", None)
        match statement:
            case exp.Transaction():
                self._rows.execute("BEGIN")
            case exp.Commit():
                self._rows.execute("COMMIT")
            case exp.Create():
                self._create(statement)
            case exp.Merge():
                self._merge(statement)
            case exp.Drop():
                (name,) = [one.name for one in statement.find_all(exp.Table)]
                self.types.pop(name, None)
                self._rows.execute(f'DROP TABLE IF EXISTS "{name}"')
            case exp.Select():
                return self._rows.execute(self._lite(statement)).fetchall()
            case exp.Insert() | exp.Delete() | exp.Update():
                self._changed = self._rows.execute(self._lite(statement)).rowcount
            case _:
                raise AssertionError(f"nobody asked for {statement.sql('bigquery')} before")
        return []

    def _lite(self, statement: exp.Expression) -> str:
        text: str = statement.sql("sqlite")
        return text.replace("@@row_count", str(self._changed))

    def _error(self, said: str) -> None:
        self._said = said
        raise ValueError(said)

    def _columns(self, statement: exp.Select) -> list[tuple[Any, ...]]:
        (name,) = [one.expression.name for one in statement.find_all(exp.EQ) if one.this.name == "table_name"]
        return [(column, type_, False) for column, type_ in self.types.get(name, {}).items()]

    def _create(self, statement: exp.Create) -> None:
        name = statement.this.this.name
        if name in self.types and statement.args.get("exists"):
            return
        if name in self.types:
            raise failure(f"Already Exists: Table p:d.{name}")
        columns = [one for one in statement.this.expressions if isinstance(one, exp.ColumnDef)]
        self.types[name] = {one.name: one.args["kind"].sql("bigquery") for one in columns}
        if cluster := statement.find(exp.ClusterProperty):
            self.clustered[name] = cluster.expressions[0].name
        self._rows.execute(f'CREATE TABLE "{name}" ({", ".join(_named(one.name) for one in columns)})')
        if statement.expression is not None:
            self._rows.execute(f'INSERT INTO "{name}" {self._lite(statement.expression)}')

    def _merge(self, statement: exp.Merge) -> None:
        target, using = statement.this.sql("sqlite"), statement.args["using"].sql("sqlite")
        on = statement.args["on"].sql("sqlite")
        there = self._rows.execute(f"SELECT count(*) FROM {target}, {using} WHERE {on}").fetchone()[0]
        for when in statement.args["whens"].expressions:
            then = when.args["then"]
            if when.args["matched"] and there:
                changes = ", ".join(one.sql("sqlite") for one in then.expressions)
                condition = when.args["condition"].sql("sqlite")
                text = f"UPDATE {target} SET {changes} FROM {using} WHERE {on} AND {condition}"
                self._changed = self._rows.execute(text).rowcount
            elif not when.args["matched"] and not there:
                values = f"{then.this.sql('sqlite')} VALUES {then.expression.sql('sqlite')}"
                self._changed = self._rows.execute(f'INSERT INTO "{statement.this.name}" {values}').rowcount

    # Files ------------------------------------------------------------------------------------------------------------
    def _load(self, found: re.Match[str]) -> list[tuple[Any, ...]]:
        """LOAD DATA, which sqlglot does not know with columns: its parts are read each for itself."""
        sqlglot.parse_one(f"LOAD DATA INTO x FROM FILES({found['files']})", read="bigquery")
        assert "format = 'PARQUET'" in found["files"]
        assert "enable_list_inference = TRUE" in found["files"]
        name = found["table"].rpartition(".")[2].strip("`")
        self._execute(f"DROP TABLE IF EXISTS `{name}`")
        self._execute(f"CREATE TABLE `{name}` ({found['columns']}) OPTIONS ({found['options']})")
        if "expiration_timestamp" in found["options"]:
            self.expires.add(name)
        uris = _URIS.search(found["files"])
        assert uris is not None
        pattern = Path(uris["pattern"])
        paths = sorted(pattern.parent.glob(pattern.name))
        if not paths:
            raise failure(f"Not found: URI {pattern}")
        for path in paths:
            table = pq.read_table(path)
            assert [one.lower() for one in table.column_names] == [one.lower() for one in self.types[name]]
            marks = ", ".join("?" * table.num_columns)
            rows = [[_kept(value) for value in row.values()] for row in table.to_pylist()]
            self._rows.executemany(f'INSERT INTO "{name}" VALUES ({marks})', rows)
        return []


class _Connection:
    def __init__(self, service: BigQuery) -> None:
        self._service = service
        self.slot: object = None
        self.statement_options: Mapping[str, Any] = {}  # as adbc.Connection does: for every statement

    def cursor(self, *, adbc_stmt_kwargs: Mapping[str, Any] | None = None) -> "_Cursor":
        return _Cursor(self._service, {**self.statement_options, **(adbc_stmt_kwargs or {})})

    def close(self) -> None:
        pass


class _Cursor:
    def __init__(self, service: BigQuery, options: Mapping[str, Any]) -> None:
        self._service, self._options = service, options
        self._found: list[tuple[Any, ...]] = []

    def __enter__(self) -> "_Cursor":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def execute(self, sql: str) -> None:
        self._found = self._service.execute(sql, self._options)

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self._found


def _named(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _kept(value: Any) -> Any:
    """As SQLite keeps it: times as BigQuery writes them, so that they compare as text."""
    if isinstance(value, datetime.datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.%f") + ("+00:00" if value.tzinfo else "")
    if isinstance(value, list | dict):
        return json.dumps(value, default=str)
    return str(value) if isinstance(value, Decimal | datetime.date) else value

"""BigQuery as a database that chunks are published in.

Its transactions are one script: statements are collected while a transaction lasts, and sent as a whole at its end.
Questions are answered at once, outside of it; so the script asks again whether the answers still hold, and gives up
where they do not. There are no locks: of two transactions at the same time one is given up, and decides again.
"""

import contextlib
import re
import threading
from collections.abc import Callable, Iterator

from adbc_driver_manager import dbapi

from opendataflow.spark.adbc import Access
from opendataflow.spark.bigquery_types import is_clustered
from opendataflow.spark.sql_chunk import identifier, literal, quoted
from opendataflow.spark.sql_columns import TableColumn
from opendataflow.spark.sql_target import Conflict, Otherwise, Target, last_name, name_parts

STAGED_HOURS = 24  # what a dead run left is gone then
_CHECK = "dataflow check"
_BROKEN = re.compile(rf"(?<!ERROR\('){_CHECK} (?P<number>\d+)")  # and not where the script itself is shown
_CONFLICT = re.compile(r"(?i)due to concurrent update|could not serialize access")
_COLUMNS = """
SELECT column_name, data_type, COALESCE(column_default, 'NULL') != 'NULL' OR is_generated = 'ALWAYS'
FROM {schema}.INFORMATION_SCHEMA.COLUMNS
WHERE table_name = {table} AND is_system_defined = 'NO' ORDER BY ordinal_position
"""
_LOAD = """
LOAD DATA OVERWRITE {table} ({definitions})
OPTIONS (expiration_timestamp = TIMESTAMP_ADD(CURRENT_TIMESTAMP(), INTERVAL {hours} HOUR))
FROM FILES (format = 'PARQUET', uris = [{files}], enable_list_inference = TRUE)
"""
_lock = threading.Lock()
_publishing: dict[str, threading.Lock] = {}


class Script:
    """The statements of one transaction, and what is raised when one of them does not do as it must."""

    def __init__(self) -> None:
        self._statements: list[str] = []
        self._otherwise: list[Callable[[], Exception]] = []

    def __bool__(self) -> bool:
        return bool(self._statements)

    def add(self, sql: str) -> None:
        self._statements.append(sql.strip())

    def check(self, condition: str, otherwise: Callable[[], Exception]) -> None:
        """Give up unless it holds. A SELECT: of all that could do that, transactions are known to take it."""
        told = literal(f"{_CHECK} {len(self._otherwise)}", "bigquery")
        self._otherwise.append(otherwise)
        self.add(f"SELECT IF({condition.strip()}, TRUE, ERROR({told}))")

    @property
    def text(self) -> str:
        # The driver reads the rows of the last SELECT: there is one, and it tells that the end was reached.
        ended = ("COMMIT TRANSACTION", "SELECT TRUE AS committed")
        return ";\n".join(("BEGIN TRANSACTION", *self._statements, *ended))

    def meant(self, error: dbapi.Error, shown: str) -> Exception:
        """What an error of the script stands for."""
        broken = _BROKEN.search(str(error))
        if broken is not None and int(broken["number"]) < len(self._otherwise):
            return self._otherwise[int(broken["number"])]()
        if _CONFLICT.search(str(error)):
            return conflict(shown)
        return error


def conflict(shown: str) -> Conflict:
    return Conflict(
        f"other runs publish at {shown} at the same time, which BigQuery does not let happen; run fewer chunks at once"
    )


class BigQueryTarget(Target):
    kind = "bigquery"
    kept_for = "for a day"
    has_locks = False

    def __init__(self, access: Access) -> None:
        self._script: Script | None = None
        self._left: list[str] = []
        super().__init__(access)

    def run(self, sql: str) -> None:
        """Inside a transaction: at its end."""
        if self._script is not None:
            self._script.add(sql)
        else:
            super().run(sql)

    def create(self, sql: str) -> None:
        """At once: no transaction takes it."""
        try:
            super().run(sql)
        except dbapi.Error as error:
            if "Already Exists" not in str(error):  # by another run in the same moment
                raise

    def change(self, sql: str, rows: int, otherwise: Otherwise) -> None:
        script = self._get_script()
        script.add(sql)
        script.check(f"@@row_count = {rows}", lambda: otherwise(None))

    def require(self, condition: str) -> None:
        self._get_script().check(condition, lambda: conflict(self.access.shown))

    def _count(self, sql: str) -> int:
        raise NotImplementedError(sql)  # `change` counts in the script

    def _get_script(self) -> Script:
        if self._script is None:
            raise ValueError("what must hold is part of a transaction, and none was begun")
        return self._script

    @contextlib.contextmanager
    def transaction(self, lock: str) -> Iterator[None]:
        del lock  # chunks of this process at least come one after the other, whatever they publish there
        with _lock:
            mine = _publishing.setdefault(self.access.shown, threading.Lock())
        with mine:
            script = self._script = Script()
            self._left.clear()
            try:
                yield
            finally:
                self._script = None
            if script:
                self._commit(script)
        for table in self._left:
            self.forget(table)

    def _commit(self, script: Script) -> None:
        try:
            self.ask(script.text)
        except dbapi.Error as error:
            meant = script.meant(error, self.access.shown)
            if meant is error:
                raise
            raise meant from None

    def _begin(self, lock: str) -> None:
        raise NotImplementedError(lock)  # `transaction` does it all

    def wait_for(self, lock: str) -> None:
        pass

    def columns(self, table: str) -> tuple[TableColumn, ...]:
        given = name_parts(table)[:-1]
        parts = [*self._place()[: 2 - len(given)], *given]
        schema = ".".join(identifier(part, self.kind) for part in parts)
        found = self.ask(_COLUMNS.format(schema=schema, table=literal(last_name(table), self.kind)))
        return tuple(TableColumn(name=name, type=type_, is_optional=bool(has)) for name, type_, has in found)

    def _place(self) -> list[str]:
        """The project and the dataset of the address."""
        names = ("adbc.bigquery.sql.project_id", "adbc.bigquery.sql.dataset_id")
        return [self.access.options[name] for name in names if name in self.access.options]

    def new_table(self, table: str, definitions: str, found_by: TableColumn | None) -> bool:
        is_so = found_by is not None and is_clustered(found_by.type)
        clustered = f" CLUSTER BY {identifier(found_by.name, self.kind)}" if found_by is not None and is_so else ""
        self.create(f"CREATE TABLE IF NOT EXISTS {quoted(table, self.kind)} ({definitions}){clustered}")
        return False  # others may have made it and filled it since

    # Staging ----------------------------------------------------------------------------------------------------------
    def new_staging(self, table: str, name: str, definitions: str) -> None:
        """Nothing yet: `load` makes it."""

    def load(self, table: str, definitions: str, files: str) -> None:
        """Fill a staging table with the rows of Parquet files; it is gone a day later, whatever happens."""
        super().run(
            _LOAD.format(
                table=quoted(table, self.kind), definitions=definitions, files=literal(files, self.kind),
                hours=STAGED_HOURS,
            )
        )  # fmt: skip

    def sweep(self, table: str, own: str) -> None:
        """Nothing: they expire."""

    def drop_staging(self, table: str) -> None:
        """Once the transaction is committed, which takes no DROP."""
        self._left.append(table)

"""The table of a destination: whether it can take a chunk, and the statements that put the chunk there."""

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql.types import StructType

from opendataflow.domain.types.databases import plain_type
from opendataflow.errors import JobFailed
from opendataflow.spark.spec import Database
from opendataflow.spark.sql_chunk import ALL_ROWS, chunk_condition, identifier, literal, quoted
from opendataflow.spark.sql_columns import (
    ATTEMPT,
    DATAID,
    RUN,
    TYPES_OF_OWN,
    Move,
    TableColumn,
    column_type,
    definitions,
    moves,
)
from opendataflow.spark.sql_ledger import REPLACE, REPLACE_TABLE, Publication
from opendataflow.spark.sql_target import Target, last_name
from opendataflow.spark.sql_write import Attempt
from opendataflow.spark.types import data_type


class StagingLost(JobFailed):
    """What was staged is not all there any more; nothing was published."""


class Staged:
    """A staging table, and which of its rows count."""

    def __init__(self, name: str, schema: StructType, attempts: Sequence[Attempt] | int = ()) -> None:
        """`attempts`: those that count; or how many rows there are, when all of them do."""
        self.name, self.schema = name, schema
        self.is_whole = isinstance(attempts, int)
        self.attempts = (Attempt(0, attempts),) if isinstance(attempts, int) else tuple(attempts)

    @property
    def rows(self) -> int:
        return sum(attempt.rows for attempt in self.attempts)

    def condition(self, kind: str) -> str:
        if self.is_whole:
            return ALL_ROWS
        numbers = ", ".join(str(int(attempt.number)) for attempt in self.attempts)
        return f"{identifier(ATTEMPT, kind)} IN ({numbers})" if numbers else "1 = 0"


class Table:
    """One dataid's table. Everything but `require` belongs inside a transaction of the target."""

    def __init__(self, target: Target, database: Database, asked: Publication, types: StructType) -> None:
        self._target, self._kind, self._asked, self._types = target, target.kind, asked, types
        self._database = replace(database, dataids=(asked.dataid,))
        self._name = quoted(asked.table, target.kind)

    @property
    def _is_by_dataid(self) -> bool:
        return self._asked.write == REPLACE and self._database.partition_column is None

    # What must hold ---------------------------------------------------------------------------------------------------
    def require(self) -> None:
        """Raise JobFailed unless there is no such table, or it can take the chunk's columns."""
        self._require_partition_column()
        columns = self._target.columns(self._asked.table)
        if columns:
            self._moves(columns)

    def _moves(self, columns: Sequence[TableColumn]) -> list[Move]:
        found, problems = moves(self._types, columns, self._kind)
        if problems:
            told = "; ".join(problems)
            raise JobFailed(f"{self._asked.dataset}: {told} (table {self._asked.table} at {self._target.access.shown})")
        if self._is_by_dataid and not has_column(DATAID, columns):
            raise JobFailed(
                f"{self._asked.dataset}: table {self._asked.table} does not tell which of its rows are a dataid's; "
                f"name the column that does as `partition_column:`, add a column {DATAID} (text), or choose "
                "`write: append` or `write: replace_table`"
            )
        return found

    def _require_partition_column(self) -> None:
        column = self._database.partition_column
        if column is not None and self._asked.write == REPLACE and not self._find(column):
            there = ", ".join(self._types.names)
            raise JobFailed(
                f"{self._asked.dataset}: `partition_column: {column}` is none of the columns that are written: {there}"
            )

    def _find(self, column: str) -> str:
        return next((name for name in self._types.names if name.lower() == column.lower()), "")

    def require_dataid(self, staged: Staged) -> None:
        """Raise JobFailed when staged rows are not the dataid's, by the column that is to tell."""
        column = self._database.partition_column
        if column is None or self._asked.write != REPLACE:
            return
        field = staged.schema[self._find(column)]
        name = identifier(field.name, self._kind)
        condition = self._condition(field.name, str(column_type(self._kind, data_type(field.dataType))))
        count, example = self._target.ask(
            f"SELECT count(*), min(CAST({name} AS {column_type(self._kind, TYPES_OF_OWN[DATAID])})) "
            f"FROM {quoted(staged.name, self._kind)} "
            f"WHERE {staged.condition(self._kind)} AND ({condition}) IS NOT TRUE"
        )[0]
        if count:
            told = "null" if example is None else repr(example)
            raise JobFailed(
                f"{self._asked.chunk}: column {field.name!r} is {told} in {count} of {staged.rows} rows, which are not "
                "this dataid's; `write: replace` takes nothing but the dataid's own rows"
            )

    def _condition(self, column: str, type_: str) -> str:
        return chunk_condition(replace(self._database, partition_column=column), plain_type(type_))[0]

    # What is done -----------------------------------------------------------------------------------------------------
    def put(self, staged: Staged, *, appended_by: int | None) -> None:
        """Move the staged rows in, in place of those that they replace: of a run that appended before, if one did.

        Raises StagingLost when they are not all there any more.
        """
        is_new = self._create()
        columns = self._target.columns(self._asked.table)
        taken_out = self._replaced(columns) if appended_by is None else f"{identifier(RUN, self._kind)} = {appended_by}"
        if taken_out is not None and not is_new:
            self._target.run(f"DELETE FROM {self._name} WHERE {taken_out}")
        into = {move.name: move.sql for move in self._moves(columns)}
        if has_column(DATAID, columns):
            into[DATAID] = literal(self._asked.dataid, self._kind)
        if has_column(RUN, columns):
            into[RUN] = str(self._asked.token)
        names = ", ".join(identifier(name, self._kind) for name in into)
        self._target.change(
            f"INSERT INTO {self._name} ({names}) SELECT {', '.join(into.values())} "
            f"FROM {quoted(staged.name, self._kind)} WHERE {staged.condition(self._kind)}",
            staged.rows,
            lambda moved: self._lost(staged, moved),
        )
        if is_new:
            self._create_index()

    def _lost(self, staged: Staged, moved: int | None) -> StagingLost:
        told = "others" if moved is None else str(moved)
        return StagingLost(
            f"{self._asked.chunk}: of {staged.rows} rows that were staged in {self._target.access.shown}, {told} "
            "are there now: it was started again meanwhile"
        )

    def _create(self) -> bool:
        """Make the table if there is none; True if it was made and is this transaction's own."""
        if self._target.columns(self._asked.table):
            return False
        self._target.wait_for(f"create {self._asked.table}")
        if self._target.columns(self._asked.table):
            return False  # made by another run while this one waited
        made = definitions(self._types, self._kind, [DATAID] if self._is_by_dataid else [])
        return self._target.new_table(self._asked.table, made, self._found_by())

    def _found_by(self) -> TableColumn | None:
        """The column that a new table's chunks are found by when they are replaced."""
        if self._asked.write != REPLACE:
            return None
        column = self._find(self._database.partition_column or "")
        type_ = data_type(self._types[column].dataType) if column else TYPES_OF_OWN[DATAID]
        return TableColumn(name=column or DATAID, type=str(column_type(self._kind, type_)))

    def _create_index(self) -> None:
        """On what chunks are found by; after the table's first rows, which is quicker."""
        found_by = self._found_by()
        if found_by is None:
            return
        column = found_by.name
        name = "" if self._kind == "postgresql" else f"{identifier(f'{last_name(self._asked.table)}_{column}')} "
        self._target.run(f"CREATE INDEX {name}ON {self._name} ({identifier(column, self._kind)})")

    def _replaced(self, columns: Sequence[TableColumn]) -> str | None:
        """The condition of the rows that the chunk takes the place of; None: of none."""
        column = self._database.partition_column
        if self._asked.write == REPLACE_TABLE:
            return "1 = 1"
        if self._asked.write != REPLACE:
            return None
        if column is None:
            return f"{identifier(DATAID, self._kind)} = {literal(self._asked.dataid, self._kind)}"
        found = next(one for one in columns if one.name.lower() == column.lower())
        return self._condition(found.name, found.type)


def has_column(name: str, columns: Sequence[TableColumn]) -> bool:
    return any(column.name == name for column in columns)

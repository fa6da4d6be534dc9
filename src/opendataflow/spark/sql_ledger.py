"""The ledger beside a table: which run's rows of each dataid the table holds. What it says is so, in one transaction.

    CREATE TABLE dataflow_ledger (tablename, dataset, dataid, run, token, rows, inputs_digest, columns, findings,
                                  published_at, PRIMARY KEY (tablename, dataset, dataid))

`run` wrote the rows; `token` is the run that last said they are published, the same unless one run took over what
another had left. The store's run of a chunk is the ledger's token: if the ledger's is greater, a run published in the
target and died before it could tell the store.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from opendataflow.domain.checks.check import Finding
from opendataflow.errors import JobFailed, LeaseLost
from opendataflow.spark import bigquery_ledger
from opendataflow.spark.sql_chunk import literal, quoted
from opendataflow.spark.sql_target import Target, beside, last_name

LEDGER = "dataflow_ledger"
REPLACE, APPEND, REPLACE_TABLE = "replace", "append", "replace_table"
MODES = (REPLACE, APPEND, REPLACE_TABLE)

_CREATE = """
CREATE TABLE IF NOT EXISTS {ledger} (
  tablename text NOT NULL,
  dataset text NOT NULL,
  dataid text NOT NULL,
  run bigint NOT NULL,
  token bigint NOT NULL,
  rows bigint NOT NULL,
  inputs_digest text NOT NULL,
  columns text NOT NULL,
  findings text NOT NULL,
  published_at timestamp NOT NULL,
  PRIMARY KEY (tablename, dataset, dataid)
)
"""
_FIND = """
SELECT run, token, rows, inputs_digest, columns, findings FROM {ledger}
WHERE tablename = {tablename} AND dataset = {dataset} AND dataid = {dataid}
"""
# The token is in the WHERE: a run that outlived its lease must change nothing, also when nobody looked before.
_PUT = """
INSERT INTO {ledger} AS l (tablename, dataset, dataid, run, token, rows, inputs_digest, columns, findings, published_at)
VALUES ({tablename}, {dataset}, {dataid}, {run}, {token}, {rows}, {digest}, {columns}, {findings}, {now})
ON CONFLICT (tablename, dataset, dataid) DO UPDATE SET
  run = excluded.run, token = excluded.token, rows = excluded.rows, inputs_digest = excluded.inputs_digest,
  columns = excluded.columns, findings = excluded.findings, published_at = excluded.published_at
WHERE l.token < excluded.token
"""
_ADOPT = """
UPDATE {ledger} SET token = {token}
WHERE tablename = {tablename} AND dataset = {dataset} AND dataid = {dataid} AND token < {token}
"""
_NOW = {
    "postgresql": "clock_timestamp() AT TIME ZONE 'UTC'",
    "sqlite": "strftime('%Y-%m-%d %H:%M:%f', 'now')",
    "bigquery": "CURRENT_TIMESTAMP()",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Publication:
    """What a run is about to publish, and what the store knows of the chunk."""

    dataset: str
    table: str
    dataid: str
    token: int  # of this run: its number
    published_run: int | None  # the store's producer of this chunk
    digest: str  # of the inputs and the code; empty: not known
    write: str

    @property
    def chunk(self) -> str:
        return f"{self.dataset}/{self.dataid}"


class Entry(NamedTuple):
    """The ledger's row of one dataid."""

    run: int
    token: int
    rows: int
    inputs_digest: str
    columns: str  # JSON: column → type, as Written.schema
    findings: tuple[Finding, ...] = ()


class Step(Enum):
    """What is to be done in the target."""

    WRITE = "write"  # the rows, in place of what the mode replaces
    UNDO = "undo"  # take out what was appended before, then write
    ADOPT = "adopt"  # nothing: a run before this one has done it, and could not tell the store
    DONE = "done"  # nothing: this very run has done it, and did not hear of it


def decide(entry: Entry | None, asked: Publication, *, can_undo: bool) -> Step:
    """What is to be done for this chunk, or raise LeaseLost for a stale run, JobFailed for what would come twice."""
    if entry is None:
        return Step.WRITE
    if entry.token > asked.token:
        raise LeaseLost(
            f"{asked.chunk}: run {entry.token} has published it in {asked.table} already, so run {asked.token} changes "
            f"nothing there; if the store was made anew since, delete this dataid's row from {LEDGER}"
        )
    if entry.token == asked.token:
        return Step.DONE
    is_left = entry.token > (asked.published_run or 0)  # published in the target, and the store does not know
    if is_left and asked.digest and entry.inputs_digest == asked.digest:
        return Step.ADOPT
    if asked.write != APPEND:
        return Step.WRITE
    if can_undo:
        return Step.UNDO
    raise JobFailed(
        f"{asked.chunk}: run {entry.run} has appended its {entry.rows} rows to {asked.table}, which does not tell them "
        f"from others; delete them and this dataid's row in {LEDGER}, give the table a column dataflow_run, or use "
        "`write: replace`"
    )


class _Statements(NamedTuple):
    create: str
    find: str
    put: str
    adopt: str


_COMMON = _Statements(_CREATE, _FIND, _PUT, _ADOPT)
_BIGQUERY = _Statements(bigquery_ledger.CREATE, bigquery_ledger.FIND, bigquery_ledger.PUT, bigquery_ledger.ADOPT)


class Ledger:
    """The ledger table beside a target's table."""

    def __init__(self, target: Target, asked: Publication) -> None:
        self._target, self._asked = target, asked
        self._sql = _BIGQUERY if target.kind == "bigquery" else _COMMON
        self.name = beside(asked.table, LEDGER)
        self._words = {
            "ledger": quoted(self.name, target.kind),
            "tablename": self._text(last_name(asked.table)),
            "dataset": self._text(asked.dataset),
            "dataid": self._text(asked.dataid),
            "token": str(asked.token),
        }

    def find(self) -> Entry | None:
        """This dataid's row, if there is one."""
        if not self._target.columns(self.name):
            return None
        found = self._target.ask(self._sql.find.format(**self._words))
        if not found:
            return None
        run, token, rows, digest, columns, findings = found[0]
        return Entry(run, token, rows, digest, columns, tuple(Finding(*one) for one in json.loads(findings)))

    def create(self) -> None:
        if not self._target.columns(self.name):
            self._target.wait_for(f"create {self.name}")
            self._target.create(self._sql.create.format(**self._words))

    def expect(self, entry: Entry | None) -> None:
        """Inside a transaction: raise Conflict if this dataid's row is another by its end, and let nobody between."""
        if self._target.has_locks:
            return
        self._target.change(bigquery_ledger.GUARD.format(**self._words), 1, self._without_guard)
        still = bigquery_ledger.NOBODY if entry is None else bigquery_ledger.STILL
        found = {} if entry is None else {"found_run": str(entry.run), "found_token": str(entry.token)}
        self._target.require(still.format(**self._words, **found))

    def _without_guard(self, _changed: int | None) -> JobFailed:
        return JobFailed(
            f"{self._asked.chunk}: {LEDGER} beside {self._asked.table} has lost its first row, whose names are empty, "
            "and which keeps two runs from publishing at once; put it back, or restore the table as it was before"
        )

    def put(self, rows: int, columns: str, findings: Sequence[Finding]) -> None:
        """Say that this run's rows are there; raise LeaseLost when a later run said so before."""
        said = {
            "run": str(self._asked.token),
            "rows": str(int(rows)),
            "digest": self._text(self._asked.digest),
            "columns": self._text(columns),
            "findings": self._text(json.dumps([list(one) for one in findings])),
            "now": _NOW[self._target.kind],
        }
        self._changed(self._sql.put.format(**self._words, **said))

    def adopt(self) -> None:
        """Say that this run stands for the rows that are there."""
        self._changed(self._sql.adopt.format(**self._words))

    def _changed(self, sql: str) -> None:
        told = f"{self._asked.chunk}: a later run has published it in {self._asked.table} meanwhile"
        self._target.change(sql, 1, lambda _changed: LeaseLost(told))

    def _text(self, value: str) -> str:
        return literal(value, self._target.kind)

"""A chunk on its way into a table: nothing of it is visible until one transaction of the target publishes it whole.

    with Destination(spec, code_digests) as destination:
        if (published := destination.find_published()) is not None: …   # a run before this one has done it
        destination.stage(audit.watch(destination.fit(df)))
        findings = audit.findings(…)
        written = destination.publish(findings)

The transaction takes out what the chunk replaces, moves the staged rows, writes the ledger's row and drops the staging
table. Two runs of one dataid come one after the other, and the later one wins, whoever is first. Where a database has
no locks, a run that others came between decides again.
"""

import contextlib
import hashlib
import json
import random
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from adbc_driver_manager import dbapi
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from opendataflow.domain.checks.check import Finding
from opendataflow.errors import ConfigurationError, JobFailed
from opendataflow.spark.adbc import explain, is_lost, resolve
from opendataflow.spark.bigquery_files import StagedFiles
from opendataflow.spark.bigquery_target import BigQueryTarget
from opendataflow.spark.check_columns import quoted as spark_name
from opendataflow.spark.checks import Audit
from opendataflow.spark.drift import check_columns
from opendataflow.spark.files_read import ddl, parse_schema
from opendataflow.spark.files_write import Written, check_writable, schema_json
from opendataflow.spark.spec import ChunkSpec, Database, Place
from opendataflow.spark.sql_chunk import dialect
from opendataflow.spark.sql_columns import ATTEMPT, RUN, definitions, unwritable
from opendataflow.spark.sql_ledger import MODES, REPLACE_TABLE, Entry, Ledger, Publication, Step, decide
from opendataflow.spark.sql_load import Load
from opendataflow.spark.sql_read import is_here, read_table
from opendataflow.spark.sql_table import Staged, Table, has_column
from opendataflow.spark.sql_target import Conflict, Target, beside, open_target, staging_name
from opendataflow.spark.sql_write import stage
from opendataflow.spark.types import types_of

AWAY_SECONDS = 60.0  # how long a database that went away while it was to publish is waited for
CONFLICT_SECONDS = 600.0  # how long a run that others come between decides again
_PAUSE_SECONDS = 1.0
_MOST_PAUSE_SECONDS = 30.0
T = TypeVar("T")


class Destination:
    """One run's chunk and the table it goes to. Use it in a `with`, in one thread; nothing stays staged after it."""

    def __init__(self, spec: ChunkSpec, code_digests: Sequence[str]) -> None:
        self._place, self._sources = spec.destination, spec.sources
        self._database = _checked(spec)
        self._asked = Publication(
            dataset=self._place.datasetid,
            table=str(self._database.table),
            dataid=spec.dataid,
            token=spec.runid,
            published_run=spec.published_run,
            digest=_digest(spec, self._database, code_digests),
            write=self._database.write,
        )
        self._access = resolve(self._database)
        self._staged = Staged("", StructType())
        self._files: StagedFiles | None = None  # on the way to the staging table, where a database loads files

    def __enter__(self) -> "Destination":
        self._target: Target = open_target(self._access)
        self._ledger = Ledger(self._target, self._asked)
        return self

    def __exit__(self, *_error: object) -> None:
        self._remove_staged()
        self._target.close()

    # Before anything is computed --------------------------------------------------------------------------------------
    def find_published(self) -> Entry | None:
        """What a run before this one published in the target without telling the store; from now on it is this run's.

        Raises LeaseLost and JobFailed for what could not be published in the end, before anybody computes it.
        """
        with self._explained():
            if self._decide(self._ledger.find()) not in (Step.ADOPT, Step.DONE):
                return None
            return self._until_alone(self._adopt)

    def _adopt(self) -> Entry | None:
        with self._target.transaction(self._lock):
            entry = self._ledger.find()
            if self._decide(entry) is Step.ADOPT:
                self._ledger.expect(entry)
                self._ledger.adopt()
        return entry

    def _decide(self, entry: Entry | None) -> Step:
        can_undo = entry is not None and has_column(RUN, self._target.columns(self._asked.table))
        return decide(entry, self._asked, can_undo=can_undo)

    # Staging ----------------------------------------------------------------------------------------------------------
    def fit(self, df: DataFrame) -> DataFrame:
        """The DataFrame as it will be staged, once the table can take it; the staging table is there then.

        Raises JobFailed that names every column which is not as declared, not as the table has it, or in no table.
        """
        place, types = self._place, df.schema
        check_writable(df.schema, place)
        if place.schema is not None:
            types = parse_schema(ddl(place.schema))
            check_columns(place, [("what the last transformation returned", types_of(df.schema))], types_of(types))
            df = df.select([F.col(spark_name(name)) for name in types.names])
        if problems := unwritable(df.schema, self._target.kind):
            raise JobFailed(f"{place.datasetid}: {'; '.join(problems)}")
        self._table = Table(self._target, self._database, self._asked, types)
        with self._explained():
            self._table.require()
            self._new_staging(df.schema)
        return df

    def _new_staging(self, schema: StructType) -> None:
        self._remove_staged()
        name = staging_name(self._asked.dataset, self._asked.token, uuid.uuid4().hex[:8])
        self._target.new_staging(self._asked.table, name, definitions(schema, self._target.kind, [ATTEMPT]))
        self._staged = Staged(beside(self._asked.table, name), schema)
        self._target.sweep(self._asked.table, name)
        if self._database.staging is not None and self._target.kind == "bigquery":
            self._files = StagedFiles(self._asked.dataset, f"{self._database.staging.rstrip('/')}/{name}")

    def _remove_staged(self) -> None:
        files, self._files = self._files, None
        try:
            if self._staged.name:
                self._target.forget(self._staged.name)
        finally:
            if files is not None:
                files.remove()

    def keep_staged(self) -> str:
        """Leave the staged rows where they are, for people to look at; where that is, and for how long."""
        name = self._staged.name
        self._staged = Staged("", self._staged.schema)
        return f"{name} at {self._access.shown} {self._target.kept_for}"

    def stage(self, df: DataFrame, *, load: Load | None = None) -> int:
        """Write the rows where nobody looks, and see that they are the dataid's; how many there are.

        With `load`, tasks get them without Spark's help.
        """
        if self._target.kind == "sqlite" and not is_here(df.sparkSession):
            raise JobFailed(f"{self._access.shown} is a file of this machine, and Spark's tasks run on others")
        if self._files is not None and isinstance(self._target, BigQueryTarget):
            return self._stage_files(df, self._files, self._target)
        units, read = load or (df, None)
        attempts = stage(units, self._access, self._staged.name, read=read)
        self._staged = Staged(self._staged.name, self._staged.schema, attempts)
        with self._explained():
            self._table.require_dataid(self._staged)
        return self._staged.rows

    def _stage_files(self, df: DataFrame, files: StagedFiles, target: BigQueryTarget) -> int:
        staged = self._staged
        rows = files.write(df, self._sources)
        with self._explained():
            target.load(staged.name, definitions(staged.schema, target.kind, ()), files.pattern)
            self._staged = Staged(staged.name, staged.schema, rows)
            self._table.require_dataid(self._staged)
        return rows

    def read_staged(self, spark: SparkSession) -> DataFrame:
        """What is staged, with the types that it had."""
        staged = self._staged
        if self._files is not None:
            return self._files.read(spark)
        database = replace(self._database, table=staged.name, query=None, partition_column=None, dataids=())
        df = read_table(spark, replace(self._place, schema=None, database=database))
        columns = [F.col(spark_name(field.name)).cast(field.dataType).alias(field.name) for field in staged.schema]
        return df.where(F.col(ATTEMPT).isin([attempt.number for attempt in staged.attempts])).select(columns)

    @property
    def written(self) -> Written:
        return Written(rows=self._staged.rows, schema=schema_json(self._staged.schema))

    # Publish ----------------------------------------------------------------------------------------------------------
    def publish(self, findings: Sequence[Finding]) -> Written:
        """Publish the staged rows and the ledger's row, or raise LeaseLost or JobFailed and change nothing.

        When the connection is lost on the way, the ledger tells whether it had been done. StagingLost: it can be
        staged again.
        """
        until = time.monotonic() + AWAY_SECONDS
        while True:
            try:
                written = self._until_alone(lambda: self._publish_once(findings))
                break
            except dbapi.Error as error:
                if not is_lost(error) or time.monotonic() > until:
                    raise JobFailed(explain(error, self._access)) from None
            self._open_again(until)
        self._staged = Staged("", self._staged.schema)
        self._remove_staged()
        return written

    def _until_alone(self, once: Callable[[], T]) -> T:
        """What it returns once nobody comes between; it decides anew each time."""
        until, pause = time.monotonic() + CONFLICT_SECONDS, _PAUSE_SECONDS
        while True:
            try:
                return once()
            except Conflict:
                if time.monotonic() > until:
                    raise
            time.sleep(random.uniform(0, pause))  # noqa: S311  so that two do not meet again
            pause = min(2 * pause, _MOST_PAUSE_SECONDS)

    def _publish_once(self, findings: Sequence[Finding]) -> Written:
        written = self.written
        with self._target.transaction(self._lock):
            self._ledger.create()
            entry = self._ledger.find()
            step = self._decide(entry)
            if step is not Step.DONE:
                self._ledger.expect(entry)
            if step is Step.ADOPT and entry is not None:
                self._ledger.adopt()
                written = Written(rows=entry.rows, schema=entry.columns)
            elif step is not Step.DONE:
                self._table.put(
                    self._staged, appended_by=entry.run if entry is not None and step is Step.UNDO else None
                )
                self._ledger.put(written.rows or 0, written.schema, findings)
            self._target.drop_staging(self._staged.name)
        return written

    @property
    def _lock(self) -> str:
        """Publishers of one dataid, or of one table where each replaces all of it, come one after the other."""
        whole = f"publish {self._asked.table}"
        return whole if self._asked.write == REPLACE_TABLE else f"{whole} {self._asked.dataset} {self._asked.dataid}"

    # The connection ---------------------------------------------------------------------------------------------------
    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except dbapi.Error as error:
            raise JobFailed(explain(error, self._access)) from None  # a driver's own words may hold the address

    def _open_again(self, until: float) -> None:
        while True:
            try:
                self._target.open_again()
                return
            except JobFailed:
                if time.monotonic() > until:
                    raise
                time.sleep(_PAUSE_SECONDS)


class StagedAudit(Audit):
    """The checks of a chunk that is staged: what is read back is the staging table."""

    def __init__(self, spec: ChunkSpec, destination: Destination) -> None:
        super().__init__(spec.checks, dataid=spec.dataid, schema=spec.destination.schema, place=spec.destination)
        self._destination = destination

    def _read_back(self, spark: SparkSession, _place: Place) -> DataFrame:
        return self._destination.read_staged(spark)


def _checked(spec: ChunkSpec) -> Database:
    """The destination's table, or raise ConfigurationError for what a table cannot do."""
    place = spec.destination
    database = place.database
    if database is None or database.table is None:
        raise ConfigurationError(f"{place.datasetid}: a destination in a database needs `table:`, not a query")
    if dialect(database) == "bigquery" and database.staging is None:
        raise ConfigurationError(
            f"{place.datasetid}: a destination in BigQuery needs `staging: gs://bucket/folder`, where chunks are put "
            "as files for BigQuery to load"
        )
    if database.write not in MODES:
        raise ConfigurationError(f"{place.datasetid}: `write: {database.write}` is not one of {', '.join(MODES)}")
    for check in spec.checks:
        if check.takes_out_rows:
            raise ConfigurationError(
                f"{place.datasetid}: check {check} has `on_fail: quarantine`, which keeps rows in files beside the "
                "chunk's, and a table has none; use `fail` or `warn`"
            )
    return database


def _digest(spec: ChunkSpec, database: Database, code_digests: Sequence[str]) -> str:
    """Of all that decides which rows come out: inputs, code, and how they are written.

    The items of a stream's batch are published once, whichever version of the code or of a static source came first.
    """
    if spec.items is not None:
        return f"items {spec.items.start}-{spec.items.end}"
    if not spec.inputs_digest:
        return ""
    parts = [spec.inputs_digest, list(code_digests), database.write, database.partition_column, spec.destination.schema]
    return hashlib.sha256(json.dumps(parts, default=dict).encode()).hexdigest()[:32]

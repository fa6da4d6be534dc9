"""The chunks of a pipeline, step by step: read the sources, run the transformations, write the run's directory, audit.

A task is one run, or several that share a Spark job (`chunks_per_job`). Of those that cannot share it, the result says
so: each must be produced alone, by a process of its own.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from opendataflow import faults
from opendataflow.domain.checks.check import Finding
from opendataflow.errors import JobFailed
from opendataflow.spark.blame import blame
from opendataflow.spark.checks import Audit, audit_files
from opendataflow.spark.connect import is_connect
from opendataflow.spark.explain import explain, user_traceback
from opendataflow.spark.files import Written, explain_read_failure, must_read_again, read_chunk, write_chunk
from opendataflow.spark.jvm import explained
from opendataflow.spark.pandas_engine import run_pandas
from opendataflow.spark.process_output import kept_output
from opendataflow.spark.progress import Progress
from opendataflow.spark.shared_state import refuse_names_left
from opendataflow.spark.spec import ChunkSpec
from opendataflow.spark.steps import Step, Steps, new_steps
from opendataflow.spark.stream_batch import Batch, Statics, find_failing, read_batch
from opendataflow.spark.transformations import PANDAS, SPARK, Code, apply, engine_of, load_anew, read_code

Result = dict[str, Any]
Hear = Callable[..., None]


def read_codes(spec: ChunkSpec) -> tuple[Code, ...]:
    """The code of every transformation as it is now; what is missing or not Python is found here, without Spark."""
    return tuple(read_code(spec.home, spec.slug, name) for name in spec.transformations)


@dataclass(kw_only=True, slots=True)
class Chunk:
    """What is known of one run while it is produced."""

    spec: ChunkSpec
    steps: Steps
    plan: str | None = None
    findings: tuple[Finding, ...] = ()
    written: Written | None = None
    shared: int | None = field(default=None)  # the first run of the Spark job it shares
    batch: Batch | None = None  # the items of a stream's batch
    statics: Statics | None = None  # what its process keeps of the stream's sources
    aside: list[list[Any]] = field(default_factory=list)  # offsets and errors of those that were left out

    def read_sources(self, spark: SparkSession) -> list[DataFrame]:
        if self.batch is not None and self.statics is not None:
            return self.statics.sources(spark, self.spec)
        sources = [read_chunk(spark, place, can_read_again=True) for place in self.spec.sources]
        if self.spec.in_order:  # Spark reads the largest files first; names of batches are in the order of their items
            sources = [df.orderBy("_metadata.file_path", "_metadata.row_index") for df in sources]
        return sources

    def stream(self, spark: SparkSession) -> DataFrame | None:
        return None if self.batch is None else self.batch.frame(spark)


class Task:
    """Produces runs in a warm Spark. `hear` is told what they print and how far they are."""

    def __init__(
        self,
        spark: SparkSession,
        codes: Sequence[Code],
        *,
        hear: Hear,
        end_if_jvm_ended: Callable[[BaseException, ChunkSpec], None] = lambda _error, _spec: None,
        group: str | None = None,
        tag: str | None = None,
        statics: Statics | None = None,
    ) -> None:
        """The process is of one task at a time. `group`: its Spark jobs are in this group already.

        `tag` is on all its Spark jobs, in whichever thread they start, and on nobody else's. `statics`: the session is
        the process's, which serves the runs of a stream; each gets one of its own.
        """
        self._spark, self._codes, self._hear, self._end_if_jvm_ended = spark, codes, hear, end_if_jvm_ended
        self._group, self._tag, self._statics = group, tag, statics

    def run(self, specs: Sequence[ChunkSpec]) -> Iterator[tuple[ChunkSpec, Result]]:
        """Each run's result, as soon as it is known; an `error` in it is the sentence why there is no chunk."""
        if engine_of(self._codes, specs[0].engine) == PANDAS:
            yield from self._run_pandas(specs)
            return
        if specs[0].items is not None and specs[0].items.state is not None:
            raise JobFailed(
                "the stream has `returns: dataset`, which is for pandas, and its code is written for Spark now; run "
                "`dataflow apply`, or say `engine: pandas`"
            )
        if len(specs) > 1:
            yield from self._run_together(specs)
            return
        yield specs[0], self._run_alone(specs[0])

    # One by one ---------------------------------------------------------------------------------------------------
    def _run_alone(self, spec: ChunkSpec, batch: Batch | None = None) -> Result:
        chunk = self._new_chunk(spec)
        # Temporary views and settings of one chunk are not the next one's.
        spark = self._spark
        if self._statics is not None and spec.items is not None:
            spark = self._statics.session(spark, spec)
        elif self._statics is not None:
            spark = spark.newSession()
        try:
            with self._watched(spark, spec):
                if spec.items is not None:
                    chunk.batch = batch or read_batch(spec.items, spark)
                    chunk.aside = chunk.batch.aside_json()
                if spec.destination.database is None:
                    self._produce(spark, chunk)
                else:
                    self._produce_rows(spark, chunk)
        except BaseException as error:  # noqa: BLE001  the user's code must not decide how this process ends
            self._end_if_jvm_ended(error, spec)
            if self._reads_again(spark, spec, error):
                return self._run_alone(spec, batch)
            if batch is None and chunk.batch is not None and self._set_aside(spark, chunk, chunk.batch, error):
                return self._run_alone(spec, chunk.batch)
            return self._failed(spark, chunk, error)
        return self._result(chunk)

    def _reads_again(self, spark: SparkSession, spec: ChunkSpec, error: BaseException) -> bool:
        """True, and said, when the chunk must be produced anew, with its sources read in another way."""
        if not isinstance(error, Exception) or not must_read_again(spark, spec.sources, error):
            return False
        self._say(spec)(
            "a value holds a quote, unlike the beginnings of the files: they are looked through, then read again"
        )
        return True

    def _set_aside(self, spark: SparkSession, chunk: Chunk, batch: Batch, error: BaseException) -> bool:
        """Look for the items that the code fails on; True when the batch can be tried again without them."""
        spec = chunk.spec
        if spec.items is None or not spec.items.set_aside or isinstance(error, JobFailed):
            return False  # what a JobFailed says is of the destination, a check or the code itself
        files = [code.path for code in self._codes]

        def run(items: Sequence[Any]) -> None:
            quiet = new_steps([(code.name, code.digest) for code in self._codes])
            try:
                transformations = load_anew(self._codes, quiet)
                df = apply(transformations, chunk.read_sources(spark), quiet, stream=batch.frame(spark, items))
                df.write.format("noop").mode("overwrite").save()
            except Exception as failed:
                self._end_if_jvm_ended(failed, spec)
                raise

        with self._watched(spark, spec), self._cleared(spark):
            failing = find_failing(batch.left, run, lambda failed: explain(failed, home=spec.home, files=files))
        if failing is None:
            return False
        batch.aside |= failing
        for offset, told in sorted(failing.items()):
            self._tell_aside(spec, offset, told)
        return True

    def _tell_aside(self, spec: ChunkSpec, offset: int, error: str) -> None:
        self._hear(spec, stream=2, text=f"{spec.slug}: item {offset} is set aside: {error}\n")

    def _produce(self, spark: SparkSession, chunk: Chunk) -> None:
        spec = chunk.spec
        reads_tables = any(place.database is not None for place in spec.sources)
        if reads_tables and chunk.batch is None and _is_extract(spec):
            self._extract(spark, chunk)
            return
        transformations = load_anew(self._codes, chunk.steps)
        audit = Audit(spec.checks, dataid=spec.dataid, schema=spec.destination.schema, place=spec.destination)
        with _sql_reads(reads_tables), self._cleared(spark):
            sources = chunk.read_sources(spark)
            df = apply(transformations, sources, chunk.steps, profile=spec.profile, stream=chunk.stream(spark))
            refuse_names_left(spark)
            if spec.explain:
                chunk.plan = _plan(df)
            try:
                watched = audit.watch(df)
                with _pushed_down(watched, reads_tables and chunk.batch is None):
                    # A batch is small, whatever its static sources are: one file.
                    read = spec.sources if chunk.batch is None else ()
                    chunk.written = write_chunk(watched, spec.destination, read)
            except Exception as error:
                if told := audit.blame(error):
                    raise JobFailed(told) from error
                raise
            faults.point(faults.CHILD_WRITTEN)
            chunk.findings = audit.findings(
                spark, spec.destination, rows=chunk.written.rows, earlier_rows=spec.earlier_rows
            )
            faults.point(faults.CHILD_AUDITED)

    @staticmethod
    def _extract(spark: SparkSession, chunk: Chunk) -> None:
        """From a database to Parquet as it is: what arrives as Arrow is written as it arrives."""
        from opendataflow.spark.sql_extract import extract

        spec = chunk.spec
        chunk.written = extract(spark, spec.sources[0], spec.destination)
        faults.point(faults.CHILD_WRITTEN)
        if spec.checks:
            chunk.findings = audit_files(
                spark, spec.destination, spec.checks, dataid=spec.dataid, rows=chunk.written.rows,
                earlier_rows=spec.earlier_rows,
            )  # fmt: skip
        faults.point(faults.CHILD_AUDITED)

    def _produce_rows(self, spark: SparkSession, chunk: Chunk) -> None:
        from opendataflow.spark.table_chunks import produce_rows

        with self._cleared(spark):
            produce_rows(
                spark, chunk, self._codes, say=self._say(chunk.spec), plan=_plan,
                applied=lambda: refuse_names_left(spark),
            )  # fmt: skip

    def _cleared(self, spark: SparkSession) -> contextlib.AbstractContextManager[None]:
        """What a batch cached goes with it; of a process that is for one task, the keeper clears it."""
        return contextlib.nullcontext() if self._statics is None else self._statics.others_cleared(spark)

    def _say(self, spec: ChunkSpec) -> Callable[[str], None]:
        return lambda text: self._hear(spec, progress=text)

    def _watched(self, spark: SparkSession, spec: ChunkSpec) -> Progress:
        return Progress(spark, spec, self._hear, group=self._group)

    # Several in one Spark job -----------------------------------------------------------------------------------------
    def _run_together(self, specs: Sequence[ChunkSpec]) -> Iterator[tuple[ChunkSpec, Result]]:
        """What one Spark job wrote of each run, to be compared, or `alone`: why the run must be produced alone."""
        from opendataflow.spark.together import EMPTY, NotShared, Together, require_shareable

        first = specs[0]
        chunk = self._new_chunk(first)
        written: dict[int, Written] = {}
        why, is_in_vain = EMPTY, False
        try:
            require_shareable(specs)
            with self._watched(self._spark, first):
                written = Together(self._spark, specs, self._codes, tag=self._tag).write(chunk.steps)
                refuse_names_left(self._spark)
        except BaseException as error:  # noqa: BLE001  whatever it was, alone it is told to its own run
            self._end_if_jvm_ended(error, first)
            written, why = {}, explain(error, home=first.home)
            is_in_vain = isinstance(error, NotShared) and error.is_in_code
        for spec in specs:
            if spec.runid in written:
                one = Chunk(spec=spec, steps=chunk.steps, written=written[spec.runid], shared=first.runid)
                # One observation cannot tell the chunks apart: the runner looks at their small files itself.
                yield spec, {**self._result(one), "findings": None, "compare": True}
            else:
                yield spec, {"alone": why, "in_vain": is_in_vain, "steps": []}

    # pandas -------------------------------------------------------------------------------------------------------
    def _run_pandas(self, specs: Sequence[ChunkSpec]) -> Iterator[tuple[ChunkSpec, Result]]:
        """One Spark job, one Python task for each run; checks on the files it wrote."""
        if specs[0].destination.database is not None:
            for spec in specs:
                yield spec, self._run_pandas_rows(spec)
            return
        by_run = {spec.runid: spec for spec in specs}
        try:
            with self._watched(self._spark, specs[0]):
                results = run_pandas(self._spark, specs, self._codes, timeout_seconds=specs[0].timeout_seconds)
        except Exception as error:  # noqa: BLE001
            self._end_if_jvm_ended(error, specs[0])
            for spec in specs:
                yield spec, self._failed(self._spark, self._new_chunk(spec), error)
            return
        for said in results:
            spec = by_run[said["runid"]]
            yield spec, self._audited(spec, said, specs[0])

    def _audited(self, spec: ChunkSpec, said: Result, first: ChunkSpec) -> Result:
        for text in (said["output"], *(step["output"] for step in said["steps"])):
            if text:
                self._hear(spec, stream=1, text=text)
        for offset, error in said["aside"]:
            self._tell_aside(spec, offset, error)
        result = {
            **said, "engine": PANDAS, "application": _application(self._spark), "findings": [], "plan": None,
            "job_runid": first.runid,
        }  # fmt: skip
        if said["error"]:
            text = f"{said.get('traceback') or ''}{spec.name}: {said['error']}\n"
            self._hear(spec, stream=2, text=text)
            return result
        try:
            if spec.checks:
                findings = audit_files(
                    self._spark.newSession(), spec.destination, spec.checks, dataid=spec.dataid, rows=said["rows"],
                    earlier_rows=spec.earlier_rows,
                )  # fmt: skip
                result["findings"] = [list(finding) for finding in findings]
        except Exception as error:  # noqa: BLE001
            self._end_if_jvm_ended(error, spec)
            result["error"] = explain(error, home=spec.home)
            self._hear(spec, stream=2, text=f"{spec.name}: {result['error']}\n")
        return result

    def _run_pandas_rows(self, spec: ChunkSpec) -> Result:
        from opendataflow.spark.table_chunks import produce_pandas_rows

        chunk = self._new_chunk(spec)
        spark = self._spark.newSession()
        try:
            result = produce_pandas_rows(
                spark, chunk, self._codes, say=self._say(spec), run=lambda aside: next(self._run_pandas([aside]))[1]
            )
        except Exception as error:  # noqa: BLE001
            self._end_if_jvm_ended(error, spec)
            return {**self._failed(spark, chunk, error), "engine": PANDAS}
        return {**self._result(chunk), "engine": PANDAS} if result is None else result

    # What is told -------------------------------------------------------------------------------------------------
    def _new_chunk(self, spec: ChunkSpec) -> Chunk:
        def changed(step: Step) -> None:
            self._hear(spec, step=steps.as_json()[step.position - 1])

        steps = new_steps([(code.name, code.digest) for code in self._codes], changed, keep_output=kept_output)
        return Chunk(spec=spec, steps=steps, statics=self._statics)

    def _result(self, chunk: Chunk, error: str | None = None) -> Result:
        written = chunk.written
        return {
            "runid": chunk.spec.runid,
            "engine": SPARK,
            "application": _application(self._spark),
            "job_runid": chunk.shared,
            "rows": written.rows if written else None,
            "schema": written.schema if written else None,
            "bytes": written.bytes if written else None,
            "files": written.files if written else None,
            "fingerprint": written.fingerprint if written else None,
            "findings": [list(finding) for finding in chunk.findings],
            "steps": chunk.steps.as_json(),
            "plan": chunk.plan,
            "error": error,
            "aside": chunk.aside,
        }

    def _failed(self, spark: SparkSession, chunk: Chunk, error: BaseException) -> Result:
        """Tell it in one sentence, and whose line it was."""
        spec, home = chunk.spec, chunk.spec.home
        files = [code.path for code in self._codes]
        blame(error, chunk.steps, home, files)
        sentence = ""
        if not isinstance(error, JobFailed):
            for place in spec.sources:
                with contextlib.suppress(Exception):  # a second look that fails changes nothing about the first error
                    sentence = sentence or explain_read_failure(spark, place, error) or ""
        sentence = sentence or explain(error, home=home, files=files)
        self._hear(spec, stream=2, text=f"{user_traceback(error, home=home)}{spec.name}: {sentence}\n")
        return self._result(chunk, sentence)


def _is_extract(spec: ChunkSpec) -> bool:
    from opendataflow.spark.sql_extract import is_extract

    return is_extract(spec)


def _sql_reads(wanted: bool) -> contextlib.AbstractContextManager[None]:
    """Of files there is nothing to hold; what reads databases is imported where one is read."""
    if not wanted:
        return contextlib.nullcontext()
    from opendataflow.spark.sql_read import sql_reads

    return sql_reads()


def _pushed_down(df: DataFrame, wanted: bool) -> contextlib.AbstractContextManager[None]:
    if not wanted:
        return contextlib.nullcontext()
    from opendataflow.spark.sql_pushed import pushed_down

    return pushed_down(df)


def _plan(df: DataFrame) -> str:
    return str(df._explain_string(mode="formatted")) if is_connect(df) else explained(df)


def _application(spark: SparkSession) -> str | None:
    """Spark's own name for this application, as its history server shows it."""
    told = spark.conf.get("spark.app.id") if is_connect(spark) else spark._sc.applicationId
    return str(told) if told else None

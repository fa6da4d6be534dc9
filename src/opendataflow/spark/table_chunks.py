"""Chunks that are rows of a table, step by step: staged, audited, and if they pass published in the table's database.

The runner cannot publish there: it has no connection to it, and needs none.
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession

from opendataflow import faults
from opendataflow.domain.checks.check import Finding, passed
from opendataflow.errors import JobFailed
from opendataflow.spark.files import Written, read_chunk
from opendataflow.spark.spec import ChunkSpec
from opendataflow.spark.sql_load import find_load
from opendataflow.spark.sql_publish import Destination, StagedAudit
from opendataflow.spark.sql_pushed import pushed_down
from opendataflow.spark.sql_read import is_here, sql_reads
from opendataflow.spark.sql_table import StagingLost
from opendataflow.spark.stream_batch import note_aside, recall_aside
from opendataflow.spark.transformations import Code, apply, load_anew

if TYPE_CHECKING:
    from opendataflow.spark.pipeline import Chunk

Result = dict[str, Any]
Say = Callable[[str], None]


def produce_rows(
    spark: SparkSession, chunk: "Chunk", codes: Sequence[Code], *, say: Say, plan: Callable[[DataFrame], str],
    applied: Callable[[], None],
) -> None:  # fmt: skip
    """Produce the chunk and publish it in the target, unless its checks fail; what was found is kept in the chunk.

    `applied` is called when the code has run, and raises where its rows may not be published.
    """
    spec = chunk.spec
    with Destination(spec, _digests(codes)) as destination, sql_reads():
        if _was_published(chunk, destination, say):
            return
        transformations = load_anew(codes, chunk.steps)
        sources = chunk.read_sources(spark)
        df = apply(transformations, sources, chunk.steps, profile=spec.profile, stream=chunk.stream(spark))
        applied()
        if spec.explain:
            chunk.plan = plan(df)
        try:
            _stage_and_publish(spark, chunk, destination, df, say)
        except StagingLost as error:
            say(f"{error}; it is staged again")
            _stage_and_publish(spark, chunk, destination, df, say)


def _stage_and_publish(
    spark: SparkSession, chunk: "Chunk", destination: Destination, df: DataFrame, say: Say
) -> None:  # fmt: skip
    spec = chunk.spec
    audit = StagedAudit(spec, destination)
    fitted = destination.fit(df)
    load = find_load(spark, spec, fitted.schema) if chunk.batch is None else None
    watched = audit.watch(fitted)
    faults.point(faults.CHILD_STAGING)
    try:
        with pushed_down(watched):
            rows = destination.stage(watched, load=load)
    except Exception as error:
        if told := audit.blame(error):
            raise JobFailed(told) from error
        raise
    chunk.written = destination.written
    faults.point(faults.CHILD_WRITTEN)
    chunk.findings = audit.findings(spark, spec.destination, rows=rows, earlier_rows=spec.earlier_rows)
    faults.point(faults.CHILD_AUDITED)
    if not passed(chunk.findings):
        say(f"its checks failed, so its rows stay in {destination.keep_staged()}")
        return
    note_aside(spec, chunk.aside)
    chunk.written = destination.publish(chunk.findings)
    faults.point(faults.CHILD_PUBLISHED)


def produce_pandas_rows(
    spark: SparkSession, chunk: "Chunk", codes: Sequence[Code], *, say: Say, run: Callable[[ChunkSpec], Result]
) -> Result | None:
    """As produce_rows, for a pipeline on pandas: `run` writes and checks files aside, which are then staged.

    None: nothing was to be done, as the chunk says.
    """
    spec = chunk.spec
    if not is_here(spark):
        raise JobFailed(
            f"{spec.slug}: a pipeline on pandas writes to a table through files of this machine, and Spark's tasks "
            "run on others; give it a destination of files"
        )
    with Destination(spec, _digests(codes)) as destination:
        if _was_published(chunk, destination, say):
            return None
        with tempfile.TemporaryDirectory(prefix=f"{spec.runid}-", dir=_local_folder(spark)) as folder:
            aside = replace(spec.destination, location=folder, format="parquet", options={}, database=None)
            result = run(replace(spec, destination=aside))
            findings = [Finding(*one) for one in result["findings"]]
            if result["error"] or not passed(findings):
                return result
            if spec.items is not None and not result["rows"]:
                return result  # all were set aside: there is nothing to add
            note_aside(spec, result["aside"])
            faults.point(faults.CHILD_STAGING)
            destination.stage(destination.fit(read_chunk(spark, replace(aside, schema=None))))
            written = destination.publish(findings)
            faults.point(faults.CHILD_PUBLISHED)
    return {**result, "rows": written.rows, "schema": written.schema, "bytes": None}


def _was_published(chunk: "Chunk", destination: Destination, say: Say) -> bool:
    """True when a run before this one published the chunk and could not tell: it is this run's now."""
    published = destination.find_published()
    if published is None:
        return False
    chunk.written, chunk.findings = Written(rows=published.rows, schema=published.columns), published.findings
    chunk.aside = recall_aside(chunk.spec)
    say(f"run {published.run} had published it in the database, so nothing is done again")
    return True


def _digests(codes: Sequence[Code]) -> list[str]:
    return [code.digest for code in codes]


def _local_folder(spark: SparkSession) -> str | None:
    """Where Spark puts files aside on this machine: whoever comes after a killed child removes it."""
    folder = spark.conf.get("spark.local.dir", "")
    return str(folder) if folder else None

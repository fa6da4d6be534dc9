"""Several small chunks in one Spark job, each with exactly the result it would have alone.

The files of all chunks are read by one scan with a partition for each file, and the transformations run once. If the
physical plan moves no row from one partition to another (no shuffle, no union, nothing that counts partitions), then
every output partition holds the rows of one file, and so of one chunk, and Spark names output files by partition. An
aggregate, a sort, a window needs a shuffle: such pipelines are produced chunk by chunk, as is whatever else could tell
chunks apart (variables of the run, actions inside a transformation, rows that depend on chance).

Only pipelines whose author promises that they work row by row (`rowwise: true`) come here, and the promise is checked:
no Spark job of theirs may run while the transformations do, in whatever thread; the plan may hold only what is known to
look at one row (rowwise_plan.py); and two chunks, drawn at random, must have the same plan when each is planned alone,
with the same bytes of every Python function in it. A function may keep state while it sees the rows of a task: with
one in the plan, every chunk must be one small file, which is one task when it is alone, too.
"""

import contextlib
import io
import os
import random
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import unquote, urlsplit

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from opendataflow.errors import JobFailed
from opendataflow.spark.connect import is_address
from opendataflow.spark.files import Written, read_chunk
from opendataflow.spark.files_local import data_files, fsync, option, sync
from opendataflow.spark.files_write import check_writable, describe, one_file_options, save
from opendataflow.spark.keeper_jvm import TAG
from opendataflow.spark.rowwise_plan import NotRowwise, require_rowwise
from opendataflow.spark.spec import ChunkSpec, Place
from opendataflow.spark.steps import Steps, new_steps
from opendataflow.spark.transformations import Code, apply, load_anew

_JOB_SECONDS = 10.0  # in which Spark's own record has a job that has begun
_ONE_FILE_EACH = str(128 * 1024 * 1024)
_ONE_TASK = 4 * 1024 * 1024  # a chunk of one such file is one task when it is alone; smaller files may share one
# Each file is a partition of its own, and the plan that is looked at is the plan that runs.
_CONF = {
    "spark.sql.files.maxPartitionBytes": _ONE_FILE_EACH,
    "spark.sql.files.openCostInBytes": _ONE_FILE_EACH,
    "spark.sql.adaptive.enabled": "false",
    # Plans are compared as text: all of it.
    "spark.sql.debug.maxToStringFields": "1000000",
}
# Physical operators that leave every row in its partition.
_STAYS = frozenset(
    {
        "WholeStageCodegenExec", "InputAdapter", "ProjectExec", "FilterExec", "ColumnarToRowExec", "RowToColumnarExec",
        "GenerateExec", "BroadcastHashJoinExec", "CollectMetricsExec", "ExpandExec", "BatchEvalPythonExec",
        "ArrowEvalPythonExec", "FileSourceScanExec",
    }
)  # fmt: skip
_BROADCAST = "BroadcastExchangeExec"
# Where the rows of what is broadcast may come from: any other (a cache, a checkpoint, an RDD) may hold the chunks' own.
_ORIGINS = frozenset({"FileSourceScanExec", "LocalTableScanExec", "RangeExec", "OneRowRelationExec"})
_NESTED_LOOPS = frozenset({"BroadcastNestedLoopJoinExec", "CartesianProductExec"})
_ENVIRONMENT = ("_data", "encodekey", "decodekey", "encodevalue", "decodevalue")  # what os.environ is made of
_PARTITION = re.compile(r"part-(\d+)-")
_TYPED = ("parquet", "orc")


EMPTY = "it has no rows in the shared job, and so no file that has its types"


class NotShared(JobFailed):
    """These chunks cannot be produced in one job; each must be produced alone."""

    def __init__(self, message: str, *, is_in_code: bool = True) -> None:
        """`is_in_code`: it is so for all chunks, until the code changes."""
        super().__init__(message)
        self.is_in_code = is_in_code


def require_shareable(specs: Sequence[ChunkSpec]) -> None:
    """Raise NotShared when it is not worth trying; what needs the plan is found out later."""
    first = specs[0]
    if not first.rowwise:
        raise NotShared("`rowwise: true` is not promised")
    if first.profile or first.explain:
        raise NotShared("`--profile` and `--explain` are of each chunk")
    if is_address(str(first.spark.get("master") or "")):
        raise NotShared("Spark Connect does not show its plan")
    # A row that is taken out, or a condition in SQL, is found in the write's own pass, which here has many chunks.
    if any(check.takes_out_rows or check.kind == "expression" for check in first.checks):
        raise NotShared("a check needs the write's own pass")
    if option(first.destination.options, "files") is not None:
        raise NotShared("the destination says how many files a chunk has")
    if not all(place.is_local for place in (*first.sources, first.destination)):
        raise NotShared("a chunk is not on this machine")
    mine, *others = first.sources
    if mine.schema is None and mine.format not in (*_TYPED, "text"):
        raise NotShared("the source declares no schema: types are guessed from each file")
    chunk_places = {spec.sources[0].location for spec in specs}
    if len(chunk_places) < len(specs):
        raise NotShared("two chunks are read from the same place", is_in_code=False)
    if any("\n" in place for place in chunk_places):
        raise NotShared("a chunk is read from several chunks of its source")
    if any(list(spec.sources[1:]) != others for spec in specs):
        raise NotShared("the chunks read different chunks of another source")


class Together:
    """One Spark job for these chunks. Whatever is not right about it is an exception, and nothing is published."""

    def __init__(
        self, spark: SparkSession, specs: Sequence[ChunkSpec], codes: Sequence[Code], *, tag: str | None = None
    ) -> None:
        """`tag` is on the Spark jobs of these runs, and on nobody else's; without it, nobody else uses this Spark."""
        self._spark, self._specs, self._codes, self._tag = spark, specs, codes, tag
        self._context: Any = spark.sparkContext
        self._patterns = self._context._jvm.org.apache.spark.sql.catalyst.trees.TreePattern
        self._roots = {os.path.realpath(spec.sources[0].location) for spec in specs}
        for key, value in _CONF.items():
            spark.conf.set(key, value)

    def write(self, steps: Steps) -> dict[int, Written]:
        """Produce all of them; by run, what was written. A chunk without a row is left out: no file has its types."""
        names = {name for spec in self._specs for name in spec.environment}
        with _variables_watched(names) as variables:
            try:
                df = self._transformed(steps)
            finally:
                if variables:  # and perhaps it went on without, or failed for want of it
                    raise NotShared(f"a transformation asks for {min(variables)}, a variable of one run")
        schema = df.schema
        first = self._specs[0]
        check_writable(schema, first.destination)
        if first.destination.format == "csv" and any(field.dataType.typeName() == "binary" for field in schema):
            raise NotShared("bytes are encoded chunk by chunk")
        owners = self._owners(df)
        folder = f"{_folder(first.destination)}/_together"
        try:
            save(df, first.destination, folder, **one_file_options(first.destination))
            return self._hand_out(folder, owners, df)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _transformed(self, steps: Steps) -> DataFrame:
        """All chunks as one DataFrame; raise NotShared unless two of them, each alone, have the same plan.

        Two: what the code makes of one file's name may be the same for all chunks and for the one that it came from.
        """
        df = self._apply(self._specs, steps)
        try:
            require_rowwise(df._jdf.queryExecution().analyzed(), self._reads_chunks)
        except NotRowwise as why:
            raise NotShared(str(why)) from why
        plan = self._plan(df)
        for drawn in random.sample(self._specs, 2):
            # What it prints has been said.
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                alone = self._apply([drawn], new_steps([(code.name, code.digest) for code in self._codes]))
            if alone.schema != df.schema or self._plan(alone) != plan:
                raise NotShared("what a transformation does depends on which files it is given")
        return df

    def _plan(self, df: DataFrame) -> list[Any]:
        """What Spark is to do, without the numbers that it gives to columns, and without the chunks' own files."""
        analyzed = df._jdf.queryExecution().analyzed()
        return [str(analyzed.canonicalized().toString()), *self._functions(analyzed), *self._origins(analyzed)]

    def _functions(self, plan: Any) -> list[Any]:
        """The bytes of all Python functions, which hold what they captured; of these the plan's text has the names."""
        udf = self._patterns.PYTHON_UDF()
        found: list[Any] = []

        def walk(node: Any, *, is_plan: bool) -> None:
            if not node.containsPattern(udf):
                return
            if node.getClass().getSimpleName() == "PythonUDF":
                found.append(node.func().command())
            for expression in _each(node.expressions()) if is_plan else ():
                walk(expression, is_plan=False)
            for child in _each(node.children()):
                walk(child, is_plan=is_plan)

        walk(plan, is_plan=True)
        return found

    def _origins(self, plan: Any) -> list[Any]:
        """The rows that the plan itself holds, and the files of the other sources."""
        found = []
        for leaf in _each(plan.collectLeaves()):
            name = leaf.getClass().getSimpleName()
            if name == "LocalRelation":
                found.append(leaf.data())
            elif name == "LogicalRelation" and not self._reads_chunks(leaf.relation()):
                found.append(leaf.relation().location().rootPaths())  # of files: others are refused
        return found

    def _apply(self, specs: Sequence[ChunkSpec], steps: Steps) -> DataFrame:
        """The transformations, loaded anew, on these chunks; raise NotShared if that starts a Spark job."""
        places = "\n".join(spec.sources[0].location for spec in specs)
        sources = [
            read_chunk(self._spark, replace(specs[0].sources[0], location=places)),
            *(read_chunk(self._spark, place) for place in specs[0].sources[1:]),
        ]
        scheduler = self._context._jsc.sc().dagScheduler()
        jobs = scheduler.numTotalJobs()
        with _asked_for_files() as asked:
            df = apply(load_anew(self._codes, steps), sources, steps)
        self._require_no_own_job(range(jobs, scheduler.numTotalJobs()))
        if asked:
            raise NotShared(f"a transformation asks for {asked[0]}, which is not one chunk's")
        return df

    def _require_no_own_job(self, jobs: Iterable[int]) -> None:
        """Raise NotShared if one of these Spark jobs is these runs': also one that another of their threads started.

        Every job has the tag of the run whose thread started it. One without any may be anybody's.
        """
        if self._tag is None and list(jobs):
            raise NotShared("a transformation looks at its data")
        for job in jobs:
            tags = self._tags_of(job)
            if self._tag in tags:
                raise NotShared("a transformation looks at its data")
            if not any(tag.startswith(TAG) for tag in tags):
                raise NotShared("a Spark job that may be a transformation's ran meanwhile", is_in_code=False)

    def _tags_of(self, job: int) -> list[str]:
        """The tags of a Spark job; Spark tells of a job a moment after it has begun."""
        give_up_at = time.monotonic() + _JOB_SECONDS
        store = self._context._jsc.sc().statusStore()
        while True:
            try:
                return [str(tag) for tag in _each(store.job(job).jobTags())]
            except Exception:  # noqa: BLE001  in whichever words
                if time.monotonic() >= give_up_at:
                    return []
            time.sleep(0.02)

    def _owners(self, df: DataFrame) -> list[int]:
        """The run of each partition; raise NotShared unless every row stays in its file's partition."""
        execution = df._jdf.queryExecution()
        subquery = self._patterns.PLAN_EXPRESSION()
        if execution.analyzed().containsPattern(subquery) or execution.optimizedPlan().containsPattern(subquery):
            raise NotShared("a subquery may look at all chunks")
        if not execution.analyzed().deterministic() or not execution.optimizedPlan().deterministic():
            raise NotShared("what a transformation does depends on chance, or on the partition")
        scan = self._find_scan(execution.executedPlan())
        may_keep_state = execution.analyzed().containsPattern(self._patterns.PYTHON_UDF())
        by_file: dict[str, int] = {}
        for spec in self._specs:
            paths = list(data_files(spec.sources[0].location))
            if may_keep_state and (len(paths) > 1 or any(os.path.getsize(path) > _ONE_TASK for path in paths)):
                why = "a Python function may keep state, and sees other rows where a chunk is alone"
                raise NotShared(why, is_in_code=False)
            for path in paths:
                if by_file.setdefault(os.path.realpath(path), spec.runid) != spec.runid:
                    raise NotShared("two chunks are the same file", is_in_code=False)
        owners = []
        for partition in scan.inputRDD().partitions():
            files = partition.files()
            found = {by_file.get(os.path.realpath(_path(file.filePath().toString()))) for file in files}
            owner = found.pop()
            if found or owner is None:
                raise NotShared("a partition holds the rows of several chunks", is_in_code=False)
            owners.append(owner)
        return owners

    def _reads_chunks(self, relation: Any) -> bool:
        """True for a relation of files, if the chunks' are among them."""
        if relation.getClass().getSimpleName() != "HadoopFsRelation":
            return False
        return any(_is_within(_path(path.toString()), self._roots) for path in _each(relation.location().rootPaths()))

    def _find_scan(self, plan: Any) -> Any:
        """The one scan of the chunks' files, below operators that move no rows."""
        found: list[Any] = []

        def walk(node: Any, *, is_broadcast: bool) -> None:
            name = node.getClass().getSimpleName()
            if name == "ReusedExchangeExec":  # the same rows as where they were exchanged first
                node, name = node.child(), node.child().getClass().getSimpleName()
            children = _each(node.children())
            if name in _NESTED_LOOPS:
                raise NotShared(f"{node.nodeName()} compares every row with every other")
            if is_broadcast and not children and name not in _ORIGINS:
                raise NotShared(f"{node.nodeName()} does not show where its rows come from")
            if name == "FileSourceScanExec":
                is_ours = self._reads_chunks(node.relation())
                if is_ours and is_broadcast:
                    raise NotShared("the chunk is joined with itself")
                if is_ours or not is_broadcast:
                    found.append(node)
            elif name == _BROADCAST:
                is_broadcast = True
            elif not is_broadcast and name not in _STAYS:
                raise NotShared(f"{node.nodeName()} moves rows between partitions")
            for child in children:
                walk(child, is_broadcast=is_broadcast)

        walk(plan, is_broadcast=False)
        if len(found) != 1:
            raise NotShared(f"{len(found)} scans are joined without a broadcast")
        return found[0]

    def _hand_out(self, folder: str, owners: Sequence[int], df: DataFrame) -> dict[int, Written]:
        """Move every file to the run whose rows it holds."""
        files: dict[int, list[str]] = {}
        for path in data_files(folder):
            match = _PARTITION.match(os.path.basename(path))
            if match is None:
                raise NotShared(f"Spark wrote {os.path.basename(path)}, which names no partition", is_in_code=False)
            files.setdefault(owners[int(match[1])], []).append(path)
        written = {}
        for spec in self._specs:
            mine = files.get(spec.runid, [])
            if not mine or (spec.destination.single_file and len(mine) > 1):
                continue
            if spec.destination.single_file:
                _move_file(mine[0], spec.destination.location)
            else:
                os.makedirs(spec.destination.location, exist_ok=True)
                for path in mine:
                    os.rename(path, os.path.join(spec.destination.location, os.path.basename(path)))
                sync(spec.destination.location)
            written[spec.runid] = describe(spec.destination, df.schema)
        return written


def _move_file(path: str, target: str) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    fsync(path)
    os.replace(path, target)
    fsync(os.path.dirname(target))


def _folder(place: Place) -> str:
    return os.path.dirname(place.location) if place.single_file else place.location


@contextlib.contextmanager
def _variables_watched(names: set[str]) -> Iterator[set[str]]:
    """Several runs have no variables of one run: those that the code asks for, also where it goes on without."""
    asked: set[str] = set()

    class Watched(os._Environ[str]):
        def __getitem__(self, name: str) -> str:
            asked.update({name} & names)
            return str(super().__getitem__(name))

    plain = os.environ
    os.environ = Watched(*(getattr(plain, part) for part in _ENVIRONMENT))  # noqa: B003  it is the same environment
    try:
        yield asked
    finally:
        os.environ = plain  # noqa: B003


@contextlib.contextmanager
def _asked_for_files() -> Iterator[list[str]]:
    """What of a DataFrame the code asks for that tells which files, or how many, it was given."""
    asked: list[str] = []
    methods = {name: vars(ClassicDataFrame)[name] for name in ("inputFiles", "semanticHash", "sameSemantics", "rdd")}

    def noting(name: str, plain: Any) -> Any:
        def note(df: Any, *args: Any, **kwargs: Any) -> Any:
            asked.append(f"{name}()")
            return plain(df, *args, **kwargs)

        return note

    for name, plain in methods.items():
        is_property = isinstance(plain, property)
        noted = noting(name, plain.fget if is_property else plain)
        setattr(ClassicDataFrame, name, property(noted) if is_property else noted)
    try:
        yield asked
    finally:
        for name, plain in methods.items():
            setattr(ClassicDataFrame, name, plain)


def _each(sequence: Any) -> list[Any]:
    return [sequence.apply(number) for number in range(sequence.size())]


def _path(uri: str) -> str:
    """The local path of a file as Spark names it."""
    return unquote(urlsplit(uri.replace("#", "%23").replace("?", "%3F")).path)


def _is_within(path: str, roots: set[str]) -> bool:
    path = os.path.realpath(path)
    return path in roots or any(path.startswith(root + "/") for root in roots)

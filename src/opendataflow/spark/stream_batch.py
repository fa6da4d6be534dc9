"""A batch of a stream: its items as a DataFrame or as dicts, its static sources, and the items that the code fails on.

The driver reads the items from the log: executors need not reach it, and a batch is bounded by `max_batch`. Static
sources are read once and kept in Spark's cache until the store has another version of one of them.
"""

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from opendataflow.errors import JobFailed
from opendataflow.private_files import make_folder, opener
from opendataflow.spark.files import read_chunk
from opendataflow.spark.files_read import parse_schema
from opendataflow.spark.spec import ChunkSpec, ItemRange

if TYPE_CHECKING:  # most pipelines are no streams
    from opendataflow.intake.schema import StreamSchema

# Of the session of a stream's batches. They are small, and somebody waits for each.
_SETTINGS = {
    "spark.sql.adaptive.enabled": "false",  # planning stage by stage costs 50 ms, and finds nothing to do
    # The runner says what is complete, and a directory is one run's alone: no marker, and no second move of files.
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "mapreduce.fileoutputcommitter.algorithm.version": "2",
}
ROWS_PART = 0.2  # of the heap
_ROW_BYTES = 64  # of a row beside its values
MOST_ASIDE = 200  # items of one batch: more than that, and it is the code or its data that is wrong, not an item

Item = dict[str, Any]


@dataclass(kw_only=True, slots=True)
class Batch:
    """The items of a range, and why some of them are left out."""

    schema: "StreamSchema"
    items: list[tuple[int, Item]]  # offset and values, in order
    aside: dict[int, str] = field(default_factory=dict)  # offset → error

    @property
    def left(self) -> list[tuple[int, Item]]:
        return [one for one in self.items if one[0] not in self.aside]

    def frame(self, spark: SparkSession, items: Sequence[tuple[int, Item]] | None = None) -> DataFrame:
        """These items, or all that are left, with the declared types."""
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        types = parse_schema(self.schema.ddl)
        rows = [item for _, item in (self.left if items is None else items)]
        table = pa.Table.from_pylist(rows, schema=to_arrow_schema(types, timezone="UTC"))
        return spark.createDataFrame(table, types)

    def aside_json(self) -> list[list[Any]]:
        return [[offset, error] for offset, error in sorted(self.aside.items())]


def read_batch(asked: ItemRange, spark: SparkSession | None = None) -> Batch:
    """The items. Those that do not fit the declared schema are set aside, or else JobFailed is raised.

    With `spark`, the records of a topic stay there.
    """
    if asked.topic is not None:
        from opendataflow.spark.topic_items import read_here, read_in_tasks

        batch = read_in_tasks(spark, asked) if spark is not None else read_here(asked)
    else:
        batch = _read_log(asked)
    if batch.aside and not asked.set_aside:
        offset, error = min(batch.aside.items())
        raise JobFailed(f"item {offset}: {error}")
    return batch


def _read_log(asked: ItemRange) -> Batch:
    from opendataflow.intake.reader import IntakeReader
    from opendataflow.intake.refusals import ItemsRefused
    from opendataflow.intake.schema import StreamSchema

    batch = Batch(schema=StreamSchema(asked.fields), items=[])
    for entry in IntakeReader(asked.folder).read(asked.start, asked.end):
        try:
            typed = batch.schema.typed(entry.items)
        except ItemsRefused:
            _add_those_that_fit(batch, asked, entry.first, entry.objects())
            continue
        numbered = enumerate(typed, entry.first)
        batch.items += [(offset, item) for offset, item in numbered if asked.start <= offset < asked.end]
    return batch


def _add_those_that_fit(batch: Batch, asked: ItemRange, first: int, objects: list[Item]) -> None:
    from opendataflow.intake.refusals import ItemsRefused

    for offset, one in enumerate(objects, first):
        if not asked.start <= offset < asked.end:
            continue
        try:
            batch.items += [(offset, item) for item in batch.schema.typed(json.dumps([one]).encode())]
        except ItemsRefused as error:
            batch.aside[offset] = f"it does not fit the stream's schema any more: {error}"


# Items set aside, and a target that has the others --------------------------------------------------------------------
def note_aside(spec: ChunkSpec, aside: Sequence[Any]) -> None:
    """Write down what a run left out of what it is about to publish in a database.

    Should it die before the store knows, the next run finds the rows there, and here what is not among them.
    """
    path = _note_path(spec)
    if path is None:
        return
    if not aside:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        return
    make_folder(os.path.dirname(path))
    with open(f"{path}.new", "w", encoding="utf-8", opener=opener) as file:
        json.dump(aside, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)


def recall_aside(spec: ChunkSpec) -> list[list[Any]]:
    """What the run left out that published the batch in a database."""
    path = _note_path(spec)
    if path is None or not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return list(json.load(file))


def _note_path(spec: ChunkSpec) -> str | None:
    return os.path.join(spec.items.folder, "aside", f"{spec.dataid}.json") if spec.items is not None else None


# Static sources -------------------------------------------------------------------------------------------------------
class Statics:
    """The static sources of the stream that this process serves, which stay from batch to batch."""

    def __init__(self) -> None:
        self._digest: str | None = None
        self._frames: list[DataFrame] = []
        self._in_cache = 0  # of the frames, those that Spark's cache holds

    def session(self, spark: SparkSession, spec: ChunkSpec) -> SparkSession:
        """A session for one batch: temporary views, functions and settings of another batch are not in it."""
        session = spark.newSession()
        _prepare(session, spec)
        return session

    def sources(self, spark: SparkSession, spec: ChunkSpec) -> list[DataFrame]:
        """As they are in the store now; read anew only when one of them has another version."""
        if self._digest != spec.inputs_digest or not spec.inputs_digest:
            self.forget()
            room = _room(spark)
            for place in spec.sources:
                kept = _keep(read_chunk(spark, place), room)
                room -= kept.row_bytes
                self._in_cache += kept.in_cache
                self._frames.append(kept.frame)
            self._digest = spec.inputs_digest
        return [_in_session(spark, frame) for frame in self._frames]

    def forget(self) -> None:
        frames, self._frames, self._digest, self._in_cache = self._frames, [], None, 0
        for frame in frames:
            with contextlib.suppress(Exception):  # Spark's cache may have been cleared; rows go when nobody has them
                frame.unpersist()

    @contextlib.contextmanager
    def others_cleared(self, spark: SparkSession) -> Iterator[None]:
        """What a transformation cached is of no use to the next batch, and would be there for ever."""
        before = _cached_entries(spark)
        try:
            yield
        finally:
            if _cached_entries(spark) > max(before, self._in_cache):
                self.forget()
                spark.catalog.clearCache()


def _in_session(spark: SparkSession, frame: DataFrame) -> DataFrame:
    """The same rows for code that works in this session: it asks a DataFrame for its session, and names views there."""
    jvm: Any = spark._jvm
    plan = frame._jdf.queryExecution().analyzed()
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan), spark)


def _prepare(spark: SparkSession, spec: ChunkSpec) -> None:
    """Settings for batches; what the project says of one of them holds."""
    # Nobody joins small parts after a shuffle, so there are no more of them than can be worked on at once.
    settings = {**_SETTINGS, "spark.sql.shuffle.partitions": str(spark.sparkContext.defaultParallelism)}
    for key in settings.keys() - (spec.spark.get("conf") or {}).keys():
        spark.conf.set(key, settings[key])


class _Kept(NamedTuple):
    frame: DataFrame
    in_cache: bool
    row_bytes: int  # of the heap, where it is kept as rows


def _room(spark: SparkSession) -> int:
    """How much of the heap static sources may take as rows; none where a lost executor could take them along."""
    jvm: Any = spark._jvm
    is_here = spark.sparkContext.master.startswith("local")
    return int(jvm.java.lang.Runtime.getRuntime().maxMemory() * ROWS_PART) if is_here else 0


def _keep(df: DataFrame, room: int) -> _Kept:
    """The frame, computed now, once, and not within the first batch that needs it.

    As rows if there is room for them: every batch goes through all of them, and taking them out of Spark's compressed
    cache costs 70 ms for a million, which is half of what a batch costs.
    """
    cached = df.persist()
    rows = cached.count()
    row_bytes = rows * (int(cached._jdf.schema().defaultSize()) + _ROW_BYTES)
    if row_bytes > room:
        return _Kept(cached, True, 0)
    frame = cached.localCheckpoint(eager=True)
    cached.unpersist()
    return _Kept(frame, False, row_bytes)


def _cached_entries(spark: SparkSession) -> int:
    return int(spark._jsparkSession.sharedState().cacheManager().numCachedEntries())


# Items that fail ------------------------------------------------------------------------------------------------------
def find_failing(
    items: Sequence[tuple[int, Item]], run: Callable[[Sequence[tuple[int, Item]]], None],
    told: Callable[[Exception], str],
) -> dict[int, str] | None:  # fmt: skip
    """The items that `run` fails on, with the reasons, found by halves; None when they are not to blame.

    That is so when it fails without any item, too, or on very many. None may fail now: then it was a matter of time.
    """
    failing: dict[int, str] = {}

    def search(part: Sequence[tuple[int, Item]]) -> None:
        try:
            run(part)
        except Exception as error:
            if len(part) == 1:
                failing[part[0][0]] = told(error)
                if len(failing) > MOST_ASIDE:
                    raise _TooMany from error
                return
            middle = len(part) // 2
            search(part[:middle])
            search(part[middle:])

    try:
        run([])
        search(items)
    except Exception:  # noqa: BLE001  what the whole batch failed with is told instead
        return None
    return failing


class _TooMany(Exception):
    pass

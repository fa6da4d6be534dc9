"""The published chunks of a dataset as one DataFrame, from their explicit locations: the Spark side of Project.read."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import unquote, urlsplit

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from opendataflow.errors import JobFailed, UsageError
from opendataflow.spark.files import read_chunk
from opendataflow.spark.files_local import data_files
from opendataflow.spark.files_remote import home_of
from opendataflow.spark.spec import Place

DATAID = "dataid"
_FILE = "__file of the chunk"
_COLUMNAR = ("parquet", "orc")


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """One published chunk: where it is, and the columns that its pipeline wrote, where one did."""

    dataid: str
    location: str
    schema: Mapping[str, str] | None = None


def read_published(
    spark: SparkSession, place: Place, sources: Sequence[Source], *,
    columns: Sequence[str] | None = None, with_dataid: bool = False, merge: bool = False,
) -> DataFrame:  # fmt: skip
    """All chunks as one DataFrame; `place` says how they are read, its location is not looked at.

    One read for all chunks of one schema, however many there are. Raises JobFailed that names chunk and column when
    their columns differ, unless `merge`; UsageError for a column that is not there.
    """
    groups = _groups(place, sources, merge=merge)
    frames = [_read(spark, place, group, with_dataid=with_dataid) for group in groups]
    df = frames[0]
    for other in frames[1:]:
        df = df.unionByName(other, allowMissingColumns=True)
    if columns is None:
        return df
    _check_names(place, df.columns, columns)
    wanted = [*columns, DATAID] if with_dataid and DATAID not in columns else columns
    return df.select([F.col(_quoted(name)) for name in wanted])


# Which are alike ------------------------------------------------------------------------------------------------------
def _groups(place: Place, sources: Sequence[Source], *, merge: bool) -> list[list[Source]]:
    """Chunks that one read can take together, in order."""
    if place.schema is not None:
        return [list(sources)]
    if not merge:
        _check_alike(place, sources)
        return [list(sources)]
    found: dict[object, list[Source]] = {}
    for source in sources:
        found.setdefault(_likeness(place, source), []).append(source)
    return list(found.values())


def _likeness(place: Place, source: Source) -> object:
    """The same for chunks whose columns are the same."""
    if source.schema is not None:
        return frozenset(source.schema.items())
    if place.format in _COLUMNAR and "://" not in source.location:
        for path in data_files(source.location):
            return _footer(path, place.format)
    return source.location


def _footer(path: str, format_: str) -> str:
    from pyarrow import orc, parquet

    schema = orc.ORCFile(path).schema if format_ == "orc" else parquet.read_schema(path)
    return str(schema.remove_metadata())


def _check_alike(place: Place, sources: Sequence[Source]) -> None:
    """By what the store knows of them; what it does not know is found when the files are opened."""
    known = [source for source in sources if source.schema is not None]
    if not known:
        return
    first, wanted = known[0], known[0].schema or {}
    for other in known[1:]:
        problems = list(_differences(first.dataid, wanted, other.schema or {}))
        if problems:
            raise JobFailed(
                f"{place.datasetid}/{other.dataid}: {'; '.join(problems)}; `merge=True` reads both, with nulls where a "
                "chunk has no such column"
            )


def _differences(dataid: str, wanted: Mapping[str, str], found: Mapping[str, str]) -> Iterator[str]:
    for name, type_ in wanted.items():
        if name not in found:
            yield f"column {name!r} of {dataid} is not there"
        elif found[name] != type_:
            yield f"column {name!r} is {found[name]}, in {dataid} it is {type_}"
    for name in found:
        if name not in wanted:
            yield f"column {name!r} is new, {dataid} has none"


# Reading --------------------------------------------------------------------------------------------------------------
def _read(spark: SparkSession, place: Place, group: Sequence[Source], *, with_dataid: bool) -> DataFrame:
    schema = place.schema
    if schema is None and place.format not in _COLUMNAR and all(source.schema is not None for source in group):
        schema = group[0].schema  # as it was written; Spark would guess
    df = read_chunk(spark, replace(place, location="\n".join(source.location for source in group), schema=schema))
    return _add_dataid(spark, place, df, group) if with_dataid else df


def _add_dataid(spark: SparkSession, place: Place, df: DataFrame, group: Sequence[Source]) -> DataFrame:
    """With the dataid of each row's chunk, told by the file it comes from.

    A literal for each chunk would need a read for each; names of directories are not looked at by Spark, since it makes
    42 of `00042`.
    """
    if DATAID in df.columns:
        raise UsageError(f"{place.datasetid} has a column {DATAID!r} of its own; read it without `with_dataid`")
    if len(group) == 1:
        return df.withColumn(DATAID, F.lit(group[0].dataid))
    names = spark.createDataFrame(list(_by_file(df.inputFiles(), group)), f"`{_FILE}` string, {DATAID} string")
    named = _with_file(df)
    joined = named.join(F.broadcast(names), on=_FILE, how="inner")
    return joined.select([*(F.col(_quoted(name)) for name in df.columns), F.col(DATAID)])


def _with_file(df: DataFrame) -> DataFrame:
    """With each row's file. Above the scan itself that is a plain column, below which filters still go to the files."""
    try:
        named = df.select("*", df.metadataColumn("_metadata")["file_path"].alias(_FILE))
        named.columns  # noqa: B018  Connect finds out here
    except PySparkException:
        return df.select("*", F.input_file_name().alias(_FILE))
    return named


def _by_file(files: Sequence[str], group: Sequence[Source]) -> Iterator[tuple[str, str]]:
    """Every file with the dataid of its chunk; a local file has two spellings."""
    dataids = {source.location.rstrip("/"): source.dataid for source in group}
    for uri in files:
        place = _plain(uri)
        while place not in dataids and "/" in place:
            place = os.path.dirname(place)
        dataid = dataids[place]
        yield uri, dataid
        if uri.startswith("file:///"):
            yield f"file:/{uri.removeprefix('file:///')}", dataid


def _plain(uri: str) -> str:
    """A location as it was given to Spark, from how Spark names its files."""
    parts = urlsplit(uri)
    path = unquote(parts.path)
    return home_of(path) if parts.scheme in ("", "file") else f"{parts.scheme}://{parts.netloc}{path}"


def _check_names(place: Place, known: Sequence[str], wanted: Sequence[str]) -> None:
    for name in wanted:
        if name not in known:
            from difflib import get_close_matches

            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known)}"
            raise UsageError(f"{place.datasetid} has no column {name!r}; {hint}")


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"

"""A pandas DataFrame as the files of a chunk, in types that Spark reads.

It runs in Spark's workers, where OpenDataFlow may not be installed: what it uses of ours is sent along.
"""

import json
import os
from typing import Any

from opendataflow.checks.arrow_types import from_arrow, to_arrow
from opendataflow.domain.types.datatype import DataType
from opendataflow.domain.types.spark import DECIMAL, family, spark_type
from opendataflow.domain.types.values import INTEGER, NUMERIC
from opendataflow.spark.pandas_files import DataError, Place, csv_options, local_path


def write_destination(df: Any, place: Place, attempt: str) -> dict[str, Any]:
    """Write the whole chunk under a name of this attempt, make it durable, then give it its own name."""
    path, hidden = _names(place, attempt)
    folder = os.path.dirname(path)
    try:
        os.makedirs(folder, exist_ok=True)
        schema = _write_file(df, place, hidden)
        _fsync(hidden)
        os.replace(hidden, path)
        for changed in (folder, os.path.dirname(folder)):
            _fsync(changed)
    except OSError as error:
        raise DataError(f"{place['datasetid']}: {path} cannot be written: {error.strerror or error}") from error
    return {"rows": len(df), "schema": json.dumps(schema, ensure_ascii=False)}


def remove_leftover(place: Place, attempt: str) -> None:
    """Remove what an attempt that did not come to its end may have left."""
    try:
        os.unlink(_names(place, attempt)[1])
    except OSError:
        pass


def _names(place: Place, attempt: str) -> tuple[str, str]:
    """The file's name, and the one it has until it is whole."""
    path = local_path(place["locations"][0])
    if not place["single_file"]:
        path = os.path.join(path, f"part-00000.{'txt' if place['format'] == 'text' else place['format']}")
    folder, name = os.path.split(path)
    # The ending stays: it tells pandas how to compress. Two attempts of one task may be here at the same time.
    return path, os.path.join(folder, f".{attempt}-{name}")


def _write_file(df: Any, place: Place, path: str) -> dict[str, str]:
    """Write one file; returns its columns and their Spark types."""
    codec = {key.lower(): value for key, value in place["options"].items()}.get("compression", "snappy")
    match place["format"]:
        case "csv":
            _write_csv(df, place, path)
        case "json":
            df.to_json(path, orient="records", lines=True, date_format="iso", force_ascii=False)
        case "text":
            _write_text(df, place, path)
        case "parquet":
            from pyarrow import parquet

            table = _table(df, place)
            parquet.write_table(table, path, compression="none" if codec == "uncompressed" else codec)
            return {field.name: _spark_type(field.type) for field in table.schema}
        case "orc":
            from pyarrow import orc

            table = _table(df, place)
            orc.write_table(table, path, compression=codec)
            return {field.name: _spark_type(field.type) for field in table.schema}
        case other:
            raise DataError(f"{place['datasetid']}: format {other} cannot be written by the pandas engine")
    return {str(name): _seen_type(series) for name, series in df.items()}


def _write_csv(df: Any, place: Place, path: str) -> None:
    options = csv_options(place)
    df.to_csv(
        path,
        index=False,
        header="header" not in options,
        sep=options.get("sep", ","),
        encoding=options.get("encoding"),
        quotechar=options.get("quotechar", '"'),
        escapechar=options.get("escapechar"),
        na_rep=options.get("na_values", [""])[0],
    )


def _write_text(df: Any, place: Place, path: str) -> None:
    if len(df.columns) != 1:
        raise DataError(f"{place['datasetid']}: text has one column, and the result has {len(df.columns)}")
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.writelines(f"{'' if value is None else value}\n" for value in df.iloc[:, 0])


def _fsync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# Types ------------------------------------------------------------------------------------------------------------
def _table(df: Any, place: Place) -> Any:
    """The DataFrame in Arrow, without its index, in types that Spark reads."""
    import pyarrow

    names = [str(name) for name in df.columns]
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise DataError(f"{place['datasetid']}: two columns of the result are named {twice[0]!r}")
    declared = place["schema"] or {}
    columns = [
        _for_spark(_array(series, name, place), name, place, spark_type(str(declared.get(name, ""))))
        for name, (_, series) in zip(names, df.items(), strict=True)
    ]
    return pyarrow.table(columns, names=names)


def _array(series: Any, name: str, place: Place) -> Any:
    import pyarrow

    try:
        return pyarrow.array(series, from_pandas=True)
    except (pyarrow.ArrowException, TypeError, OverflowError) as error:
        kinds = sorted({type(value).__name__ for value in series.dropna()})
        told = f"{place['datasetid']}: column {name!r} holds {' and '.join(kinds)}"
        if len(kinds) > 1:
            raise DataError(
                f"{told}, and a {place['format']} column holds one type; convert it, as in "
                f"df[{name!r}] = df[{name!r}].astype(str)"
            ) from error
        raise DataError(f"{told}, which cannot be written as {place['format']}: {error}") from error


def _for_spark(array: Any, name: str, place: Place, declared: DataType) -> Any:
    """The column in a type that Spark reads; in the declared one where that only means another size of number."""
    import pyarrow
    from pyarrow import types

    kind = array.type
    if types.is_dictionary(kind):
        array = array.cast(kind.value_type)
        kind = array.type
    if types.is_timestamp(kind):
        # Spark counts microseconds; a time without zone is UTC's, as everywhere in a session of ours.
        array = array.cast(pyarrow.timestamp("us", tz=kind.tz), safe=False)
        return array if declared.name == "timestamp_ntz" else array.cast(pyarrow.timestamp("us", tz="UTC"))
    if types.is_duration(kind) or isinstance(kind, pyarrow.BaseExtensionType):
        raise DataError(
            f"{place['datasetid']}: column {name!r} is of type {kind}, which Spark cannot read from {place['format']}; "
            f"convert it, as in df[{name!r}] = df[{name!r}].astype(str)"
        )
    wanted = to_arrow(declared) if family(declared) in (INTEGER, NUMERIC) and declared.name != DECIMAL else None
    if types.is_null(kind):
        return array.cast(wanted or pyarrow.string())
    if types.is_float16(kind):
        array = array.cast(pyarrow.float32())
    if types.is_date64(kind):
        array = array.cast(pyarrow.date32())
    if wanted is not None and (types.is_integer(kind) or types.is_floating(kind)):
        try:
            return array.cast(wanted)
        except pyarrow.ArrowInvalid:
            return array  # a number that does not fit: the check of the schema names the column
    return array


def _seen_type(series: Any) -> str:
    """The Spark type of a column of a file without types; text where it holds anything."""
    import pyarrow

    if series.dtype != object:
        series = series.iloc[:0]  # the dtype tells; there is no need to look at the values
    try:
        kind = pyarrow.array(series, from_pandas=True).type
        return "timestamp" if pyarrow.types.is_timestamp(kind) else _spark_type(kind)
    except (pyarrow.ArrowException, TypeError, OverflowError):
        return "string"


def _spark_type(kind: Any) -> str:
    found = from_arrow(kind)
    return str(kind) if found is None else str(found)

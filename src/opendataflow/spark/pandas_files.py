"""The files of a chunk as pandas reads them: a CSV as `pandas.read_csv` would.

It runs in Spark's workers, where OpenDataFlow may not be installed: what it uses of ours is sent along.
A place is a dictionary: datasetid, locations, format, options, schema, single_file.
"""

import os
from collections.abc import Iterator
from typing import Any

from opendataflow.domain.types.datatype import DataType
from opendataflow.domain.types.spark import DECIMAL, SIMPLE, spark_type

Place = dict[str, Any]


class DataError(Exception):
    """What is wrong with a chunk's data, as one sentence that names dataset, file and column."""


def local_path(location: str) -> str:
    path = location.removeprefix("file://")
    if "://" in path:
        raise DataError(
            f"{location}: the pandas engine reads and writes mounted file systems only; "
            "write `engine: spark` at the pipeline, with code for PySpark"
        )
    return path


def data_files(place: Place) -> list[str]:
    """The chunk's files in order: hidden ones (`_SUCCESS`, checksums) are not data."""
    return [file for location in place["locations"] for file in sorted(_files(local_path(location)))]


def _files(path: str) -> Iterator[str]:
    if not os.path.isdir(path):
        yield path
        return
    for folder, subfolders, names in os.walk(path):
        subfolders[:] = [name for name in subfolders if not name.startswith(("_", "."))]
        yield from (os.path.join(folder, name) for name in names if not name.startswith(("_", ".")))


# Read -------------------------------------------------------------------------------------------------------------
def read_source(place: Place) -> Any:
    """The chunk as one DataFrame; DataError says what keeps it from being read."""
    import pandas

    files = data_files(place)
    if not files:
        raise DataError(f"{place['datasetid']}: there are no files in {', '.join(place['locations'])}")
    frames = [_read_file(place, file) for file in files]
    return frames[0] if len(frames) == 1 else pandas.concat(frames, ignore_index=True)


def _read_file(place: Place, file: str) -> Any:
    import pandas

    try:
        match place["format"]:
            case "csv":
                return _read_csv(place, file)
            case "json":
                return pandas.read_json(file, lines=True)
            case "parquet":
                df = pandas.read_parquet(file)
            case "orc":
                df = pandas.read_orc(file)
            case "text":
                with open(file, encoding=encoding_of(place) or "utf-8", newline="") as lines:
                    return pandas.DataFrame({"value": lines.read().splitlines()}, dtype=object)
            case other:
                raise DataError(f"{place['datasetid']}: format {other} cannot be read by the pandas engine")
        _require_columns(place, file, list(df.columns))
        return df
    except (DataError, MemoryError):
        raise
    except OSError as error:
        raise DataError(f"{place['datasetid']}: {file}: {error.strerror or error}") from error
    except Exception as error:
        text = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{place['datasetid']}: {file} cannot be read as {place['format']}: {text}") from error


def _read_csv(place: Place, file: str) -> Any:
    """As the user's own `pandas.read_csv(file)` would; a declared schema decides the types instead."""
    import pandas

    options = csv_options(place)
    declared: dict[str, str] = place["schema"] or {}
    if not declared:
        return pandas.read_csv(file, **options)
    if options.get("header", 0) is None:
        options["names"] = list(declared)
    else:
        _require_columns(place, file, list(pandas.read_csv(file, nrows=0, **options).columns), all_of_them=True)
    types = {column: dtype_of(spark_type(type_)) or "str" for column, type_ in declared.items()}
    try:
        df = pandas.read_csv(file, dtype=types, **options)
    except (ValueError, TypeError):
        _name_bad_column(place, file, types, options)
        raise
    for column, type_ in declared.items():
        df[column] = _convert(place, file, df[column], type_.lower())
    return df


def dtype_of(found: DataType) -> str:
    """The dtype of pandas for numbers and truths; empty for all other types."""
    return SIMPLE[found.name].pandas if found.name in SIMPLE else ""


def csv_options(place: Place) -> dict[str, Any]:
    """Options of the dataset, in pandas's words; those that only Spark knows do not matter here."""
    given = {key.lower(): value for key, value in place["options"].items()}
    options: dict[str, Any] = {}
    if separator := given.get("sep") or given.get("delimiter"):
        options["sep"] = separator
    if encoding_of(place):
        options["encoding"] = encoding_of(place)
    if str(given.get("header", True)).lower() == "false":
        options["header"] = None
    if given.get("quote"):
        options["quotechar"] = given["quote"]
    if given.get("escape") and given["escape"] != given.get("quote", '"'):
        options["escapechar"] = given["escape"]
    if given.get("comment"):
        options["comment"] = given["comment"]
    if given.get("nullvalue"):
        options["na_values"] = [given["nullvalue"]]
    return options


def encoding_of(place: Place) -> str | None:
    given = {key.lower(): value for key, value in place["options"].items()}
    return given.get("encoding") or given.get("charset")


def _require_columns(place: Place, file: str, found: list[Any], *, all_of_them: bool = False) -> None:
    declared = list(place["schema"] or {})
    problems = [f"column {column!r} is declared, but not there" for column in declared if column not in found]
    if all_of_them:
        problems += [f"column {column!r} is there, but not declared" for column in found if column not in declared]
    if problems:
        raise DataError(f"{place['datasetid']}: {'; '.join(problems)}: {file}")


def _name_bad_column(place: Place, file: str, types: dict[str, str], options: dict[str, Any]) -> None:
    """Raise DataError for the first value that is not of its column's type; slow, and only after a failure."""
    import pandas

    text = pandas.read_csv(file, dtype=str, **options)
    for column, dtype in types.items():
        if dtype == "str":
            continue
        values = text[column].dropna()
        if dtype == "boolean":
            bad = ~values.str.lower().isin(("true", "false"))
        else:
            numbers = pandas.to_numeric(values, errors="coerce")
            bad = numbers.isna() | ((numbers % 1 != 0) if dtype.startswith("Int") else False)
        if bad.any():
            _refuse_value(place, file, column, place["schema"][column], values[bad])


def _refuse_value(place: Place, file: str, column: str, type_: str, bad: Any) -> None:
    raise DataError(
        f"{place['datasetid']}: column {column!r} is declared as {type_}, but record {bad.index[0] + 1} has "
        f"{bad.iloc[0]!r}: {file}"
    )


def _convert(place: Place, file: str, series: Any, type_: str) -> Any:
    """The column as the declared type is in pandas; numbers without nulls in numpy's own types, as users expect."""
    import pandas

    found = spark_type(type_)
    if dtype := dtype_of(found):
        whole = dtype[0] in "Ib" and not series.isna().any()
        return series.astype(dtype.lower().replace("boolean", "bool")) if whole else series
    try:
        if found.name in ("timestamp", "timestamp_ntz"):
            return pandas.to_datetime(series, format="ISO8601", utc=found.name == "timestamp")
        if found.name == "date":
            return pandas.to_datetime(series, format="ISO8601").dt.date
    except ValueError:
        bad = pandas.to_datetime(series, format="ISO8601", errors="coerce", utc=True).isna() & series.notna()
        _refuse_value(place, file, series.name, type_, series[bad] if bad.any() else series)
    if found.name == DECIMAL:
        return _decimals(place, file, series, type_)
    return series


def _decimals(place: Place, file: str, series: Any, type_: str) -> Any:
    from decimal import Decimal, InvalidOperation

    def parse(value: Any) -> Any:
        try:
            return Decimal(value) if isinstance(value, str) else None
        except InvalidOperation:
            _refuse_value(place, file, series.name, type_, series[series == value])

    return series.map(parse)

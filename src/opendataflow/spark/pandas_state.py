"""The dataset that a stream folds its items into, kept between batches as pandas had it: index, types, missing values.

It stands alone but for its neighbours that do too: it runs in Spark's workers, where OpenDataFlow may not be installed.
"""

import json
import os
from typing import Any

from opendataflow.spark.pandas_files import DataError

_NAN = b"dataflow.nan"  # in the file's metadata: the columns of objects whose missing values are NaN, and not None


def write_state(df: Any, path: str, attempt: str, *, max_bytes: int) -> None:
    """Keep it, whole or not at all; DataError when that cannot be done exactly, or when it is too large."""
    import pyarrow
    from pyarrow import parquet

    try:
        table = pyarrow.Table.from_pandas(df)
    except (pyarrow.ArrowException, TypeError, ValueError, OverflowError) as error:
        words = " ".join(str(error).split())
        raise DataError(
            f"the dataset that the code returns cannot be kept for the next item: {words}; each column needs values of "
            "one type, and each name one column"
        ) from error
    nan = json.dumps([str(name) for number, name in enumerate(df.columns) if _has_nan(df.iloc[:, number])])
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), _NAN: nan.encode()})
    folder, name = os.path.split(path)
    hidden = os.path.join(folder, f".{attempt}-{name}")
    os.makedirs(folder, exist_ok=True)
    try:
        parquet.write_table(table, hidden)
        size = os.stat(hidden).st_size
        if size > max_bytes:
            raise DataError(
                f"the dataset has grown to {size / 1e6:,.0f} MB, and {max_bytes / 1e6:,.0f} MB is the most: a stream "
                "that returns the whole dataset writes all of it for each batch. Return only the items that came, with "
                "`returns: items`, or raise `max_size`"
            )
        handle = os.open(hidden, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)
        os.replace(hidden, path)
    except BaseException:
        if os.path.exists(hidden):
            os.unlink(hidden)
        raise


def read_state(path: str) -> Any:
    """The dataset as it was kept."""
    import numpy
    import pyarrow
    from pyarrow import parquet

    try:
        table = parquet.ParquetFile(path).read()
    except FileNotFoundError as error:
        raise DataError(
            f"the dataset before these items is not kept any more: {path}; `dataflow stream replay --since 1970-01-01` "
            "builds it from the log"
        ) from error
    df = table.to_pandas()
    nan = set(json.loads((table.schema.metadata or {}).get(_NAN, b"[]")))
    for number, name in enumerate(df.columns):
        column = df.iloc[:, number]
        if column.dtype != object:
            continue
        kind = table.schema.field(str(name)).type
        if pyarrow.types.is_nested(kind):  # pandas would make arrays of lists
            values = table.column(str(name)).to_pylist()
            df[name] = _objects(values, df.index)
        if str(name) in nan:
            df[name] = df[name].where(df[name].notna(), numpy.nan)
    return df


def _objects(values: list[Any], index: Any) -> Any:
    import numpy
    import pandas

    held: Any = numpy.empty(len(values), dtype=object)
    held[:] = values
    return pandas.Series(held, index=index, dtype=object)


def _has_nan(column: Any) -> bool:
    """True for objects whose missing values are all NaN."""
    if column.dtype != object:
        return False
    missing = column[column.isna()]
    return len(missing) > 0 and all(isinstance(value, float) for value in missing)

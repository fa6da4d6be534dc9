"""Examples as DataFrames, and DataFrames as tables of plain values.

Rows written as dicts become a Spark DataFrame with columns in the order of their first appearance, and types that fit
all rows: int, float (also where some are int), str, bool, date, timestamp, decimal, bytes; dicts are structs, lists are
arrays, and a column without any value is a string. In pandas they become what `pandas.DataFrame(rows)` makes of them.
"""

import copy
import datetime
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from opendataflow.errors import JobFailed
from opendataflow.spark.compare import Table, is_null, shown_column

if TYPE_CHECKING:  # each engine is imported where its DataFrames are
    import pandas
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

_PRECISION = 38  # of Spark's decimals, at most
_LONG = 2**63
_ROW_IN_PARTITION = 2**33 - 1  # the lower bits of Spark's growing id; the upper ones are the partition


class ExampleError(JobFailed):
    """The example itself is not right; the message says what of it."""


# To tables --------------------------------------------------------------------------------------------------------
def is_pandas(value: object) -> bool:
    return _is(value, "pandas.", "DataFrame")


def is_spark(value: object) -> bool:
    return _is(value, "pyspark.sql.", "DataFrame")


def _is(value: object, package: str, name: str) -> bool:
    """Whether a class of this name is among its own, without importing the package for it."""
    return any(kind.__name__ == name and kind.__module__.startswith(package) for kind in type(value).__mro__)


def table_of(value: Any, what: str, *, most: int | None = None) -> Table:
    """At most so many rows of an example, or of a result, as plain values. `what` names it in errors."""
    if is_pandas(value):
        return _pandas_table(value, what, most)
    if is_spark(value):
        return _spark_table(value, what, most)
    rows = [{key: plain(cell) for key, cell in row.items()} for row in rows_of(value, what)]
    columns = tuple(dict.fromkeys(key for row in rows for key in row))
    return Table(columns=columns, rows=rows[:most], cut_off=most is not None and len(rows) > most)


def rows_of(value: Any, what: str) -> list[Mapping[Any, Any]]:
    """The rows of an example that is no DataFrame: dicts, or one dict of columns, or one of a single row."""
    if isinstance(value, Mapping):
        return _rows_of_mapping(value, what)
    if not isinstance(value, list | tuple) or hasattr(value, "asDict"):
        raise ExampleError(f"{what} is {_kind(value)}; give a list of dicts, or a DataFrame")
    rows = [row.asDict() if hasattr(row, "asDict") else row for row in value]
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            raise ExampleError(f"{what} has {_kind(row)} for row {number}; each row is a dict")
    return rows


def _rows_of_mapping(value: Mapping[Any, Any], what: str) -> list[Mapping[Any, Any]]:
    lists = [cell for cell in value.values() if isinstance(cell, list | tuple)]
    if not lists:
        return [value]
    sizes = {len(cell) for cell in lists}
    if len(lists) < len(value) or len(sizes) > 1:
        raise ExampleError(f"{what} is a dict whose columns are not lists of one length; give a list of dicts")
    return [dict(zip(value, cells, strict=True)) for cells in zip(*value.values(), strict=True)]


def _kind(value: object) -> str:
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _pandas_table(df: "pandas.DataFrame", what: str, most: int | None) -> Table:
    columns = _distinct(df.columns.tolist(), what)
    cut = df if most is None else df.iloc[:most]
    values = [[plain(cell) for cell in cut[column].astype(object)] for column in columns]
    cells = zip(*values, strict=True) if values else ([] for _ in range(len(cut)))
    rows = [dict(zip(columns, row, strict=True)) for row in cells]
    index = tuple(name for name in df.index.names if name is not None)
    return Table(columns=columns, rows=rows, cut_off=len(df) > len(rows), index=index)


def _spark_table(df: "DataFrame", what: str, most: int | None) -> Table:
    """The first rows of every partition are taken by a filter: a `limit` would have Spark sort otherwise than a run."""
    columns = _distinct(df.columns, what)
    first = df if most is None else df.where(f"(monotonically_increasing_id() & {_ROW_IN_PARTITION}) <= {most}")
    rows = first.collect()
    kept = [dict(zip(columns, (plain(cell) for cell in row), strict=True)) for row in rows[:most]]
    return Table(columns=columns, rows=kept, cut_off=len(rows) > len(kept))


def _distinct(columns: Sequence[Any], what: str) -> tuple[Any, ...]:
    twice = next((one for number, one in enumerate(columns) if one in columns[:number]), None)
    if twice is not None:
        raise ExampleError(f"{what} has two columns {shown_column(twice)}; rename or drop one")
    return tuple(columns)


def plain(value: Any) -> Any:
    """A value without the wrapping of numpy, pandas and Spark, all the way down."""
    if is_null(value):
        return None
    if hasattr(value, "asDict"):  # of Spark
        value = value.asDict()
    if isinstance(value, Mapping):
        return {key: plain(cell) for key, cell in value.items()}
    if isinstance(value, list | tuple):
        return [plain(cell) for cell in value]
    if isinstance(value, bytearray):
        return bytes(value)
    package = type(value).__module__.partition(".")[0]
    return _unwrapped(value) if package in ("numpy", "pandas") else value


def _unwrapped(value: Any) -> Any:
    kind = type(value).__name__
    if kind in ("datetime64", "timedelta64"):
        import pandas

        value = pandas.Timestamp(value) if kind == "datetime64" else pandas.Timedelta(value)
        return plain(value)
    if kind == "ndarray":
        return plain(value.tolist())
    if kind == "Timestamp":
        return value if value.nanosecond else value.to_pydatetime()
    if kind == "Timedelta":
        return value if value.nanoseconds else value.to_pytimedelta()
    return plain(value.item()) if hasattr(value, "item") and hasattr(value, "dtype") else value


# To pandas --------------------------------------------------------------------------------------------------------
def pandas_frame(value: Any, what: str) -> "pandas.DataFrame":
    """A DataFrame of its own: what the code does to it does not reach the example."""
    import pandas

    if is_spark(value):
        raise ExampleError(f"{what} is a Spark DataFrame, and the pipeline runs on pandas; give a list of dicts")
    if not is_pandas(value):
        return pandas.DataFrame(copy.deepcopy(rows_of(value, what)))
    own = value.copy(deep=True)
    if own.columns.is_unique:
        for column in own.select_dtypes("object"):  # lists and dicts in cells are not copied by that
            own[column] = pandas.Series([copy.deepcopy(cell) for cell in own[column]], own.index, dtype=object)
    return own


# To Spark ---------------------------------------------------------------------------------------------------------
def spark_frame(spark: "SparkSession", value: Any, what: str) -> "DataFrame":
    """A Spark DataFrame with the rows of an example."""
    from pyspark.sql.types import StructField, StructType

    if is_spark(value):
        return value
    table = table_of(value, what)
    for column in table.columns:
        if not isinstance(column, str):
            raise ExampleError(f"{what} has a column {column!r}; names of columns are strings in Spark")
    fields, columns = [], []
    for column in table.columns:
        cells = [row.get(column) for row in table.rows]
        kind = _type_of(cells, f"{what}, column {shown_column(column)}")
        fields.append(StructField(str(column), kind))
        columns.append([_fitted(cell, kind) for cell in cells])
    rows = list(zip(*columns, strict=True)) if columns else [()] * len(table.rows)
    return spark.createDataFrame(rows, StructType(fields))


def _type_of(cells: Sequence[Any], where: str) -> "DataType":
    """The one type that fits all cells, or ExampleError naming two that do not go together."""
    from pyspark.sql import types

    found: dict[str, int] = {}
    for number, cell in enumerate(cells, 1):
        if cell is not None:
            found.setdefault(_name_of(cell, where), number)
    kinds = frozenset(found)
    known = [cell for cell in cells if cell is not None]
    if not kinds:
        return types.StringType()
    if kinds == {"dict"}:
        names = dict.fromkeys(str(key) for cell in known for key in cell)
        return types.StructType(
            [types.StructField(key, _type_of([cell.get(key) for cell in known], f"{where}.{key}")) for key in names]
        )
    if kinds == {"list"}:
        return types.ArrayType(_type_of([item for cell in known for item in cell], f"{where}[]"))
    if kinds <= {"int", "Decimal"} and ("Decimal" in kinds or any(not -_LONG <= cell < _LONG for cell in known)):
        scale = max(_scale(cell) for cell in known)
        return types.DecimalType(_PRECISION, min(scale, _PRECISION))
    for together, kind in (
        ({"int"}, types.LongType()),
        ({"int", "float"}, types.DoubleType()),
        ({"bool"}, types.BooleanType()),
        ({"str"}, types.StringType()),
        ({"bytes"}, types.BinaryType()),
        ({"date"}, types.DateType()),
        ({"date", "datetime"}, types.TimestampType()),
        ({"timedelta"}, types.DayTimeIntervalType()),
    ):
        if kinds <= together:
            return kind
    (one, first), (other, second), *_ = found.items()
    raise ExampleError(
        f"{where} holds {_article(one)} in row {first} and {_article(other)} in row {second}; "
        "a column of Spark has one type"
    )


def _name_of(cell: Any, where: str) -> str:
    for kind in (bool, int, float, str, Decimal, datetime.datetime, datetime.date, datetime.timedelta, bytes, list):
        if isinstance(cell, kind):
            return kind.__name__
    if isinstance(cell, Mapping):
        return "dict"
    raise ExampleError(f"{where} holds {_kind(cell)}, which Spark has no type for; give a DataFrame that is made of it")


def _article(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aei" else f"a {kind}"


def _scale(number: int | Decimal) -> int:
    exponent = number.as_tuple().exponent if isinstance(number, Decimal) else 0
    return max(0, -exponent) if isinstance(exponent, int) else 0


def _fitted(cell: Any, kind: "DataType") -> Any:
    """The cell in the Python type that Spark wants for this type."""
    name = type(kind).__name__
    if cell is None:
        return None
    if name == "DoubleType":
        return float(cell)
    if name == "DecimalType":
        return Decimal(cell)
    if name == "TimestampType" and not isinstance(cell, datetime.datetime):
        return datetime.datetime.combine(cell, datetime.time.min)
    if name == "ArrayType":
        return [_fitted(item, kind.elementType) for item in cell]
    if name == "StructType":
        return tuple(_struct(cell, kind))
    return cell


def _struct(cell: Mapping[Any, Any], kind: "DataType") -> Iterator[Any]:
    own = {str(key): value for key, value in cell.items()}
    return (_fitted(own.get(field.name), field.dataType) for field in kind.fields)

"""Items of a file, CSV with a header or one JSON object a line, in parts as the log takes them."""

import csv
import json
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from pydantic_core import to_json

from opendataflow.domain.streams import Field
from opendataflow.domain.types.spark import family
from opendataflow.errors import UsageError
from opendataflow.intake.refusals import ItemsRefused, NotJson
from opendataflow.intake.schema import Items, StreamSchema

CSV, NDJSON = "csv", "ndjson"
_SUFFIXES = {".csv": CSV, ".ndjson": NDJSON, ".jsonl": NDJSON, ".json": NDJSON}
_WHOLE = re.compile(r"[+-]?[0-9]{1,30}")
_FLOATING = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_TRUTHS = {"true": True, "false": False}
PART_BYTES = 8 << 20

Row = tuple[int, Any]  # the line's number, and what stands there
_Column = tuple[Field, str]  # with the family of its type


def format_of(path: str) -> str:
    """csv or ndjson, by the file's name."""
    found = next((format_ for suffix, format_ in _SUFFIXES.items() if path.lower().endswith(suffix)), None)
    if found is None:
        raise UsageError(f"{path}: items are read from .csv or .ndjson files")
    return found


def read_parts(
    path: str, schema: StreamSchema, *, at_once: int = 1000, most_bytes: int = PART_BYTES, format_: str | None = None
) -> Iterator[Items]:
    """The file's items, checked, so many in a part; the same file gives the same parts each time.

    Raises UsageError that names file and line for an item that does not fit.
    """
    is_csv = (format_ or format_of(path)) == CSV
    rows = _csv_rows(path, schema) if is_csv else _lines(path)
    try:
        while part := list(islice(rows, at_once)):
            yield from _parts(path, schema, part, most_bytes, is_csv=is_csv)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8: {error.reason} near byte {error.start}") from None
    except csv.Error as error:
        raise UsageError(f"{path} is no CSV: {error}") from None


def count_items(path: str, schema: StreamSchema, *, format_: str | None = None) -> int:
    """How many items the file has; raises UsageError for the first that does not fit."""
    return sum(part.count for part in read_parts(path, schema, format_=format_))


def _parts(path: str, schema: StreamSchema, rows: Sequence[Row], most: int, *, is_csv: bool) -> Iterator[Items]:
    items = _checked(path, schema, rows, is_csv=is_csv)
    if len(items.data) <= most:
        yield items
    elif len(rows) == 1:
        raise UsageError(f"{path} line {rows[0][0]}: the item has more than {most:,} bytes")
    else:
        middle = len(rows) // 2
        yield from _parts(path, schema, rows[:middle], most, is_csv=is_csv)
        yield from _parts(path, schema, rows[middle:], most, is_csv=is_csv)


def _checked(path: str, schema: StreamSchema, rows: Sequence[Row], *, is_csv: bool) -> Items:
    try:
        if is_csv:
            return schema.parse(to_json([row for _, row in rows], inf_nan_mode="constants"))
        return schema.parse(b"\n".join(row for _, row in rows), lines=True)
    except ItemsRefused as error:
        first = error.problems[0]
        where = f"{path} line {rows[first.index][0]}"
        raise UsageError(f"{where}: {f'{first.field}: ' if first.field else ''}{first.reason}") from None
    except NotJson as error:
        if len(rows) == 1:
            raise UsageError(f"{path} line {rows[0][0]} is no JSON object: {error}") from None
        for row in rows:
            _checked(path, schema, [row], is_csv=is_csv)
        raise


def _lines(path: str) -> Iterator[Row]:
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield number, line.removeprefix(b"\xef\xbb\xbf").strip() if number == 1 else line.strip()


# CSV ------------------------------------------------------------------------------------------------------------------
def _csv_rows(path: str, schema: StreamSchema) -> Iterator[Row]:
    with open(path, encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        names = next(reader, None)
        if names is None:
            raise UsageError(f"{path} is empty; its first line names the fields")
        fields = _fields(path, names, schema)
        before = reader.line_num
        for cells in reader:
            number, before = before + 1, reader.line_num
            if not cells:
                continue
            if len(cells) != len(fields):
                raise UsageError(f"{path} line {number} has {len(cells)} cells; the header has {len(fields)}")
            values = (
                (field.name, _value(cell, field, kind)) for cell, (field, kind) in zip(cells, fields, strict=True)
            )
            yield number, {name: value for name, value in values if value is not None}


def _fields(path: str, names: Sequence[str], schema: StreamSchema) -> list[_Column]:
    names = [name.strip() for name in names]
    unknown = [name for name in names if name not in schema.fields]
    if unknown:
        known = ", ".join(schema.names)
        raise UsageError(f"{path}: {', '.join(map(repr, unknown))} are not fields of this stream; it has {known}")
    if len(set(names)) != len(names):
        raise UsageError(f"{path}: a field stands twice in the header")
    return [(schema.fields[name], family(schema.fields[name].type)) for name in names]


def _values(cells: Sequence[str], fields: Sequence[_Column]) -> dict[str, Any]:
    values = ((field.name, _value(cell, field, kind)) for cell, (field, kind) in zip(cells, fields, strict=True))
    return {name: value for name, value in values if value is not None}


def _value(cell: str, field: Field, kind: str) -> Any:
    """The cell as JSON has it; one that does not fit stays a text, and is refused as such. None: it is absent."""
    if not cell:
        return "" if field.required and kind == "text" else None
    if kind == "integer" and _WHOLE.fullmatch(cell):
        return int(cell)
    if field.type in ("double", "float") and _FLOATING.fullmatch(cell):
        return float(cell)
    if kind == "boolean":
        return _TRUTHS.get(cell.lower(), cell)
    if field.type.startswith(("array", "map", "struct")):
        try:
            return json.loads(cell)
        except (ValueError, RecursionError):
            return cell
    return cell


# Row by row -----------------------------------------------------------------------------------------------------------
class Record(NamedTuple):
    """A row of a file: the item that it is, or why it is none."""

    line: int
    items: Items | None
    error: str
    text: str  # as it stands there


def read_records(path: str, schema: StreamSchema, *, format_: str | None = None) -> Iterator[Record]:
    """Every row, each checked alone: one that does not fit stops none of the others.

    Raises UsageError for a file that cannot be read at all, or whose header does not fit.
    """
    try:
        yield from _csv_records(path, schema) if (format_ or format_of(path)) == CSV else _line_records(path, schema)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except csv.Error as error:
        raise UsageError(f"{path} is no CSV: {error}") from None


def _line_records(path: str, schema: StreamSchema) -> Iterator[Record]:
    for number, line in _lines(path):
        text = line.decode("utf-8", "replace")
        yield _record(number, text, lambda line=line: schema.parse(line, lines=True))  # type: ignore[misc]


def _csv_records(path: str, schema: StreamSchema) -> Iterator[Record]:
    with open(path, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        reader = csv.reader(file)
        fields = _fields(path, next(reader, []), schema)
        if not fields:
            raise UsageError(f"{path} is empty; its first line names the fields")
        before = reader.line_num
        for cells in reader:
            number, before = before + 1, reader.line_num
            if not cells:
                continue
            text = ",".join(cells).encode("utf-8", "replace").decode()
            if len(cells) != len(fields):
                yield Record(number, None, f"it has {len(cells)} cells, the header {len(fields)}", text)
            else:
                yield _record(number, text, lambda cells=cells: schema.items_of([_item(cells, fields)]))  # type: ignore[misc]


def _item(cells: Sequence[str], fields: Sequence[_Column]) -> dict[str, Any]:
    if any(not cell.isascii() and any("\udc80" <= char <= "\udcff" for char in cell) for cell in cells):
        raise NotJson("it is not UTF-8")
    return _values(cells, fields)


def _record(number: int, text: str, check: Callable[[], Items]) -> Record:
    try:
        return Record(number, check(), "", text)
    except ItemsRefused as error:
        first = error.problems[0]
        return Record(number, None, f"{f'{first.field}: ' if first.field else ''}{first.reason}", text)
    except NotJson as error:
        return Record(number, None, str(error), text)

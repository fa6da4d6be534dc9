"""The rows of a chunk's files, batch by batch, as Arrow arrays: memory is bounded by the batch, not by the file.

CSV is read as text throughout, with the defaults that spark/files.py gives Spark (a header, RFC 4180 quotes); typed.py
says what the text means. Whatever is wrong with a file is an Unreadable that names the file and the place in it.
"""

import contextlib
import csv
import io
import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from opendataflow.checks import columnar
from opendataflow.checks.arrow_types import is_text_in_json
from opendataflow.storage.buckets.opened import open_binary, open_stream, size_of
from opendataflow.storage.files import Found, find_files

BLOCK_BYTES = 8 * 1024 * 1024  # of text at a time; a single record cannot be longer
BATCH_ROWS = 65_536
_SUFFIXES = {
    ".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet", ".orc": "orc",
    ".txt": "text",
}  # fmt: skip
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")
_ARROW_PLACE = re.compile(r"(?:CSV parse error|In CSV column) ?#?(\d+)?: (?:Row #(\d+): )?(.*)", re.DOTALL)
_ASCII_LIKE = ("utf-8", "utf8", "ascii", "us-ascii", "latin-1", "latin1", "iso-8859-1", "iso-8859-15", "cp1252")


class Unreadable(Exception):
    """A file is not what its format says; the message names the file and the row, line or column."""


class NeedsSpark(Exception):
    """The dataset's options ask for what only Spark reads; the message names the option."""


class Opening(NamedTuple):
    """What is known of a file before its rows are read."""

    file: str
    names: tuple[str, ...] | None  # None: every row may have its own (JSON), or there is no header
    types: Mapping[str, Any] | None = None  # Arrow's, of formats that know them
    rows: int | None = None
    null_counts: Mapping[str, int] | None = None  # of columns whose statistics are complete
    is_empty: bool = False  # a CSV without the header that it should have


class Batch(NamedTuple):
    file: str
    first_row: int  # number of its first row in the file, from 1, a header not counted
    rows: int
    columns: Mapping[str, Any]  # those asked for that the file has; of Arrow's type null where no row of JSON has it


class ChunkFiles:
    """A chunk's files and how they are to be read. `crooked` counts rows that have not as many fields as the header."""

    def __init__(
        self, location: str, *, format_: str | None, options: Mapping[str, Any], schema: Mapping[str, str] | None,
        found: Found | None = None, root: str | None = None,
    ) -> None:  # fmt: skip
        """`found`: its files, where they were looked for already; with a `root`, none is read that is not below it."""
        named = [name for name, _, _ in (found or find_files(location)).files]
        self.files = [(name or os.path.basename(location), os.path.join(location, name) if name else location)
                      for name in named]  # fmt: skip
        self.format = format_ or _format_of(location) or _format_of(named[0] if named else "")
        self.options, self.schema, self.root = options, schema, root
        self.crooked = 0
        self.first_crooked = ""

    # Before the rows --------------------------------------------------------------------------------------------------
    def openings(self) -> Iterator[Opening]:
        """One for each file: header or footer. Reads no rows."""
        for file, path in self.files:
            with _explained(file):
                match self.format:
                    case "csv":
                        names = self._header(file, path)
                        yield Opening(file, names, is_empty=names is None and self._has_header)
                    case "parquet" | "orc":
                        types, rows, null_counts = columnar.footer(path, self.format, root=self.root)
                        yield Opening(file, tuple(types), types, rows, null_counts)
                    case "text":
                        yield Opening(file, ("value",))
                    case "json":
                        yield Opening(file, None)
                    case _:
                        raise Unreadable(f"{file}: its name tells no format that is known here; declare `format:`")

    # The rows ---------------------------------------------------------------------------------------------------------
    def batches(self, columns: set[str]) -> Iterator[Batch]:
        """All rows, in order, with these columns where the file has them."""
        self.crooked, self.first_crooked = 0, ""
        for file, path in self.files:
            first_row = 1
            with _explained(file):
                for rows, found in self._batches_of(file, path, columns):
                    yield Batch(file, first_row, rows, found)
                    first_row += rows

    def _batches_of(self, file: str, path: str, columns: set[str]) -> Iterator[tuple[int, dict[str, Any]]]:
        match self.format:
            case "csv":
                return self._csv(file, path, columns)
            case "json":
                return self._json(file, path, columns)
            case "text":
                return self._text(file, path)
            case "orc":
                return columnar.orc_batches(path, columns, root=self.root)
            case _:
                return columnar.parquet_batches(path, columns, BATCH_ROWS, root=self.root)

    # CSV --------------------------------------------------------------------------------------------------------------
    @property
    def _has_header(self) -> bool:
        return str(self.options.get("header", True)).lower() == "true"

    @property
    def _encoding(self) -> str:
        return str(self.options.get("encoding") or self.options.get("charset") or "utf-8").lower()

    def _mark(self, *names: str, default: str) -> str:
        """A one-character option."""
        value = next((str(self.options[name]) for name in names if self.options.get(name) is not None), default)
        value = {r"\t": "\t"}.get(value, value)
        if len(value) != 1 or not value.isascii():
            raise NeedsSpark(f"its option {names[0]} is {value!r}, which only Spark reads")
        return value

    def _check_csv_options(self) -> None:
        for name in ("comment", "lineSep"):
            if self.options.get(name):
                raise NeedsSpark(f"its option {name} is {self.options[name]!r}, which only Spark reads")

    def _header(self, file: str, path: str) -> tuple[str, ...] | None:
        """The names of the columns; None for an empty file."""
        self._check_csv_options()
        with _lines(path, self.root) as source:
            # A byte order mark belongs to the file, not to the name of its first column.
            encoding = "utf-8-sig" if self._encoding in ("utf-8", "utf8") else self._encoding
            text = io.TextIOWrapper(source, encoding=encoding, errors="replace", newline="")
            marks = {
                "delimiter": self._mark("sep", "delimiter", default=","),
                "quotechar": self._mark("quote", default='"'),
            }
            first = next((record for record in csv.reader(text, **marks) if record), None)  # type: ignore[arg-type]
            text.detach()
        if first is None:
            return None
        if self._has_header:
            if any("\ufffd" in name for name in first):
                raise Unreadable(f"{file}: its header is not {self._encoding.upper()}")
            for name in first:
                if first.count(name) > 1:
                    raise Unreadable(f"{file}: column {name!r} stands twice in its header")
            return tuple(first)
        return tuple(self.schema) if self.schema else tuple(f"_c{number}" for number in range(len(first)))

    def _csv(self, file: str, path: str, columns: set[str]) -> Iterator[tuple[int, dict[str, Any]]]:
        names = self._header(file, path)
        if names is None:
            return
        crooked = 0

        def skip(row: Any) -> str:
            nonlocal crooked
            crooked += 1
            self.crooked += 1
            if not self.first_crooked:
                at = f"row {row.number - self._has_header}" if row.number else "a row"
                self.first_crooked = f"{file} has {row.actual_columns} fields in {at}, not {row.expected_columns}"
            return "skip"

        with contextlib.ExitStack() as stack:
            source = stack.enter_context(open_stream(path, root=self.root))
            try:
                reader = stack.enter_context(self._csv_reader(source, names, skip))
            except pa.ArrowInvalid as error:
                if "Empty CSV file" in str(error):  # nothing but a header
                    return
                raise
            last = None
            while True:
                try:
                    batch = reader.read_next_batch()
                except StopIteration:
                    break
                # A row that was left out is a row all the same; which of the batch it was is not known here.
                yield batch.num_rows + crooked, {name: batch.column(name) for name in names if name in columns}
                crooked = 0
                last = batch if batch.num_rows else last
        if crooked:
            yield crooked, {}
        if last is not None and self._lacks_end(path, last):
            raise Unreadable(f"{file}: the last record begins with a quote that is never closed")

    def _csv_reader(self, source: Any, names: tuple[str, ...], skip: Any) -> Any:
        from pyarrow import csv as arrow_csv

        null = str(self.options.get("nullValue", ""))
        escape = str(self.options.get("escape", '"'))
        quote = self._mark("quote", default='"')
        return arrow_csv.open_csv(
            source,
            read_options=arrow_csv.ReadOptions(
                use_threads=False, block_size=BLOCK_BYTES, column_names=None if self._has_header else list(names),
                encoding="utf8" if self._encoding == "utf-8" else self._encoding,
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=self._mark("sep", "delimiter", default=","), quote_char=quote, double_quote=escape == quote,
                escape_char=False if escape in ("", quote) else escape, newlines_in_values=True,
                invalid_row_handler=skip,
            ),
            # Every column, also those that nobody asks for: text in another encoding must not go unseen.
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), null_values=list({"", null}), strings_can_be_null=True,
                quoted_strings_can_be_null=null == "",
            ),
        )  # fmt: skip

    def _lacks_end(self, path: str, last: Any) -> bool:
        """True when the file's last value runs over lines but ends without a quote: rows below it were swallowed."""
        if path.endswith(_COMPRESSED) or self._encoding not in _ASCII_LIKE:
            return False
        value = last.column(last.num_columns - 1)[last.num_rows - 1].as_py()
        if value is None or "\n" not in value:
            return False
        with open_binary(path, root=self.root) as file:
            file.seek(max(0, size_of(path) - 64))
            return not file.read().rstrip(b"\r\n").endswith(self._mark("quote", default='"').encode())

    # JSON lines and text ----------------------------------------------------------------------------------------------
    def _decoded(self, file: str, path: str) -> Iterator[tuple[int, str]]:
        """Lines with their numbers, from 1."""
        with _lines(path, self.root) as source:
            if self._encoding not in _ASCII_LIKE:  # a newline is more than one byte there
                text = io.TextIOWrapper(source, encoding=self._encoding)
                yield from enumerate(text, start=1)
                text.detach()
                return
            number = 0
            while line := source.readline(BLOCK_BYTES):
                number += 1
                if len(line) >= BLOCK_BYTES:
                    raise Unreadable(f"{file}: line {number} is longer than {BLOCK_BYTES} bytes")
                try:
                    yield (
                        number,
                        line.decode("utf-8-sig" if number == 1 and self._encoding[:3] == "utf" else self._encoding),
                    )
                except UnicodeDecodeError as error:
                    raise Unreadable(f"{file}: line {number} is not {self._encoding.upper()}: {error.reason}") from None

    def _text(self, file: str, path: str) -> Iterator[tuple[int, dict[str, Any]]]:
        lines: list[str] = []
        for _, line in self._decoded(file, path):
            lines.append(line.rstrip("\r\n"))
            if len(lines) == BATCH_ROWS:
                yield len(lines), {"value": pa.array(lines, pa.string())}
                lines = []
        yield len(lines), {"value": pa.array(lines, pa.string())}

    def _json(self, file: str, path: str, columns: set[str]) -> Iterator[tuple[int, dict[str, Any]]]:
        """Python's own parser: Arrow's takes the types from the first block, and stops where a later one differs."""
        if str(self.options.get("multiLine", False)).lower() == "true":
            raise NeedsSpark("its option multiLine is true, which only Spark reads")
        rows: list[dict[str, Any]] = []
        for number, line in self._decoded(file, path):
            if not line.strip():
                continue
            try:
                row = json.loads(line.rstrip("\r\n"))
            except (ValueError, RecursionError) as error:
                reason = (
                    f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)
                )
                raise Unreadable(f"{file}: line {number} is not JSON: {reason}") from None
            if not isinstance(row, dict):
                raise Unreadable(f"{file}: line {number} is not a JSON object")
            rows.append(row)
            if len(rows) == BATCH_ROWS:
                yield len(rows), self._json_columns(rows, columns)
                rows = []
        yield len(rows), self._json_columns(rows, columns)

    def _json_columns(self, rows: list[dict[str, Any]], columns: set[str]) -> dict[str, Any]:
        found = {}
        for column in columns:
            if any(column in row for row in rows):
                found[column] = _json_array([row.get(column) for row in rows], (self.schema or {}).get(column))
            else:
                found[column] = pa.nulls(len(rows))
        return found


def _format_of(name: str) -> str | None:
    for suffix in _COMPRESSED:
        name = name.removesuffix(suffix)
    return next((known for suffix, known in _SUFFIXES.items() if name.endswith(suffix)), None)


def _json_array(values: list[Any], declared: str | None) -> Any:
    """Values of one column. Where they are of several kinds, or quoted where they must not be, their JSON as text."""
    kinds = {type(value) for value in values} - {type(None)}
    with contextlib.suppress(OverflowError, pa.ArrowException, UnicodeError):
        if kinds <= {str} and is_text_in_json(declared):
            return pa.array(values, pa.string())
        if kinds == {int}:
            return pa.array(values, pa.int64())
        if kinds == {bool}:
            return pa.array(values, pa.bool_())
        if kinds and kinds <= {int, float}:
            return pa.array([None if value is None else float(value) for value in values], pa.float64())
    plain = is_text_in_json(declared)
    texts = [
        None if value is None else value if plain and type(value) is str else json.dumps(value) for value in values
    ]
    return pa.array([None if text is None else text.encode("utf-8", "replace").decode() for text in texts], pa.string())


# Opening --------------------------------------------------------------------------------------------------------------
@contextlib.contextmanager
def _lines(path: str, root: str | None) -> Iterator[Any]:
    with open_stream(path, root=root) as source, io.BufferedReader(source, 1 << 16) as lines:
        yield lines


@contextlib.contextmanager
def _explained(file: str) -> Iterator[None]:
    """Errors of Arrow, of a codec or of the disk as one that names the file."""
    try:
        yield
    except (Unreadable, NeedsSpark):
        raise
    except UnicodeDecodeError as error:
        raise Unreadable(f"{file}: is not {error.encoding.upper()}: {error.reason}") from error
    except LookupError as error:
        raise Unreadable(f"{file}: {error}") from error
    except (OSError, ValueError, csv.Error, pa.ArrowException, EOFError) as error:
        told = error.strerror if isinstance(error, OSError) and error.strerror and error.filename else str(error)
        raise Unreadable(f"{file}: {_reason(told)}") from error


def _reason(text: str) -> str:
    if "straddling object" in text:
        return f"a record is longer than {BLOCK_BYTES} bytes, or a quote is never closed"
    if "Truncated compressed stream" in text:
        return "the compressed file is cut off"
    place = _ARROW_PLACE.match(text)
    if place is None:
        return text
    column, row, rest = place.groups()
    where = [f"record {row}"] if row else []
    where += [f"column {int(column) + 1}"] if column else []
    told = "text that is not UTF-8" if "invalid UTF8" in rest else rest
    return f"{told} in {', '.join(where)}" if where else told

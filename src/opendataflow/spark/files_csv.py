"""A CSV file looked at without Spark: its header, whether it is text at all, whether its quotes are closed.

Spark tells none of this well: it matches columns by position, turns bytes that are not of the encoding into `�`, and
takes what follows a quote that is never closed for one long value. A small chunk is read whole for it (`look`), of a
larger one the beginning of each file (`look_at_head`): the rest of that is Spark's work (files_scan.py).
"""

import codecs
import contextlib
import csv
import gzip
import io
import os
import sys
from collections.abc import Iterator, Mapping
from typing import IO, Any, NamedTuple

from opendataflow.errors import JobFailed
from opendataflow.spark.files_local import is_true, option

BLOCK_BYTES = 1024 * 1024
HEAD_BYTES = 64 * 1024
HEADER_BYTES = 1024 * 1024  # no header is longer
SECOND_LOOK_BYTES = 256 * 1024 * 1024  # to find the line of what is known to be wrong: some seconds
_COMPRESSED = (".gz", ".bz2", ".zst")
_ONLY_SPARK = (".lz4", ".snappy", ".deflate")
_LZ4_FRAME = b"\x04\x22\x4d\x18"
csv.field_size_limit(sys.maxsize)  # a value may be long; Python's limit holds for the whole process
BYTE_ENCODINGS = ("latin-1", "iso8859-1", "cp1252", "iso8859-15")  # every byte is a character


class CsvForm(NamedTuple):
    """How a dataset's CSV is written."""

    separator: str
    quote: str
    escape: str
    encoding: str  # as Python calls it
    has_header: bool

    def records(self, text: Iterator[str] | IO[str], *, strict: bool = False) -> Any:
        """A reader of Python's csv module."""
        doubled = self.escape in ("", self.quote)
        return csv.reader(
            text, delimiter=self.separator, quotechar=self.quote, doublequote=doubled,
            escapechar=None if doubled else self.escape, strict=strict,
        )  # fmt: skip


class Look(NamedTuple):
    header: tuple[str, ...]  # empty for an empty file
    has_quotes: bool


def find_form(options: Mapping[str, Any]) -> CsvForm | None:
    """The form that the options tell; None where only Spark can read it."""
    separator = str(option(options, "sep", "delimiter") or ",").replace(r"\t", "\t")
    quote = option(options, "quote")
    quote = '"' if quote is None else str(quote)
    blanks = (option(options, "ignoreLeadingWhiteSpace"), option(options, "ignoreTrailingWhiteSpace"))
    only_spark = (option(options, "comment"), option(options, "lineSep"), any(is_true(blank) for blank in blanks))
    if len(separator) != 1 or len(quote) != 1 or any(only_spark):
        return None
    try:
        encoding = codecs.lookup(str(option(options, "encoding", "charset") or "utf-8")).name
    except LookupError:
        return None
    escape = str(option(options, "escape") or '"')
    return CsvForm(separator, quote, escape, encoding, is_true(option(options, "header")))


def look(datasetid: str, path: str, form: CsvForm) -> Look | None:
    """What the file is, from one pass over its bytes; None where only Spark can open it.

    Raises JobFailed, with the file and the line, for what is not text of its encoding and for a quote that is never
    closed.
    """
    if path.endswith(_ONLY_SPARK):
        _refuse_lz4_frame(datasetid, path)
        return None
    with _explained(datasetid, path), open_bytes(path) as file:
        block = file.read(BLOCK_BYTES)
        header = _first_record(block, form)
        quotes = _scan(datasetid, path, file, block, form)
    if quotes % 2:  # most likely 5" of pipe; look closer
        fault = find_quote_fault(path, form)
        if fault is not None:
            raise JobFailed(f"{datasetid}: {path} {fault}")
    return Look(header, quotes > 0)


def look_at_head(datasetid: str, path: str, form: CsvForm) -> Look | None:
    """As `look`, from the first bytes of the file alone."""
    if path.endswith(_ONLY_SPARK):
        _refuse_lz4_frame(datasetid, path)
        return None
    with _explained(datasetid, path), open_bytes(path) as file:
        block = file.read(HEAD_BYTES)
        if b"\n" not in block:  # a header of very many columns
            block += file.read(HEADER_BYTES - len(block))
        header = _first_record(block, form)
        quotes = _scan(datasetid, path, io.BytesIO(), block, form)
    return Look(header, quotes > 0)


def find_quote_fault(path: str, form: CsvForm) -> str | None:
    """`line 17: …` for the first record whose quotes are wrong; None when all are right, and for a file too large."""
    if os.path.getsize(path) > SECOND_LOOK_BYTES:
        return None
    with open_text(path, form) as text:
        records = form.records(text, strict=True)
        before = 0
        try:
            for _ in records:
                before = records.line_num
        except csv.Error as error:
            if "unexpected end" in str(error):
                return f"line {before + 1}: a quote is opened and never closed"
            return f"line {records.line_num}: text follows a closing quote"
    return None


def find_line(path: str, form: CsvForm, wanted: list[str]) -> int | None:
    """The line where the first record with these fields begins; None in a file too large to look for it."""
    if os.path.getsize(path) > SECOND_LOOK_BYTES:
        return None
    with open_text(path, form) as text:
        records = form.records(text)
        before = 0
        for record in records:
            if record == wanted:
                return before + 1
            before = records.line_num
    return None


def is_compressed(path: str) -> bool:
    return path.endswith(_COMPRESSED)


@contextlib.contextmanager
def open_bytes(path: str) -> Iterator[IO[bytes]]:
    """The file's bytes, unpacked."""
    if path.endswith(".gz"):
        with gzip.open(path, "rb") as unpacked:
            yield unpacked  # type: ignore[misc]
    elif path.endswith(_COMPRESSED):
        import pyarrow as pa

        with pa.input_stream(path, compression="detect") as unpacked:
            yield unpacked
    else:
        with open(path, "rb") as file:
            yield file


@contextlib.contextmanager
def open_text(path: str, form: CsvForm) -> Iterator[IO[str]]:
    """The file's text without its byte order mark; what is not of the encoding is replaced, as Spark does."""
    with open_bytes(path) as file:
        raw: Any = file if isinstance(file, io.IOBase) else io.BufferedReader(file, BLOCK_BYTES)  # Arrow's is neither
        text = io.TextIOWrapper(raw, encoding=_text_encoding(form), errors="replace", newline="")
        yield text
        text.detach()


def _text_encoding(form: CsvForm) -> str:
    return "utf-8-sig" if form.encoding == "utf-8" else form.encoding


def _first_record(block: bytes, form: CsvForm) -> tuple[str, ...]:
    text = io.TextIOWrapper(io.BytesIO(block), encoding=_text_encoding(form), errors="replace", newline="")
    return tuple(next((record for record in form.records(text) if record), ()))


def _scan(datasetid: str, path: str, file: IO[bytes], block: bytes, form: CsvForm) -> int:
    """Count the quotes; raise JobFailed at the first byte that is not of the encoding."""
    decoder = None if form.encoding in BYTE_ENCODINGS else codecs.getincrementaldecoder(form.encoding)()
    is_ascii_like = form.encoding in ("utf-8", "ascii")
    mark = form.quote.encode(form.encoding)[-1:] if is_ascii_like or decoder is None else b'"'
    quotes, lines, pending = 0, 0, False
    while block:
        quotes += block.count(mark)
        if decoder is not None and (pending or not is_ascii_like or not block.isascii()):
            try:
                decoder.decode(block)
            except UnicodeDecodeError as error:
                line = lines + error.object[: error.start].count(b"\n") + 1
                raise JobFailed(
                    f"{datasetid}: {path} line {line} is not {form.encoding.upper()}: {error.reason}; "
                    "`options: {encoding: …}` says what it is"
                ) from None
            pending = bool(decoder.getstate()[0])
        lines += block.count(b"\n") if decoder is not None else 0
        block = file.read(BLOCK_BYTES)
    return quotes


def _refuse_lz4_frame(datasetid: str, path: str) -> None:
    """Spark's lz4 is Hadoop's own; of the usual kind it takes a length from nowhere and ends for lack of memory."""
    with open(path, "rb") as file:
        if file.read(4) == _LZ4_FRAME:
            raise JobFailed(f"{datasetid}: {path} is an lz4 frame, which Spark does not read; pack it as .gz or .zst")


@contextlib.contextmanager
def _explained(datasetid: str, path: str) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise JobFailed(f"{datasetid}: {path} cannot be read: {reason}") from error

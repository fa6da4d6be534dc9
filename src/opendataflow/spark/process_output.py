"""Standard output and error of a process that is one run's: any bytes go out as they are, and a part can be kept.

What other processes write, or C code does to the descriptor itself, goes the same way out and is not kept.
"""

import codecs
import contextlib
import faulthandler
import io
import sys
from collections.abc import Callable, Iterator
from typing import Any

from opendataflow.spark.kept import Kept

_ANY_TEXT = "dataflow.any_text"


class _Tee(io.FileIO):
    """A descriptor; what is written to it is also given to `keep`."""

    keep: Callable[[bytes], None] | None = None

    def write(self, data: Any) -> int | None:  # type: ignore[override]
        written = super().write(data)
        if self.keep is not None and written:
            self.keep(bytes(memoryview(data)[:written]))
        return written


_tees: list[_Tee] = []


def open_streams() -> None:
    """New ones, whatever they were: lines at once, and any text, also of names that are no UTF-8."""
    codecs.register_error(_ANY_TEXT, _escape)
    _tees[:] = [_Tee(fd, "wb", closefd=False) for fd in (1, 2)]
    sys.stdout, sys.stderr = (_text(tee) for tee in _tees)
    sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr  # type: ignore[misc]
    faulthandler.enable(file=2, all_threads=False)


def _text(tee: _Tee) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BufferedWriter(tee), encoding="utf-8", errors=_ANY_TEXT, line_buffering=True)


def _escape(error: UnicodeError) -> tuple[str, int]:
    """A byte of a file's name that is no UTF-8 as `\\xe9`, any other half of a character as `\\ud800`."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    shown = [f"\\x{ord(one) - 0xDC00:02x}" if "\udc80" <= one <= "\udcff" else f"\\u{ord(one):04x}" for one in text]
    return "".join(shown), error.end


def flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # the code closed or replaced it
            stream.flush()


@contextlib.contextmanager
def kept_output() -> Iterator[Kept]:
    """What the process writes from here on, from whichever thread, is also kept."""
    kept = Kept()
    flush()
    for tee in _tees:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        tee.keep = lambda data, decoder=decoder: kept.add(decoder.decode(data))
    try:
        yield kept
    finally:
        flush()
        for tee in _tees:
            tee.keep = None

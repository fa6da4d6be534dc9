"""For streams and chunks that share a job: what a chunk's code prints, passed on at once and kept for its step.

Several chunks run in threads of one process, which has one `sys.stdout`. So both streams are replaced by routers that
look up whose code is writing; code of no chunk writes where it always did. Warnings are printed to `sys.stderr` by
Python itself and go the same way. What a C library or another process writes to the descriptor itself is not seen
here; it goes to the log of the process.
"""

import contextlib
import io
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, TextIO

from opendataflow.spark.inherit import let_threads_inherit
from opendataflow.spark.kept import Kept

_LONGEST_LINE = 64 * 1024  # a line that is longer goes on before it ends


class _Listener:
    """Somebody who takes a chunk's text; once closed, threads left over from the chunk find another way."""

    def __init__(self, take: Callable[[str], None]) -> None:
        self._take = take
        self._lock = threading.Lock()  # the chunk's code may print from several threads
        self.is_open = True

    def add(self, text: str) -> None:
        with self._lock:
            self._take(text)

    def close(self) -> None:
        with self._lock:
            self.is_open = False


class _Lines:
    """Passes text on in whole lines, so that those of two chunks never mix within one."""

    def __init__(self, write_through: Callable[[str], None]) -> None:
        self._write = write_through
        self._parts: list[str] = []
        self._size = 0

    def take(self, text: str) -> None:
        whole, newline, rest = text.rpartition("\n")
        if newline:
            self._parts.append(whole + newline)
            self.finish()
        if rest:
            self._parts.append(rest)
            self._size += len(rest)
            if self._size > _LONGEST_LINE:
                self.finish()

    def finish(self) -> None:
        text = "".join(self._parts)
        self._parts, self._size = [], 0
        if text:
            self._write(text)


_through: ContextVar[_Listener | None] = ContextVar("through", default=None)
_kept: ContextVar[tuple[_Listener, ...]] = ContextVar("kept", default=())


@contextlib.contextmanager
def chunk_output(write_through: Callable[[str], None]) -> Iterator[None]:
    """Everything that this thread's code prints goes to `write_through`, line by line, not to the process's streams."""
    lines = _Lines(write_through)
    listener = _Listener(lines.take)
    with _routed():
        token = _through.set(listener)
        try:
            yield
        finally:
            _through.reset(token)
            listener.close()
            lines.finish()


@contextlib.contextmanager
def kept_output() -> Iterator[Kept]:
    """What this thread's code prints from here on is also kept, every warning at least once."""
    kept = Kept()
    listener = _Listener(kept.add)
    with _routed():
        # Python shows a warning once for each line of code: of a warm process, only the first chunk would tell.
        warnings.simplefilter("default", category=_EveryStep, append=True)
        token = _kept.set((*_kept.get(), listener))
        try:
            yield kept
        finally:
            _kept.reset(token)
            listener.close()


class _EveryStep(Warning):
    """Never warned of: setting a filter, whichever, makes Python forget which warnings it has shown."""


class _Router(io.TextIOBase):
    """A standard stream that asks, for each text, whose code is writing."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        for listener in _kept.get():
            if listener.is_open:
                listener.add(text)
        through = _through.get()
        if through is not None and through.is_open:
            through.add(text)
        else:
            self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        self.stream.flush()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self.stream.fileno()

    def isatty(self) -> bool:
        return self.stream.isatty()

    def close(self) -> None:
        """Not ours to close: other chunks write here too."""

    @property
    def buffer(self) -> Any:
        return _Bytes(self)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.stream.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        return self.stream.errors

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class _Bytes(io.RawIOBase):
    """`sys.stdout.buffer`: bytes become text on their way."""

    def __init__(self, router: _Router) -> None:
        self._router = router

    def write(self, data: Any) -> int:
        self._router.write(bytes(data).decode("utf-8", "replace"))
        return len(data)

    def writable(self) -> bool:
        return True

    def flush(self) -> None:
        self._router.flush()


# The streams of the process ---------------------------------------------------------------------------------------
_lock = threading.Lock()
_users = 0
_routers: tuple[_Router, _Router] | None = None


@contextlib.contextmanager
def _routed() -> Iterator[None]:
    """Routers in place of both streams, as long as anybody needs them."""
    global _users, _routers  # noqa: PLW0603  the streams of the process are global, and so is what replaces them
    with _lock:
        if _users == 0:
            let_threads_inherit()
            _routers = _Router(sys.stdout), _Router(sys.stderr)
            sys.stdout, sys.stderr = _routers
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0 and _routers is not None:
                out, err = _routers
                if sys.stdout is out:  # somebody else may have replaced it since
                    sys.stdout = out.stream
                if sys.stderr is err:
                    sys.stderr = err.stream

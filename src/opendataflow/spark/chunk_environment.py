"""For streams and chunks that share a job: environment variables of a chunk, though a process has several.

Each thread sees its own chunk's. `os.environ` is replaced, while any chunk runs, by one that looks up whose code is
asking. `os.getenv`, `subprocess` without `env=` and `os.system` follow it. What a chunk's code sets or deletes is seen
by that chunk alone and forgotten at its end. The C library's environment stays the process's: code that asks `getenv`
in C does not see the changes.
"""

import contextlib
import os
import subprocess
import threading
from collections.abc import Iterator, Mapping, MutableMapping
from contextvars import ContextVar
from typing import Any

from opendataflow.spark.inherit import let_threads_inherit


class Forbidden:
    """In place of a variable's value: whoever asks for it, or copies it with all others, gets the error."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.was_asked = False  # whoever asks may catch the error


def forbidden(error: Exception) -> Forbidden:
    """A value that raises this error instead."""
    return Forbidden(error)


_DELETED = None
_Changes = dict[str, str | Forbidden | None]


class _Chunk:
    """A chunk's changes; once it has ended, threads that it left behind see the process's variables."""

    def __init__(self, changes: _Changes) -> None:
        self.changes = changes
        self.is_open = True


_chunk: ContextVar[_Chunk | None] = ContextVar("chunk", default=None)


def _find_changes() -> _Changes | None:
    chunk = _chunk.get()
    return chunk.changes if chunk is not None and chunk.is_open else None


@contextlib.contextmanager
def chunk_environment(variables: Mapping[str, str | Forbidden]) -> Iterator[None]:
    """This thread, and those it starts, see these variables over the process's own."""
    chunk = _Chunk(dict(variables))
    with _installed():
        token = _chunk.set(chunk)
        try:
            yield
        finally:
            _chunk.reset(token)
            chunk.is_open = False


class ChunkEnviron(MutableMapping[str, str]):
    """`os.environ` with the changes of the chunk whose code asks; outside of chunks, the process's."""

    def __init__(self, process: MutableMapping[str, str]) -> None:
        self.process = process

    def __getitem__(self, key: str) -> str:
        changes = _find_changes()
        if changes is not None and key in changes:
            value = changes[key]
            if value is _DELETED:
                raise KeyError(key)
            if isinstance(value, Forbidden):
                value.was_asked = True
                raise value.error
            return value
        return self.process[key]

    def __setitem__(self, key: str, value: str) -> None:
        changes = _find_changes()
        if changes is None:
            self.process[key] = value
            return
        for text in (key, value):
            if not isinstance(text, str):
                raise TypeError(f"str expected, not {type(text).__name__}")
        if not key or "=" in key or "\0" in key + value:
            raise ValueError("illegal environment variable name or embedded null byte")
        changes[key] = value

    def __delitem__(self, key: str) -> None:
        changes = _find_changes()
        if changes is None:
            del self.process[key]
            return
        self[key]  # KeyError if there is none
        changes[key] = _DELETED

    def __iter__(self) -> Iterator[str]:
        changes = _find_changes() or {}
        return iter([key for key in {**self.process, **changes} if changes.get(key, "") is not _DELETED])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __repr__(self) -> str:
        return f"environ({self.copy()!r})"

    def copy(self) -> dict[str, str]:
        return {key: self[key] for key in self}

    def __or__(self, other: Mapping[str, str]) -> dict[str, str]:
        return self.copy() | dict(other)

    def __ror__(self, other: Mapping[str, str]) -> dict[str, str]:
        return dict(other) | self.copy()

    def __ior__(self, other: Mapping[str, str]) -> "ChunkEnviron":
        self.update(other)
        return self


# In place of Python's own -------------------------------------------------------------------------------------------
_lock = threading.Lock()
_users = 0
_popen, _system = subprocess.Popen.__init__, os.system
_ENV_POSITION = 10  # of `env` among the arguments of Popen


def _popen_with_changes(process: Any, *args: Any, **kwargs: Any) -> None:
    if _find_changes() is not None and len(args) <= _ENV_POSITION and kwargs.get("env") is None:
        kwargs["env"] = os.environ.copy()
    _popen(process, *args, **kwargs)


def _system_with_changes(command: Any) -> int:
    if _find_changes() is None:
        return _system(command)
    code = subprocess.call(command, shell=True)  # noqa: S602  what os.system is
    return code << 8 if code >= 0 else -code  # as wait() tells it


@contextlib.contextmanager
def _installed() -> Iterator[None]:
    global _users  # noqa: PLW0603  there is one os.environ
    with _lock:
        if _users == 0:
            let_threads_inherit()
            os.environ = ChunkEnviron(os.environ)  # type: ignore[assignment]  # noqa: B003  replaced, not cleared
            subprocess.Popen.__init__ = _popen_with_changes  # type: ignore[method-assign, assignment]
            os.system = _system_with_changes
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0 and isinstance(os.environ, ChunkEnviron):
                os.environ = os.environ.process  # type: ignore[assignment]  # noqa: B003
                subprocess.Popen.__init__ = _popen  # type: ignore[method-assign]
                os.system = _system

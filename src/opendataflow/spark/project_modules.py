"""Modules of the project that transformations import: never stale, and sent to Spark's workers as code.

A transformation is loaded by its content, but what it imports is a plain module: Python keeps it as it was when first
imported, and a worker, for which the project's folder is no place to import from, could not find it.
"""

import contextlib
import hashlib
import importlib
import sys
import threading
from collections.abc import Iterator
from types import ModuleType

from pyspark import cloudpickle

lock = threading.RLock()  # held while the project's code is loaded: chunks load it in several threads
_seen: dict[str, dict[str, tuple[str, bytes]]] = {}  # by home: module → its file and content


def forget_changed(home: str) -> bool:
    """Forget all of the project's modules if the file of any has changed; whether they were forgotten."""
    seen = _seen.get(home, {})
    if all(_digest(path) == digest for path, digest in seen.values()):
        return False
    for name in seen:
        sys.modules.pop(name, None)
    del _seen[home]
    importlib.invalidate_caches()
    return True


@contextlib.contextmanager
def no_bytecode() -> Iterator[None]:
    """Python trusts a file of bytecode that is as old and as long as the text: within one second, both may change."""
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before


def remember(home: str) -> None:
    """Note which of the loaded modules are the project's: their functions go to workers by value."""
    seen = _seen.setdefault(home, {})
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if name not in seen and isinstance(module, ModuleType) and path and _is_projects(path, home):
            seen[name] = path, _digest(path)
            cloudpickle.register_pickle_by_value(module)


def _is_projects(path: str, home: str) -> bool:
    inside = home.rstrip("/") + "/"
    return path.startswith(inside) and path.endswith(".py") and not path.startswith(sys.prefix + "/")


def _digest(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).digest()
    except OSError:
        return b""

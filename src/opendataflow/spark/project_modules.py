"""Modules of the project that transformations import: never stale, and sent to Spark's workers as code.

A transformation is loaded by its content, but what it imports is a plain module: Python keeps it as it was when first
imported, and a worker, for which the project's folder is no place to import from, could not find it. What a function
imports only when it is called, on the worker, comes from a zip file of the project's modules that Spark sends there.
"""

import contextlib
import hashlib
import importlib
import importlib.machinery
import io
import os
import sys
import threading
import zipfile
from collections.abc import Iterator, Sequence
from types import ModuleType

from pyspark import cloudpickle

from opendataflow.spark.pandas_modules import MOST_BYTES

lock = threading.RLock()  # held while the project's code is loaded: chunks load it in several threads
_seen: dict[str, dict[str, tuple[str, bytes]]] = {}  # by home: module → its file and content
_renewed: set[str] = set()  # homes of which a module has changed that only workers import


def forget_changed(home: str) -> bool:
    """Forget all of the project's modules if the file of any has changed; whether they were forgotten."""
    seen = _seen.get(home, {})
    if home not in _renewed and all(_digest(path) == digest for path, digest in seen.values()):
        return False
    for name in seen:
        sys.modules.pop(name, None)
    _seen.pop(home, None)
    _renewed.discard(home)
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


# For what workers import themselves -------------------------------------------------------------------------------
def pack(home: str, folder: str, *, besides: Sequence[str] = ()) -> str | None:
    """A zip file of the project's modules in this folder, named by its content; None when there are none.

    A module with the name of a library is left out, since a worker would take it for the library. `besides` are
    locations of data: their folders are not searched for code. None also when there is more than code would be.
    """
    mine: dict[str, bytes] = {}
    for path in _modules(home, _data_folders(home, besides)):
        with contextlib.suppress(OSError), open(os.path.join(home, path), "rb") as file:
            mine[path] = file.read()
    if not mine or sum(map(len, mine.values())) > MOST_BYTES:
        return None
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        # Python takes a folder in a zip file for a package only where it has an entry, too.
        for package in sorted({f"{parent}/" for path in mine for parent in _parents(path)}):
            archive.writestr(zipfile.ZipInfo(package), b"")
        for path in sorted(mine):
            archive.writestr(zipfile.ZipInfo(path), mine[path])  # without its time: the same content, the same bytes
    digest = hashlib.sha256(packed.getvalue()).hexdigest()[:16]
    target = os.path.join(folder, f"dataflow_code_{digest}.zip")
    if not os.path.exists(target):
        with open(f"{target}.new", "wb") as file:
            file.write(packed.getvalue())
        os.replace(f"{target}.new", target)
    return target


def renew(home: str) -> None:
    """Let all of the project's modules be loaded anew: a function keeps for ever which zip file it was made with."""
    with lock:
        _renewed.add(home)


@contextlib.contextmanager
def path_unchanged() -> Iterator[None]:
    """PySpark puts what it sends to workers before everything else in this process's own path, too."""
    with lock:
        before = list(sys.path)
        try:
            yield
        finally:
            sys.path[:] = before


def _parents(path: str) -> Iterator[str]:
    while path := os.path.dirname(path):
        yield path


def _modules(home: str, data: frozenset[str]) -> Iterator[str]:
    """Paths of the project's Python files, without virtual environments and libraries' names."""
    for folder, subfolders, names in os.walk(home):
        is_top = folder == home
        subfolders[:] = [
            name for name in subfolders
            if name.isidentifier() and not (is_top and (name in data or _is_library(name, home)))
            and not os.path.exists(f"{folder}/{name}/pyvenv.cfg")
        ]  # fmt: skip
        for name in names:
            if name.endswith(".py") and not (is_top and _is_library(name, home)):
                yield os.path.relpath(os.path.join(folder, name), home)


def _data_folders(home: str, locations: Sequence[str]) -> frozenset[str]:
    """The project's own folders that hold these locations."""
    inside = [os.path.relpath(path, home) for path in locations if path.startswith(home.rstrip("/") + "/")]
    return frozenset(path.partition("/")[0] for path in inside if "/" in path)


def _is_library(top: str, home: str) -> bool:
    name = top.removesuffix(".py")
    if name in sys.stdlib_module_names:
        return True
    found = importlib.machinery.PathFinder.find_spec(name, [path for path in sys.path if path != home])
    # A folder without `__init__.py` is a package to Python wherever it is; only a real one is a library.
    return found is not None and found.origin is not None

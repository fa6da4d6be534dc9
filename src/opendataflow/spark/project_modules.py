"""Modules that transformations import: loaded anew for each chunk, and sent to Spark's workers as code.

Python keeps a module as it was when first imported: with the variables of the chunk that imported it, and with what
that chunk left in its lists. So all of them are forgotten before a chunk's code is loaded. A worker, for which the
project's folder is no place to import from, could not find them. What a function imports only when it is called, on
the worker, comes from a zip file of the project's modules that Spark sends there.
"""

import contextlib
import hashlib
import importlib
import importlib.machinery
import io
import os
import re
import site
import sys
import sysconfig
import threading
import zipfile
from collections.abc import Iterator, Sequence
from types import ModuleType

import pyspark
from pyspark import cloudpickle

import opendataflow
from opendataflow.spark.pandas_modules import MOST_BYTES

lock = threading.RLock()  # held while the project's code is loaded, or Python's path is changed
_LIBRARIES = tuple(
    os.path.join(folder, "")
    for folder in (
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        *site.getsitepackages(), site.getusersitepackages(),
        *(os.path.dirname(str(package.__file__)) for package in (opendataflow, pyspark)),
    )
)  # fmt: skip
_LIBRARY_FOLDERS = ("/site-packages/", "/dist-packages/")  # also of another environment, which a .pth file adds
_MISSING = re.compile(r"No module named '(\w+)")
_ours = frozenset(sys.modules)  # of this process itself, whoever imported them: no chunk's code has run yet


def forget(home: str) -> None:
    """Forget every module that is not a library's, the project's first of all, so that the next import loads it anew.

    A folder without `__init__.py` goes too: it holds the modules that were imported from it.
    """
    compiled = {
        name.partition(".")[0]
        for name, module in list(sys.modules.items())
        if str(getattr(module, "__file__", None)).endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES))
    }
    for name, module in list(sys.modules.items()):
        path = _python_path(module)
        if path is None or _is_of_library(path) or (name in _ours and not _is_within(path, home)):
            continue
        if name.partition(".")[0] not in compiled:  # a library in C, wherever it lies, cannot be loaded twice
            del sys.modules[name]
    importlib.invalidate_caches()


def _python_path(module: object) -> str | None:
    """The file of a module that is written in Python, or the folder of a package that has none."""
    if not isinstance(module, ModuleType):
        return None
    path = getattr(module, "__file__", None)
    if path is None:
        path = next(iter(getattr(module, "__path__", ())), None)
        return None if path is None else os.path.join(path, "")
    return path if path.endswith((".py", ".pyc")) else None


def _is_of_library(path: str) -> bool:
    return path.startswith(_LIBRARIES) or any(folder in path for folder in _LIBRARY_FOLDERS)


@contextlib.contextmanager
def no_bytecode() -> Iterator[None]:
    """Python trusts a file of bytecode that is as old and as long as the text: within one second, both may change."""
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before


def send_by_value(home: str) -> None:
    """Let functions of the project's loaded modules go to workers by value."""
    for module in list(sys.modules.values()):
        path = _python_path(module)
        if path is not None and path.endswith(".py") and _is_within(path, home) and not _is_of_library(path):
            cloudpickle.register_pickle_by_value(module)


def _is_within(path: str, home: str) -> bool:
    return path.startswith(home.rstrip("/") + "/")


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
    if not mine or sum(map(len, mine.values())) > MOST_BYTES:  # why_missing says so where it matters
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
        partial = f"{target}.{os.getpid()}"  # several runs may pack the same code at the same moment
        with open(partial, "wb") as file:
            file.write(packed.getvalue())
        os.replace(partial, target)
    return target


def why_missing(error: str, home: str, *, besides: Sequence[str] = ()) -> str | None:
    """What to do about this error, if it says that a module is missing which was too large to be sent."""
    missing = _MISSING.search(error)
    if missing is None:
        return None
    paths = list(_modules(home, _data_folders(home, besides)))
    size = sum(os.path.getsize(path) for path in (os.path.join(home, one) for one in paths) if os.path.isfile(path))
    if size <= MOST_BYTES or missing[1] not in {path.partition("/")[0].removesuffix(".py") for path in paths}:
        return None
    return (
        f"the project's Python files have {size / 1e6:.1f} MB; more than {MOST_BYTES / 1e6:.1f} MB are not sent to "
        f"Spark's workers, so they cannot import {missing[1]}; move what is not code of this project out of its "
        "folder, or import the module at the top of the transformation's file"
    )


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

"""The project's own modules on a machine that has not the project: sent as text, imported from there.

It stands alone but for its neighbours that do too: it runs in Spark's workers, where OpenDataFlow may not be installed.
"""

import importlib.machinery
import importlib.util
import linecache
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

MOST_BYTES = 4 * 1024 * 1024  # a project with more than this is data, or a virtual environment


def project_texts(home: str) -> dict[str, str]:
    """The Python files of the project, by path; none of them if they are too large to be sent with every task."""
    texts: dict[str, str] = {}
    size = 0
    for folder, subfolders, names in os.walk(home):
        subfolders[:] = [
            name for name in subfolders if name.isidentifier() and not os.path.exists(f"{folder}/{name}/pyvenv.cfg")
        ]
        for name in names:
            path = os.path.join(folder, name)
            if not name.endswith(".py") or not os.path.isfile(path):
                continue
            with open(path, "rb") as file:
                source = file.read(MOST_BYTES)
            size += len(source)
            if size > MOST_BYTES:
                return {}
            try:
                texts[os.path.relpath(path, home)] = importlib.util.decode_source(source)
            except (SyntaxError, UnicodeDecodeError):
                continue  # whoever imports it is told that it is not there
    return texts


class SentModules:
    """Finds the modules that were sent; to be asked last, so that a project's files never replace a library's."""

    def __init__(self, home: str, texts: dict[str, str]) -> None:
        self._home, self._texts = home, texts

    def find_spec(self, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None) -> Any:
        inside = name.replace(".", "/")
        for path, is_package in ((f"{inside}/__init__.py", True), (f"{inside}.py", False)):
            if path in self._texts:
                spec = importlib.machinery.ModuleSpec(name, self, origin=path, is_package=is_package)  # type: ignore[arg-type]
                spec.has_location = True
                return spec
        if any(path.startswith(f"{inside}/") for path in self._texts):
            return importlib.machinery.ModuleSpec(name, None, is_package=True)  # a folder
        return None

    def create_module(self, _spec: Any) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        origin = str(getattr(module.__spec__, "origin", ""))
        source, path = self._texts[origin], os.path.join(self._home, origin)
        module.__file__ = path
        linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
        exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)  # noqa: S102  the user's own code


def make_importable(home: str, texts: dict[str, str]) -> None:
    """Let `import` look into the project last: into its folder, or into what was sent of it."""
    if home not in sys.path:
        sys.path.append(home)
    if texts and not os.path.isdir(home):
        sys.meta_path.append(SentModules(home, texts))

"""Which store and environment a command works with, without reading YAML when nothing changed.

`DATAFLOW_STORE` decides alone. Otherwise project.yml does; what it says about stores is kept in .dataflow/address.json,
valid as long as project.yml has the same size and modification time, because every RunJob passes here.
"""

import json
import os
from typing import Any, NamedTuple

from opendataflow.errors import ConfigurationError

PROJECT_FILE = "project.yml"
DEFAULT_STORE = "sqlite:///.dataflow/state.db"


class Address(NamedTuple):
    store: str
    environment: str | None  # None: whatever the store is stamped with
    project: str | None  # None: the only project that has the job
    home: str | None  # the project's folder
    work: str  # where logs and local records go


def find_project_folder(*starts: str) -> str | None:
    """The nearest folder with a project.yml at or above one of the starting points, tried in order."""
    for start in starts:
        folder = os.path.abspath(start)
        while True:
            if os.path.isfile(os.path.join(folder, PROJECT_FILE)):
                return folder
            parent = os.path.dirname(folder)
            if parent == folder:
                break
            folder = parent
    return None


def get_address(*starts: str) -> Address:
    """Where the state is, for a command started at one of these folders, or raise ConfigurationError."""
    environ = os.environ
    home = find_project_folder(*starts)
    store, environment = environ.get("DATAFLOW_STORE"), environ.get("DATAFLOW_ENV")
    project = environ.get("DATAFLOW_PROJECT")
    if home is None:
        if not store:
            raise ConfigurationError(
                "found no project.yml in this folder or above, and DATAFLOW_STORE is not set; "
                "go to a project's folder, or set DATAFLOW_STORE to the store's address"
            )
        work = environ.get("DATAFLOW_HOME") or os.path.join(os.path.expanduser("~"), ".dataflow")
        return Address(absolute_store(store, os.getcwd()), environment, project, None, work)
    known = _known_addresses(home)
    environments: dict[str, str] = known["environments"]
    if environment is None:
        environment = known["first"]
    if environment not in environments:
        raise ConfigurationError(
            f"DATAFLOW_ENV is {environment!r}; {home}/{PROJECT_FILE} has {', '.join(environments) or 'none'}"
        )
    url = store or expand(environments[environment])
    return Address(
        absolute_store(url, home), environment, project or known["project"], home, os.path.join(home, ".dataflow")
    )


def absolute_store(url: str, folder: str) -> str:
    """A relative SQLite path is relative to the project's folder, wherever the command was started."""
    if url.startswith("sqlite:///"):
        return "sqlite:///" + os.path.join(folder, url.removeprefix("sqlite:///"))
    return url


def expand(text: str) -> str:
    """Replace ${NAME} and ${NAME:-default} from the environment, or raise ConfigurationError for a missing one."""
    if "${" not in text:
        return text
    head, _, rest = text.partition("${")
    name, closed, tail = rest.partition("}")
    if not closed:
        raise ConfigurationError(f"a ${{…}} is not closed in {text!r}")
    name, has_default, default = name.partition(":-")
    value = os.environ.get(name)
    if not value:
        if not has_default:
            raise ConfigurationError(f"the environment variable {name} is not set, and project.yml asks for it")
        value = default
    return head + value + expand(tail)


def _known_addresses(home: str) -> dict[str, Any]:
    seen = os.stat(os.path.join(home, PROJECT_FILE))
    stamp = [seen.st_size, seen.st_mtime_ns]
    cache = os.path.join(home, ".dataflow", "address.json")
    try:
        with open(cache, encoding="utf-8") as file:
            known = json.load(file)
        if known["stamp"] == stamp:
            return dict(known)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    from opendataflow.project.load import read_addresses

    known = {"stamp": stamp, **read_addresses(home)}
    try:
        os.makedirs(os.path.dirname(cache), exist_ok=True)
        handle = os.open(f"{cache}.{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(handle, "w", encoding="utf-8") as file:
            json.dump(known, file)
        os.replace(f"{cache}.{os.getpid()}", cache)
    except OSError:
        pass  # a read-only checkout reads its YAML each time
    return known

"""Which store and environment a command works with, without reading YAML when nothing changed.

`DATAFLOW_STORE` decides alone. Otherwise project.yml does; what it says about stores is kept in .dataflow/address.json,
valid as long as project.yml has the same size and modification time, because every RunJob passes here. Where no
project.yml says anything about stores, the original's dataflow.properties does; it is read each time, because what it
gives holds a password.

A folder that holds one version of a git project shares all of this with the other versions: its marker says where the
state, the logs and the streams are.
"""

import contextlib
import json
import os
from typing import Any, NamedTuple

from opendataflow.domain.variables import STORE
from opendataflow.errors import ConfigurationError
from opendataflow.private_files import OWN_FOLDER, close_to_others, make_folder
from opendataflow.project import PROJECT_FILE
from opendataflow.project.variables import expand

PROPERTIES_FILE = "dataflow.properties"
DEFAULT_STORE = "sqlite:///.dataflow/state.db"


class Address(NamedTuple):
    store: str
    environment: str | None  # None: whatever the store is stamped with
    project: str | None  # None: the only project that has the job
    home: str | None  # the project's folder
    work: str  # where logs and local records go
    openlineage: dict[str, str] | None = None  # where events of runs go, as project.yml says
    streams: str = ""  # the folder of the streams' logs; '': below `work`
    here: tuple[str, str] | None = None  # the project that the folder is and the folder; None for a version from git


def find_project_folder(*starts: str) -> str | None:
    """The nearest folder with a project.yml at or above one of the starting points, tried in order."""
    return _find_above(PROJECT_FILE, starts)


def find_properties(*starts: str) -> str | None:
    """The file that DATAFLOW_PROPERTIES names, or the nearest dataflow.properties at or above a starting point."""
    named = os.environ.get("DATAFLOW_PROPERTIES")
    if named:
        return os.path.abspath(named)
    folder = _find_above(PROPERTIES_FILE, starts)
    return os.path.join(folder, PROPERTIES_FILE) if folder is not None else None


def find_properties_in_use(*starts: str) -> str | None:
    """The properties file that the store's address comes from, or None when it comes from elsewhere."""
    if os.environ.get("DATAFLOW_STORE"):
        return None
    home = find_project_folder(*starts)
    if home is None:
        return find_properties(*starts)
    return _properties_of(home, _known_addresses(home))


def get_address(*starts: str, passkey: str | None = None, remember: bool = True) -> Address:
    """Where the state is, for a command started at one of these folders, or raise ConfigurationError.

    The passkey opens the password of a dataflow.properties; without one it is the environment's. With `remember`, what
    project.yml says is kept for the next call, and the work folder is closed to others if it was open.
    """
    found = _find_address(starts, passkey, remember=remember)
    if remember and os.path.basename(found.work) == OWN_FOLDER:
        with contextlib.suppress(OSError):  # not there yet, or somebody else's: `dataflow doctor` reports it
            close_to_others(found.work)
    return found


def _find_address(starts: tuple[str, ...], passkey: str | None, *, remember: bool) -> Address:
    environ = os.environ
    home = find_project_folder(*starts)
    store, environment = environ.get("DATAFLOW_STORE"), environ.get("DATAFLOW_ENV")
    project = environ.get("DATAFLOW_PROJECT")
    if home is None:
        properties = None if store else find_properties(*starts)
        if properties is not None:
            store = _store_of(properties, passkey)
        if not store:
            raise ConfigurationError(
                "found no project.yml in this folder or above, and DATAFLOW_STORE is not set; "
                "go to a project's folder (`dataflow init DIR` makes one), or set DATAFLOW_STORE to the store's address"
            )
        work = environ.get("DATAFLOW_HOME") or os.path.join(os.path.expanduser("~"), OWN_FOLDER)
        folder = os.path.abspath(environ["DATAFLOW_STREAMS"]) if environ.get("DATAFLOW_STREAMS") else ""
        return Address(absolute_store(store, os.getcwd()), environment, project, None, work, streams=folder)
    known = _known_addresses(home, remember=remember)
    environments: dict[str, str] = known["environments"]
    managed: dict[str, Any] = known.get("managed") or {}
    if environment is None:
        environment = managed.get("environment") or known["first"]
    if environment not in environments:
        raise ConfigurationError(
            f"DATAFLOW_ENV is {environment!r}; {home}/{PROJECT_FILE} has {', '.join(environments) or 'none'}"
        )
    if not store and managed:
        store = _store_of_managed(home, managed)
    if not store:
        properties = _properties_of(home, known)
        declared = environments[environment]
        store = _store_of(properties, passkey) if properties is not None else expand(declared, allowed=STORE)
    work, told = os.path.join(home, OWN_FOLDER), known.get("openlineage")
    openlineage = {name: expand(value) for name, value in told.items()} if told else None
    folder = environ.get("DATAFLOW_STREAMS") or expand(known.get("streams", {}).get(environment, ""))
    folder = os.path.join(home, os.path.expanduser(folder)) if folder else ""
    if managed:
        work, folder = managed["work"], environ.get("DATAFLOW_STREAMS") or managed["streams"]
    return Address(
        absolute_store(store, home), environment, project or known["project"], home, work, openlineage, folder,
        None if managed else (known["project"], home),
    )  # fmt: skip


def stream_folder(address: Address, project: str, slug: str) -> str:
    """Where the log of a stream is, and what its runner keeps beside it."""
    return os.path.join(address.streams or os.path.join(address.work, "streams"), project, slug)


def _find_above(name: str, starts: tuple[str, ...]) -> str | None:
    for start in starts:
        folder = os.path.abspath(start)
        while True:
            if os.path.isfile(os.path.join(folder, name)):
                return folder
            parent = os.path.dirname(folder)
            if parent == folder:
                break
            folder = parent
    return None


def _properties_of(home: str, known: dict[str, Any]) -> str | None:
    """The properties file beside a project.yml that says nothing about stores."""
    return _properties_beside(home) if known.get("silent") else None


def _properties_beside(home: str) -> str | None:
    named = os.environ.get("DATAFLOW_PROPERTIES")
    if named:
        return os.path.abspath(named)
    beside = os.path.join(home, PROPERTIES_FILE)
    return beside if os.path.isfile(beside) else None


def _store_of_managed(home: str, managed: dict[str, Any]) -> str:
    """The store that the version was put in place from."""
    if managed["store"]:
        return str(managed["store"])
    if managed["managed_from"]:
        return get_address(managed["managed_from"]).store
    raise ConfigurationError(f"{home} is a version of a git project; set DATAFLOW_STORE to the address of its store")


def _store_of(properties: str, passkey: str | None) -> str:
    from opendataflow.project.properties import read_properties

    return read_properties(properties, passkey=passkey).url


def absolute_store(url: str, folder: str) -> str:
    """A relative SQLite path is relative to the project's folder, wherever the command was started."""
    if url.startswith("sqlite:///"):
        return "sqlite:///" + os.path.join(folder, url.removeprefix("sqlite:///"))
    return url


def _known_addresses(home: str, *, remember: bool = True) -> dict[str, Any]:
    seen = os.stat(os.path.join(home, PROJECT_FILE))
    stamp = [seen.st_size, seen.st_mtime_ns]
    cache = os.path.join(home, OWN_FOLDER, "address.json")
    # Whether project.yml is silent about stores matters only where a properties file could speak instead.
    asks_silence = _properties_beside(home) is not None
    try:
        with open(cache, encoding="utf-8") as file:
            known = json.load(file)
        if known["stamp"] == stamp and (not asks_silence or "silent" in known):
            return dict(known)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    from opendataflow.project.registration.load import read_addresses, read_project
    from opendataflow.project.version import find_managed

    known = {"stamp": stamp, **read_addresses(home)}
    managed = find_managed(home)
    if managed is not None:
        known["managed"] = managed._asdict()
    if asks_silence:
        environments = read_project(home)[1].environments.values()
        known["silent"] = not any("store" in one.model_fields_set for one in environments)
    if not remember:
        return known
    try:
        make_folder(os.path.dirname(cache))
        handle = os.open(f"{cache}.{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(handle, "w", encoding="utf-8") as file:
            json.dump(known, file)
        os.replace(f"{cache}.{os.getpid()}", cache)
    except OSError:
        pass  # a read-only checkout reads its YAML each time
    return known

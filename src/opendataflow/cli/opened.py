"""The project and store that a command works with."""

import os
from typing import Any

from opendataflow.errors import ConfigurationError, DataflowError
from opendataflow.execution.session import own_name
from opendataflow.project.address import Address, get_address
from opendataflow.store import open_store
from opendataflow.store.claims import LoopStore


def address() -> Address:
    return get_address(os.getcwd())


def project_address() -> Address:
    """The address, where a project.yml is needed."""
    found = address()
    if found.home is None:
        raise ConfigurationError(
            "found no project.yml in this folder or above; go to a project's folder; `dataflow init DIR` makes one"
        )
    return found


def bound_in(found: Address, store: LoopStore | None = None) -> dict[str, dict[str, Any]]:
    """What was bound to the project's datasets in its store; nothing where there is no store yet."""
    from opendataflow.store.records.sources import bindings_of

    opened_here = existing(found) if store is None else None
    used = store or opened_here
    try:
        return bindings_of(used, declared_project(found)) if used is not None else {}
    finally:
        if opened_here is not None:
            opened_here.close()


def bound_if_known(home: str) -> dict[str, dict[str, Any]]:
    """The same for commands that need no store: nothing where the project or its store cannot be asked."""
    try:
        return bound_in(get_address(home, remember=False))
    except DataflowError:
        return {}


def declared_project(found: Address) -> str:
    """The project that project.yml declares, whichever one DATAFLOW_PROJECT names."""
    if found.home is None or not os.environ.get("DATAFLOW_PROJECT"):
        return found.project or ""
    from opendataflow.project.registration.load import read_addresses

    return str(read_addresses(found.home)["project"])


def existing(found: Address) -> LoopStore | None:
    """The store, or None where nothing was applied yet."""
    from opendataflow.store.open import SCHEMA_VERSION

    if found.store.startswith("sqlite:///") and not os.path.exists(found.store.removeprefix("sqlite:///")):
        return None
    store = open_store(found.store, actor=own_name(), check=False, here=found.here)
    if not store.has_tables():
        store.close()
        return None
    store.check_schema(SCHEMA_VERSION)
    if store.environment and found.environment is not None:
        store.check_environment(found.environment)
    return store


def opened(found: Address | None = None, *, make: bool = False) -> LoopStore:
    """The project's store; with `make`, a missing or empty one is made."""
    found = found or address()
    store = open_store(found.store, actor=own_name(), must_exist=not make, check=not make, here=found.here)
    if make:
        from opendataflow.store.migrate import upgrade
        from opendataflow.store.open import SCHEMA_VERSION

        if not store.has_tables():
            upgrade(store)
        store.check_schema(SCHEMA_VERSION)
        if store.environment and found.environment is not None:
            store.check_environment(found.environment)
    elif found.environment is not None:
        store.check_environment(found.environment)
    return store

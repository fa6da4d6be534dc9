"""The project and store that a command works with."""

import os

from opendataflow.errors import ConfigurationError
from opendataflow.project.address import Address, get_address
from opendataflow.runner.session import own_name
from opendataflow.store import open_store
from opendataflow.store.loop import LoopStore


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


def opened(found: Address | None = None, *, make: bool = False) -> LoopStore:
    """The project's store; with `make`, a missing or empty one is made."""
    found = found or address()
    store = open_store(found.store, actor=own_name(), must_exist=not make, check=not make)
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

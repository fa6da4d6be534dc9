"""From a store's address to an open store."""

import time
from collections.abc import Callable

from opendataflow.errors import ConfigurationError
from opendataflow.store.claims import LoopStore
from opendataflow.store.places import Here

SCHEMA_VERSION = 17


def open_store(
    url: str,
    *,
    actor: str,
    environment: str | None = None,
    clock: Callable[[], float] = time.time,
    must_exist: bool = True,
    check: bool = True,
    here: Here | None = None,
) -> LoopStore:
    """Open the store at `sqlite:///path` or `postgresql://…`; with `check`, its schema and environment must fit.

    `here` is the project in whose folder the caller works: it is there, wherever it was when it was applied.
    """
    store: LoopStore
    if url.startswith("sqlite:///"):
        from opendataflow.store.sqlite import SqliteStore

        store = SqliteStore(url.removeprefix("sqlite:///"), actor=actor, clock=clock, must_exist=must_exist)
    elif url.startswith(("postgresql://", "postgres://")):
        from opendataflow.store.postgres import PostgresStore

        store = PostgresStore(url, actor=actor, clock=clock)
    else:
        scheme = url.partition(":")[0] if "://" in url else "(none)"
        raise ConfigurationError(
            f"the store's address starts with {scheme!r}; use sqlite:///path/to/state.db or postgresql://…"
        )
    store.here = here
    if check:
        try:
            store.check_schema(SCHEMA_VERSION)
            if environment is not None:
                store.check_environment(environment)
        except BaseException:
            store.close()
            raise
    return store

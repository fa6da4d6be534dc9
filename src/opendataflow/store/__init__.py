"""The state store: SQLite or PostgreSQL behind one protocol. `open_store(url)` is the way in."""

from opendataflow.store.open import open_store

__all__ = ["open_store"]

"""Numbered migrations: sql/<dialect>/migrations/NNNN_name.sql, each in one transaction, applied once, in order."""

import os

from opendataflow.store.claims import LoopStore
from opendataflow.store.places import home_below


def migrations(dialect: str) -> list[tuple[int, str, str]]:
    """Number, name and text of every migration of the dialect, in order."""
    folder = os.path.join(os.path.dirname(__file__), "sql", dialect, "migrations")
    found = []
    for file in sorted(os.listdir(folder)):
        number, _, name = file.removesuffix(".sql").partition("_")
        with open(os.path.join(folder, file), encoding="utf-8") as source:
            found.append((int(number), name, source.read()))
    return found


def upgrade(store: LoopStore) -> list[str]:
    """Bring the store to the newest schema; returns the names of the migrations that were applied."""
    done = []
    with store.bare_transaction() as tx:
        tx.rows("lock_schema", {})
        tx.run("create_migration_table", {})
        applied = {row[0] for row in tx.rows("applied_migrations", {})}
        for number, name, text in migrations(store.dialect):
            if number not in applied:
                store.script(text)
                tx.run("record_migration", {"version": number, "name": name})
                done.append(f"{number:04d}_{name}")
        if done:
            for project, home in tx.rows("homes", {}):
                below = {"home_below_store": home_below(store.folder, home)}
                tx.run("set_home_below_store", {"project": project, **below})
    return done

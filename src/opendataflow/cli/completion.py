"""Names of jobs and datasets for shell completion: read from the store, in a moment, or not at all."""

import contextlib
import threading

SECONDS = 1.0  # somebody has pressed Tab and waits


def jobs(incomplete: str) -> list[str]:
    return _names(incomplete, "jobs_of")


def datasets(incomplete: str) -> list[str]:
    return _names(incomplete, "datasets_of")


def jobs_and_datasets(incomplete: str) -> list[str]:
    return _names(incomplete, "jobs_of", "datasets_of")


def _names(incomplete: str, *statements: str) -> list[str]:
    """What begins so; nothing when there is no store, or when it does not answer in time."""
    found: list[str] = []
    # A thread of its own: a database that is away may let its caller wait for longer than a person does.
    reader = threading.Thread(target=_read, args=(statements, found), daemon=True)
    reader.start()
    reader.join(SECONDS)
    return [name for name in dict.fromkeys(found) if name.startswith(incomplete)]


def _read(statements: tuple[str, ...], found: list[str]) -> None:
    with contextlib.suppress(Exception):  # nothing that is wrong may show in the middle of a command line
        from opendataflow.cli.opened import address, opened
        from opendataflow.store.operations import get_project

        where = address()
        store = opened(where)
        project = get_project(store, where.project)
        for statement in statements:
            found += [str(row[1]) for row in store.read(statement, {"project": project}, file="registry")]
        store.close()

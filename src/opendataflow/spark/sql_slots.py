"""At most so many connections to a database at the same time, by all workers together (`connections:`).

On PostgreSQL a slot is a session-level advisory lock in that database itself, so it holds across machines and ends with
its session, however that ends. Elsewhere it is a locked file of this machine, which ends with its process.

A connection that others must join while it stays open (it holds a read's snapshot) takes a slot of the lower half only,
and goes without when there is none: so there is always one that the joining connections can have, and nobody waits for
ever.
"""

import errno
import fcntl
import hashlib
import os
import sys
import tempfile
import time
from typing import Any, Protocol

from opendataflow.errors import JobFailed

WAIT_SECONDS = 600
_PAUSES = (0.05, 0.1, 0.2, 0.5, 1.0)

# The name of the user is in the key: `connections` of one user are not another's. Locks are per database by themselves.
# LIMIT ends the scan at the first slot that could be taken, so no second one is.
_TAKE_SLOT = """
SELECT slot FROM generate_series({first}, {last}, {step}) AS slot
WHERE pg_try_advisory_lock(hashtext('dataflow connections of ' || current_user), slot::integer) LIMIT 1
"""


class _Access(Protocol):
    @property
    def dialect(self) -> str: ...
    @property
    def shown(self) -> str: ...
    @property
    def connections(self) -> int | None: ...


class AllTaken(Exception):
    """No slot is free now."""


class NoSlot(JobFailed):
    """For a connection that holds a snapshot there is no slot now; for another one there was none for too long."""


class Wait:
    """The wait for a slot, without a connection meanwhile: one that waits would count as well."""

    def __init__(self, access: _Access) -> None:
        self._access, self._since, self._pauses = access, time.monotonic(), 0

    def a_moment(self) -> None:
        """Sleep a little, say once what for, or raise NoSlot when it was too long."""
        access = self._access
        if self._pauses == 0:
            print(f"waiting: all {access.connections} connections to {access.shown} are taken", file=sys.stderr)
        if time.monotonic() - self._since > WAIT_SECONDS:
            raise NoSlot(
                f"all {access.connections} connections to {access.shown} were taken for {WAIT_SECONDS // 60} minutes; "
                "raise `connections:` of the dataset, or run fewer chunks at once"
            )
        time.sleep(_PAUSES[min(self._pauses, len(_PAUSES) - 1)])
        self._pauses += 1


class Slot:
    """A taken slot; the session or the process that ends gives it back too."""

    def __init__(self, file: int | None = None) -> None:
        self._file = file

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def take_slot(connection: Any, access: _Access, *, holding: bool = False) -> Slot | None:
    """One of the database's slots for this connection, or raise AllTaken; None where there is no limit."""
    if access.connections is None:
        return None
    numbers = range(1, access.connections // 2 + 1) if holding else range(access.connections, 0, -1)
    slot = _take(connection, access, numbers)
    if slot is None and holding:
        raise NoSlot(f"no connection to {access.shown} is free to hold a snapshot")
    if slot is None:
        raise AllTaken
    return slot


def _take(connection: Any, access: _Access, numbers: range) -> Slot | None:
    if not numbers:
        return None
    if access.dialect == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(_TAKE_SLOT.format(first=numbers[0], last=numbers[-1], step=numbers.step))
            return Slot() if cursor.fetchone() else None
    files = (_lock_file(access.shown, number) for number in numbers)
    return next((Slot(file) for file in files if file is not None), None)


def _lock_file(shown: str, number: int) -> int | None:
    key = hashlib.sha256(shown.encode()).hexdigest()[:24]
    folder = os.path.join(tempfile.gettempdir(), f"dataflow-connections-{os.getuid()}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    if os.lstat(folder).st_uid != os.getuid():
        raise PermissionError(errno.EPERM, "the folder that counts connections is another user's", folder)
    file = os.open(os.path.join(folder, f"{key}.{number}"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return None
    return file

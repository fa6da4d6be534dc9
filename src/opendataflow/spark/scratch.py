"""A folder for what Spark puts aside: shuffle files, its warehouse, unpacked native libraries.

Each child has its own, below the machine's temporary folder. It goes when the child ends; what a killed child left is
removed by the next one, which knows by the lock that nobody lives there any more.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator

_PREFIX = "dataflow-spark-"
_LOCK = ".lock"
_YOUNG_SECONDS = 60.0  # a folder this new may belong to a child that has not locked it yet


@contextlib.contextmanager
def scratch_folder() -> Iterator[str]:
    """A folder of our own, gone afterwards."""
    sweep()
    folder = tempfile.mkdtemp(prefix=_PREFIX)
    lock = os.open(os.path.join(folder, _LOCK), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def sweep() -> None:
    """Remove the folders of children that were killed."""
    base = tempfile.gettempdir()
    for name in os.listdir(base):
        if name.startswith(_PREFIX):
            with contextlib.suppress(OSError):
                _remove_if_left(os.path.join(base, name))


def _remove_if_left(folder: str) -> None:
    seen = os.lstat(folder)
    if seen.st_uid != os.getuid() or time.time() - seen.st_mtime < _YOUNG_SECONDS:
        return
    lock = os.open(os.path.join(folder, _LOCK), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)

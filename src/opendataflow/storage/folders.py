"""What a scan asks of the folders below a root, on this machine or in an object store."""

import os
import stat
from collections.abc import Iterator
from typing import Protocol

from opendataflow.domain.dataset import is_below
from opendataflow.storage.buckets.address import is_in_bucket
from opendataflow.storage.files import Found, find_files


class Folders(Protocol):
    def names(self, folder: str) -> Iterator[str]:
        """Names of what is in the folder; raises OSError when it cannot be listed."""

    def is_there(self, path: str) -> bool:
        """Raises OSError when that cannot be told."""

    def files(self, path: str) -> Found:
        """As find_files, seldom asking twice for what `names` has told already."""

    def changed_ns(self, path: str) -> int:
        """When something was put into the folder or taken out, where that is known; 0 for a file."""

    def problem(self, path: str, *, is_folder: bool = False) -> str:
        """Why it must not be read, though it is there; empty when it may."""

    def leads_nowhere(self, path: str) -> bool:
        """True for a link without an end."""


def folders_of(root: str) -> Folders:
    return InBucket() if is_in_bucket(root) else OnDisk(root)


class OnDisk:
    def __init__(self, root: str) -> None:
        self._root, self._real_root = root, os.path.realpath(root)

    def names(self, folder: str) -> Iterator[str]:
        return iter(os.listdir(folder))

    def is_there(self, path: str) -> bool:
        try:
            os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def files(self, path: str) -> Found:
        return find_files(path)

    def changed_ns(self, path: str) -> int:
        return os.stat(path).st_mtime_ns if os.path.isdir(path) else 0

    def problem(self, path: str, *, is_folder: bool = False) -> str:
        real = os.path.realpath(path)
        if not is_below(real, self._real_root):
            return f"{path} leads to {real}, which is not below {self._root}, the root of this environment"
        if not is_folder and not stat.S_ISREG(os.stat(real).st_mode):
            return f"{path} is not a regular file"
        return ""

    def leads_nowhere(self, path: str) -> bool:
        return os.path.islink(path) and not os.path.exists(path)


class InBucket:
    """A listing tells sizes and times too: a scan of many chunks costs a request for a thousand of them."""

    def __init__(self) -> None:
        self._listed: dict[str, Found] = {}

    def names(self, folder: str) -> Iterator[str]:
        from opendataflow.storage.buckets.files import below, entries

        for entry in entries(folder):
            if entry.stored is not None:
                self._listed[below(folder, entry.name)] = Found((("", entry.stored.size, entry.stored.changed_ns),))
            yield entry.name

    def is_there(self, path: str) -> bool:
        from opendataflow.storage.buckets.files import is_there

        return path in self._listed or is_there(path)

    def files(self, path: str) -> Found:
        return self._listed.pop(path, None) or find_files(path)  # once: what is looked at again is asked for again

    def changed_ns(self, path: str) -> int:  # noqa: ARG002  an object is as old as it is there
        return 0

    def problem(self, path: str, *, is_folder: bool = False) -> str:  # noqa: ARG002  no links, no devices
        return ""

    def leads_nowhere(self, path: str) -> bool:  # noqa: ARG002
        return False

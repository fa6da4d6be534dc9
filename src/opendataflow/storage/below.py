"""Opening files below a folder: what was looked at may be a link to somebody else's file by the time it is opened."""

import errno
import os
from collections.abc import Callable

from opendataflow.domain.dataset import is_below


def opener_below(root: str, *, follow: bool = True) -> Callable[[str, int], int]:
    """The `opener` of Python's open that raises OSError unless what it opened lies below the root.

    `follow`: whether the file itself may be a link.
    """

    def opener(path: str, flags: int) -> int:
        fd = os.open(path, flags if follow else flags | os.O_NOFOLLOW)
        # The kernel tells where the file is that was opened, whatever has become of the names and links that led to it.
        if not is_below(os.path.realpath(f"/proc/self/fd/{fd}"), os.path.realpath(root)):
            os.close(fd)
            raise OSError(errno.EPERM, f"it is not below {root}", path)
        return fd

    return opener

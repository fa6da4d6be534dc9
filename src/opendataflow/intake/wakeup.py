"""Being woken when items become durable, instead of asking for it all the time."""

import contextlib
import os

from opendataflow.intake.segments import end_path, log_folder

_IN_MODIFY = 0x2
_EVENTS_BYTES = 4096


class Wakeup:
    """Becomes readable when the log of a stream grows, if another process of this machine has written to it.

    What another machine writes to a shared disk the kernel does not tell of: who waits looks now and then as well.
    """

    def __init__(self, folder: str) -> None:
        self._path = end_path(log_folder(folder))
        self._fd = -1
        self._is_watched = False

    @property
    def fds(self) -> tuple[int, ...]:
        """What to poll; nothing while there is no log."""
        if not self._is_watched and os.path.exists(self._path):
            self._is_watched = True
            self._watch()
        return (self._fd,) if self._fd >= 0 else ()

    def _watch(self) -> None:
        import ctypes

        libc = ctypes.CDLL(None)
        fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if fd >= 0 and libc.inotify_add_watch(fd, os.fsencode(self._path), _IN_MODIFY) >= 0:
            self._fd = fd
        elif fd >= 0:
            os.close(fd)

    def drain(self) -> None:
        """From now on it is readable for what is written from now on."""
        if self._fd >= 0:
            with contextlib.suppress(BlockingIOError):
                os.read(self._fd, _EVENTS_BYTES)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

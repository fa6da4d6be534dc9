"""What other programs of the same user see of this process: neither its memory nor the secrets it was started with.

Scripts and transformations run as the user that OpenDataFlow runs as, and the kernel lets a user read
`/proc/<pid>/environ` and `/proc/<pid>/mem` of their own processes. A process of ours that holds the passkey, an address
with its password or a token makes itself unreadable first. A program that it starts is readable again: the kernel sees
to that. Root reads everything; so the secrets leave the block of the environment that `/proc/<pid>/environ` shows.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:  # a guard is as small as can be
    from collections.abc import Callable

_PR_SET_DUMPABLE = 4
_ENV_START, _ENV_END = 47, 48  # of /proc/self/stat after the command's name


def protect(is_secret: "Callable[[str], bool] | None" = None) -> None:
    """Let no other program read this process, nor the values of the variables that are secret; it leaves no core dump.

    Call it first. What it forks is protected as well, what it executes is not.
    """
    names = [name for name in os.environ if is_secret(name)] if is_secret is not None else []
    if names:
        for name in names:
            os.environ[name] = os.environ[name]  # the C library keeps a copy of its own from here on
        _clear_block({os.fsencode(name) for name in names})
    prctl(_PR_SET_DUMPABLE, 0)


def prctl(option: int, value: int) -> bool:
    """The system call; False when the kernel refuses it."""
    import _ctypes  # ctypes itself takes ten times as long to import, and every RunJob would wait for it

    call = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]
    return bool(_ctypes.call_function(call, (option, int(value), 0, 0, 0)) == 0)


def _clear_block(names: set[bytes]) -> None:
    """Put zeros where the values of these variables were when the process started."""
    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b") ")[2].split()
        start, end = int(fields[_ENV_START]), int(fields[_ENV_END])
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(start)
            block = memory.read(end - start)
            at = start
            for entry in block.split(b"\0"):
                name, equals, value = entry.partition(b"=")
                if equals and name in names:
                    memory.seek(at + len(name) + 1)
                    memory.write(bytes(len(value)))
                at += len(entry) + 1
    except (OSError, ValueError, IndexError):
        pass  # not on this kernel; nobody else of this user reads it either

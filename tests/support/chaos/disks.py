"""The disk that a stream's log is on: one that can be filled to the last byte, where one can be mounted."""

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from support.chaos.stream_plan import StreamSize


@dataclass(frozen=True)
class Disk:
    """Where the log is; one that can be filled to the last byte, where one can be mounted."""

    folder: Path
    can_fill: bool

    def fill(self) -> None:
        with contextlib.suppress(OSError), open(self.folder / "ballast", "ab", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))

    def empty(self) -> None:
        (self.folder / "ballast").unlink(missing_ok=True)


@contextlib.contextmanager
def disk_of(folder: Path, size: StreamSize, say: Callable[[str], None]) -> Iterator[Disk]:
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=256m", "none", str(folder)]
    if size.full_disks and subprocess.run(mount, capture_output=True).returncode == 0:
        try:
            yield Disk(folder, can_fill=True)
        finally:
            subprocess.run(["umount", "-l", str(folder)], check=True)
        return
    if size.full_disks:
        say("a tmpfs cannot be mounted here: the disk of the log does not fill")
    yield Disk(folder, can_fill=False)

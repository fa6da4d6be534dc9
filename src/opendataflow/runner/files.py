"""Looking at the files of a chunk: is it there, how large, and is it still the same."""

import os
from typing import NamedTuple

from opendataflow.domain.chunk import Manifest

DIGEST_LIMIT = 256 * 1024 * 1024  # content of larger chunks is not hashed; size and time stand for it


class Found(NamedTuple):
    """The files of a location: path below it, size, modification time."""

    files: tuple[tuple[str, int, int], ...]

    @property
    def bytes(self) -> int:
        return sum(size for _, size, _ in self.files)


def is_local(location: str) -> bool:
    return "://" not in location


def find_files(location: str) -> Found:
    """The files there; a directory's hidden ones (`_…`, `.…`) do not count. Raises OSError when it is not there."""
    if not os.path.isdir(location):
        seen = os.stat(location)
        return Found((("", seen.st_size, seen.st_mtime_ns),))
    found = []
    for folder, subfolders, names in os.walk(location, onerror=_raise):
        subfolders[:] = [name for name in subfolders if not name.startswith(("_", "."))]
        for name in names:
            if not name.startswith(("_", ".")):
                path = os.path.join(folder, name)
                seen = os.stat(path)
                found.append((os.path.relpath(path, location), seen.st_size, seen.st_mtime_ns))
    return Found(tuple(sorted(found)))


def _raise(error: OSError) -> None:
    raise error


def manifest_of(location: str) -> Manifest:
    """What lies there, fingerprinted. Raises OSError when it is not there."""
    found = find_files(location)
    return Manifest(
        location=location, files=len(found.files), bytes=found.bytes, fingerprint=fingerprint(location, found)
    )


def fingerprint(location: str, found: Found) -> str:
    """`<size and times>/<content>`: the first part is cheap to compare, the second survives a copy or a touch."""
    return f"{_quick(found)}/{_content(location, found)}"


def is_same(location: str, found: Found, known: str) -> bool:
    """True when the files are those that were fingerprinted; content is read only if sizes or times differ."""
    quick, _, content = known.partition("/")
    if quick == _quick(found):
        return True
    return content not in ("", "-") and content == _content(location, found)


def _quick(found: Found) -> str:
    import hashlib

    return hashlib.sha256(repr(found.files).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _content(location: str, found: Found) -> str:
    if found.bytes > DIGEST_LIMIT:
        return "-"
    import hashlib

    digest = hashlib.sha256()
    for name, size, _ in found.files:
        digest.update(f"{name}\0{size}\0".encode("utf-8", "surrogateescape"))
        with open(os.path.join(location, name) if name else location, "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()[:32]

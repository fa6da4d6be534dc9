"""Looking at the files of a chunk, here or in an object store: is it there, how large, and is it still the same."""

import os
import time
from typing import Any, NamedTuple

from opendataflow.domain.chunk import Manifest
from opendataflow.domain.dataset import is_below
from opendataflow.domain.runs.questions import CODES, Question
from opendataflow.errors import Refused
from opendataflow.storage.buckets.address import is_in_bucket

DIGEST_LIMIT = 256 * 1024 * 1024  # content of larger chunks is not hashed; size and time stand for it
_PART = "part-"  # how Spark's file names begin
RACY_SECONDS = 5.0  # object stores tell times in whole seconds: a change in the same second would go unseen


class Found(NamedTuple):
    """The files of a location: path below it, size, modification time."""

    files: tuple[tuple[str, int, int], ...]

    @property
    def bytes(self) -> int:
        return sum(size for _, size, _ in self.files)


def is_local(location: str) -> bool:
    return "://" not in location


def is_reachable(location: str) -> bool:
    """True when its files can be looked at from here: of this machine, or of an object store."""
    return is_local(location) or is_in_bucket(location)


def find_files(location: str) -> Found:
    """The files there; a directory's hidden ones (`_…`, `.…`) do not count. Raises OSError when it is not there."""
    if is_in_bucket(location):
        from opendataflow.storage.buckets.files import find

        return Found(tuple((one.name, one.size, one.changed_ns) for one in find(location)))
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


def is_inside(location: str, root: str) -> bool:
    """True when the location, wherever links lead, is the root or below it; an object store has no links."""
    return (
        is_below(os.path.realpath(location), os.path.realpath(root)) if is_local(location) else is_below(location, root)
    )


def find_inside(location: str, *, root: str, told: str) -> Found:
    """As find_files, for what is read, shown or sent: raises Refused (INVALID_PATH) unless all of it is below the root.

    `told` is what people call it. Nothing is opened.
    """
    _check_inside(location, root, told)
    found = find_files(location)
    if is_local(location):
        for name, _, _ in found.files:
            path = os.path.join(location, name)
            if os.path.islink(path):  # folders that are links were not entered
                _check_inside(path, root, told)
    return found


def _check_inside(location: str, root: str, told: str) -> None:
    if not is_inside(location, root):
        text = f"{told} is at {location}, which is not below the environment's root; it is not read"
        raise Refused(text, exit_code=CODES[Question.LOCATION][1])


def manifest_of(location: str) -> Manifest:
    """What lies there, fingerprinted. Raises OSError when it is not there."""
    found = find_files(location)
    return Manifest(
        location=location, files=len(found.files), bytes=found.bytes, fingerprint=fingerprint(location, found)
    )


def fingerprint(location: str, found: Found) -> str:
    """`<size and times>/<content>`: the first part is cheap to compare, the second survives a copy or a touch.

    The second is also that of the same data made again: the names that Spark gives its files do not count.
    In an object store the content is what the store says of it (its ETags): nothing is read.
    """
    content = content_of(location, found)
    quick = "-" if content != "-" and _may_change_unseen(location, found) else quick_fingerprint(found)
    return f"{quick}/{content}"


def _may_change_unseen(location: str, found: Found) -> bool:
    if not is_in_bucket(location) or not found.files:
        return False
    return time.time() - max(changed for _, _, changed in found.files) / 1e9 < RACY_SECONDS


def is_same(location: str, found: Found, known: str) -> bool:
    """True when the files are those that were fingerprinted; content is read only if sizes or times differ."""
    quick, _, content = known.partition("/")
    if quick == quick_fingerprint(found):
        return True
    return content not in ("", "-") and content == content_of(location, found)


def quick_fingerprint(found: Found) -> str:
    """Of names, sizes and times alone."""
    import hashlib

    return hashlib.sha256(repr(found.files).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def content_of(location: str, found: Found) -> str:
    """The second part of a fingerprint, read anew; `-` where it is too large to be read."""
    if is_in_bucket(location):
        return _etags(location, found)
    if found.bytes > DIGEST_LIMIT:
        return "-"
    import hashlib

    if any(_lasting_name(name) != name for name, _, _ in found.files):
        return _together(sorted(_part(location, name, size) for name, size, _ in found.files))
    digest = hashlib.sha256()
    for name, size, _ in found.files:
        digest.update(f"{name}\0{size}\0".encode("utf-8", "surrogateescape"))
        _read_into(digest, os.path.join(location, name) if name else location)
    return digest.hexdigest()[:32]


def _read_into(digest: Any, path: str) -> None:
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)


def _part(location: str, name: str, size: int) -> tuple[str, int, str]:
    import hashlib

    digest = hashlib.sha256()
    _read_into(digest, os.path.join(location, name))
    return _lasting_name(name), size, digest.hexdigest()


def _lasting_name(name: str) -> str:
    """Spark numbers its files and gives them the id of the write: without both, the same data has the same names."""
    if _PART not in name:
        return name
    import re

    return re.sub(r"part-\d+-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}([.-]c\d+)?", _PART, name)


def _together(parts: list[Any]) -> str:
    import hashlib

    return hashlib.sha256(repr(parts).encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _etags(location: str, found: Found) -> str:
    from opendataflow.storage.buckets.files import etags

    marks = etags(location, [name for name, _, _ in found.files])
    if not all(marks):
        return "-"
    told = [(_lasting_name(name), size, mark) for (name, size, _), mark in zip(found.files, marks, strict=True)]
    return _together(sorted(told) if [one[0] for one in told] != [one[0] for one in found.files] else told)


def why_stale(found: Found, dataid: str) -> str:
    """Yesterday's file under today's name: what was last written before its slot began cannot be of that slot."""
    if not found.files or not dataid[:4].isdigit() or "-" not in dataid:
        return ""
    import datetime

    from opendataflow.domain.partitions.scheme import slot_of

    slot = slot_of(dataid, None)
    written_at = datetime.datetime.fromtimestamp(max(file[2] for file in found.files) / 1e9, datetime.UTC)
    if slot is None or written_at >= slot[0]:
        return ""
    return f"it was last written at {written_at:%Y-%m-%dT%H:%MZ}, before {dataid} began"

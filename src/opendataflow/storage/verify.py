"""Is what was published still there, and still what was published?"""

from enum import StrEnum

from opendataflow.errors import Refused
from opendataflow.storage.files import Found, content_of, find_inside, is_reachable, is_same


class Finding(StrEnum):
    SAME = "same"
    GONE = "gone"
    CHANGED = "changed"
    UNSEEN = "unseen"  # it cannot be looked at from here, or nothing is known to compare with


def verify_files(location: str | None, fingerprint: str | None, *, root: str, name: str, contents: bool) -> Finding:
    """Compare the files with their fingerprint: sizes and times first, contents where those differ.

    With `contents` they are read in any case. What lies in an object store is compared by its ETags.
    """
    if location is None or not is_reachable(location):
        return Finding.UNSEEN
    try:
        found = find_inside(location, root=root, told=name)
        if not found.files:
            return Finding.GONE
        return _compare(location, found, fingerprint, contents=contents)
    except (FileNotFoundError, NotADirectoryError):
        return Finding.GONE
    except (OSError, Refused):
        return Finding.UNSEEN


def _compare(location: str, found: Found, fingerprint: str | None, *, contents: bool) -> Finding:
    if fingerprint is None:
        return Finding.UNSEEN
    known = fingerprint.partition("/")[2]
    if contents and known not in ("", "-"):
        return Finding.SAME if content_of(location, found) == known else Finding.CHANGED
    return Finding.SAME if is_same(location, found, fingerprint) else Finding.CHANGED

"""Locations as a store keeps them: what is below the root of its project is relative to it, so that a project can move.

Everything else in the system has whole locations. A store shortens them as it writes and completes them as it reads.
"""

_SQLITE = "sqlite:///"  # a table in a file: its path below the root, as project.yml gives it


def stored_location(location: str, root: str) -> str:
    """The location relative to the root, if it is below it; any other location as it is."""
    if location.startswith(_SQLITE):
        path = location.removeprefix(_SQLITE)
        return _SQLITE + (_below(path, root) or path)
    if location == root:
        return "."
    return _below(location, root) or location


def whole_location(stored: str, root: str) -> str:
    """The location of which `stored_location` made this; whole locations, as people write them by hand, stay."""
    if stored.startswith("/"):
        return stored
    if stored.startswith(_SQLITE):
        path = stored.removeprefix(_SQLITE)
        return stored if path.startswith("/") else f"{_SQLITE}{root.rstrip('/')}/{path}"
    if "://" in stored:
        return stored
    return root if stored == "." else f"{root.rstrip('/')}/{stored}"


def _below(path: str, root: str) -> str | None:
    """The part of the path after the root; None where it is not below it, or `..` could lead out of it."""
    top = root.rstrip("/") + "/"
    short = path.removeprefix(top)
    is_below = path.startswith(top) and short not in ("", ".") and not short.startswith("/") and "://" not in short
    return short if is_below and ".." not in short.split("/") else None

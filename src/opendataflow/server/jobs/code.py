"""The code of jobs as text: read from the project's folder, never imported; nothing outside of it is ever read."""

import os
from typing import NamedTuple

MOST_BYTES = 200_000
FOLDER = "pipelines"


class CodeText(NamedTuple):
    path: str  # from the project's folder
    text: str | None  # None: it cannot be read here, and `problem` says why
    problem: str = ""


def transformation_text(home: str, slug: str, name: str) -> CodeText:
    """The file of a pipeline's transformation."""
    return read_text(home, f"{FOLDER}/{slug}/{name.removesuffix('.py')}.py")


def read_text(home: str, path: str) -> CodeText:
    """A file below the project's folder, wherever its links lead; cut where it is very long."""
    root = os.path.realpath(home)
    place = os.path.realpath(os.path.join(root, path))
    if place != root and not place.startswith(root.rstrip("/") + "/"):
        return CodeText(path, None, "it is outside of the project's folder, and is not shown")
    if not os.path.isdir(root):
        return CodeText(path, None, "the project's folder is not on the server's machine")
    try:
        with open(place, "rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        return CodeText(path, None, f"it cannot be read here: {error.strerror}")
    if b"\0" in data:
        return CodeText(path, None, "it is no text")
    text = data[:MOST_BYTES].decode("utf-8", "replace")
    return CodeText(path, text, "it is cut: the rest is in the file" if len(data) > MOST_BYTES else "")

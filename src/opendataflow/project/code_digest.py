"""What tells one state of a project's code from another."""

import hashlib
import os

_NOT_CODE = ("node_modules", "site-packages", "__pycache__")


def code_digest(home: str) -> str:
    """A digest of every Python file of the project that its transformations could import; data changes nothing."""
    digest = hashlib.sha256()
    for folder, folders, files in os.walk(home):
        folders[:] = sorted(
            name for name in folders
            if not name.startswith(".") and name not in _NOT_CODE
            and not os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))
        )  # fmt: skip
        for name in sorted(files):
            if name.endswith(".py"):
                path = os.path.join(folder, name)
                digest.update(os.path.relpath(path, home).encode(errors="surrogateescape") + b"\0")
                try:
                    with open(path, "rb") as file:
                        digest.update(hashlib.sha256(file.read()).digest())
                except OSError:
                    digest.update(b"-")
    return digest.hexdigest()

"""The version of a project's folder, as git knows it."""

import os
import subprocess
from typing import NamedTuple

_SECONDS = 10.0


class Version(NamedTuple):
    """The commit that is checked out, and whether the files differ from it; None outside git."""

    commit: str | None = None
    dirty: bool | None = None


def find_version(folder: str) -> Version:
    """What git says of this folder; without git, or outside of it, nothing is known."""
    commit = _git(folder, "rev-parse", "--verify", "--quiet", "HEAD")
    if commit is None:
        return Version()
    changed = _git(folder, "status", "--porcelain", "--untracked-files=normal", "--", ".")
    return Version(commit.strip(), None if changed is None else bool(changed.strip()))


def _git(folder: str, *args: str) -> str | None:
    # Asking must not change the repository: no lock for a refreshed index.
    env = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["git", "-C", folder, *args],
            env=env, capture_output=True, text=True, timeout=_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None

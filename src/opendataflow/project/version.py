"""The version of a project's folder: as git knows it, or as it was put there from a git project.

A folder that holds one version of a git project has a marker, `.dataflow/version.json`, beside the project's files. It
says which commit this is, and where the state, the logs and the data are that all versions share: they must not move
from folder to folder with each commit.
"""

import json
import os
from typing import Any, NamedTuple

from opendataflow.domain.variables import without_platform_variables
from opendataflow.private_files import make_folder, opener

MARKER = os.path.join(".dataflow", "version.json")
_SECONDS = 10.0


class Version(NamedTuple):
    """The commit that is checked out, and whether the files differ from it; None outside git."""

    commit: str | None = None
    dirty: bool | None = None


class Managed(NamedTuple):
    """What a version of a git project shares with the others."""

    project: str
    commit: str
    shared: str  # what is relative in project.yml is below it
    work: str  # logs and local records
    environment: str
    store: str | None = None  # None: its address holds a password, which is not written down
    managed_from: str | None = None  # the folder whose project.yml names the store
    streams: str = ""


def find_managed(home: str) -> Managed | None:
    """What the folder's marker says; None where there is none."""
    try:
        with open(os.path.join(home, MARKER), encoding="utf-8") as file:
            told: dict[str, Any] = json.load(file)
        return Managed(**told)
    except (OSError, ValueError, TypeError):
        return None


def base_of(home: str) -> str:
    """What a relative path of project.yml is below: the folder itself, or what all versions of a git project share."""
    managed = find_managed(home)
    return home if managed is None else managed.shared


def write_marker(home: str, managed: Managed) -> None:
    path = os.path.join(home, MARKER)
    make_folder(os.path.dirname(path))
    with open(path, "w", encoding="utf-8", opener=opener) as file:
        json.dump(managed._asdict(), file)


def find_version(folder: str) -> Version:
    """What is known of this folder; without git, or outside of it, nothing is."""
    managed = find_managed(folder)
    if managed is not None:
        return Version(managed.commit, False)
    commit = _git(folder, "rev-parse", "--verify", "--quiet", "HEAD")
    if commit is None:
        return Version()
    changed = _git(folder, "status", "--porcelain", "--untracked-files=normal", "--", ".")
    return Version(commit.strip(), None if changed is None else bool(changed.strip()))


def _git(folder: str, *args: str) -> str | None:
    import subprocess

    # Asking must not change the repository: no lock for a refreshed index.
    env = {**without_platform_variables(os.environ), "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["git", "-C", folder, *args],
            env=env, capture_output=True, text=True, timeout=_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None

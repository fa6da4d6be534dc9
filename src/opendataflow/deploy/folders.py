"""The folder of a git project: the repository, a folder for each version, and what all versions share.

<work>/projects/<project>/repository.git   what was fetched
<work>/projects/<project>/<commit>/        a version, whole from the moment it has this name
<work>/projects/<project>/shared/          what is relative in project.yml: the data
"""

import datetime
import filecmp
import os
import re
import shutil
from collections.abc import Iterator

from opendataflow.domain.registration import Registration
from opendataflow.private_files import OWN_FOLDER
from opendataflow.project.address import Address
from opendataflow.project.version import Managed, base_of
from opendataflow.store.base import without_password
from opendataflow.store.records.git import Change
from opendataflow.store.rows import utc_text

KEEP = 5  # versions whose folders stay
GRACE_SECONDS = 600.0  # in which everybody has seen that there is a newer version
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_NEW = ".new-"
_ADDING = ".adding-"


def projects_folder(address: Address) -> str:
    return os.path.join(os.path.abspath(address.work), "projects")


def project_folder(address: Address, project: str) -> str:
    return os.path.join(projects_folder(address), project)


def adding_folder(address: Address, taskid: int) -> str:
    """Where a repository is until its project has a name."""
    return os.path.join(projects_folder(address), f"{_ADDING}{taskid}")


def repository_of(folder: str) -> str:
    return os.path.join(folder, "repository.git")


def shared_of(folder: str) -> str:
    return os.path.join(folder, "shared")


def staging_of(folder: str, commit: str) -> str:
    return os.path.join(folder, f"{_NEW}{commit[:12]}-{os.getpid()}")


def marker_of(address: Address, project: str, folder: str, commit: str, environment: str) -> Managed:
    """What a version's folder says of itself; an address with a password is not written down."""
    is_secret = without_password(address.store) != address.store
    return Managed(
        project=project, commit=commit, shared=shared_of(folder), work=os.path.abspath(address.work),
        environment=environment, store=None if is_secret else address.store, managed_from=address.home,
        streams=address.streams,
    )  # fmt: skip


def remove_leftovers(folder: str) -> None:
    """What was on its way when a process was killed; whoever calls has the folder alone."""
    for name in _names(folder):
        if name.startswith(_NEW):
            shutil.rmtree(os.path.join(folder, name), ignore_errors=True)


# Data that comes with the repository ----------------------------------------------------------------------------------
def bring_data(registration: Registration, version: str, *, new_only: bool) -> list[str]:
    """Copy files of datasets that the repository holds to where the data is; those that are the same already stay.

    Nothing is ever deleted there. With `new_only`, only what is not there yet: nobody reads that.
    """
    brought = []
    base = base_of(version)
    for path in _brought(registration, version, base):
        source = os.path.join(version, os.path.relpath(path, base))
        if os.path.lexists(path) and (new_only or filecmp.cmp(source, path, shallow=False)):
            continue
        os.makedirs(os.path.dirname(path), exist_ok=True)
        beside = f"{path}.new-{os.getpid()}"
        shutil.copyfile(source, beside)
        os.replace(beside, path)
        brought.append(path)
    return brought


def _brought(registration: Registration, version: str, base: str) -> Iterator[str]:
    """The places of those files below the root, where that is relative."""
    root = registration.root
    top = os.path.join(version, os.path.relpath(root, base))
    if "://" in root or not (root == base or root.startswith(f"{base}{os.sep}")) or not os.path.isdir(top):
        return
    made = {link.datasetid for job in registration.jobs for link in job.links if link.itemtype == "OUT"}
    places = [one.location for one in registration.datasets if one.location and one.datasetid not in made]
    patterns = [_pattern(place) for place in places if "://" not in place]
    for folder, folders, names in os.walk(top):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = os.path.relpath(os.path.join(folder, name), top)
            if any(pattern.fullmatch(path) for pattern in patterns):
                yield os.path.join(root, path)


def _pattern(place: str) -> "re.Pattern[str]":
    """The files of a dataset: its place with any dataid, or below it."""
    parts = (re.escape(part) for part in os.path.normpath(place).split("{dataid}"))
    return re.compile("[^/]+".join(parts) + "(/.*)?")


# Versions that nobody needs -------------------------------------------------------------------------------------------
def prune(folder: str, versions: list[Change], *, now: float, oldest_running: str | None) -> list[str]:
    """Remove folders of versions that are neither in place, nor of the last ones, nor can have anything running."""
    last = list(dict.fromkeys(one.commit for one in versions))[:KEEP]
    since = now if oldest_running is None else min(now, datetime.datetime.fromisoformat(oldest_running).timestamp())
    needed = {one.commit for one in versions if one.left_at is None or one.left_at > utc_text(since - GRACE_SECONDS)}
    gone = [name for name in _names(folder) if _COMMIT.fullmatch(name) and name not in needed.union(last)]
    for name in gone:
        shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
    return gone


def remove_folder(folder: str) -> str | None:
    """Remove all but the data; where that is, or None when there is none."""
    shared = shared_of(folder)
    has_data = any(names for folder, _, names in os.walk(shared) if os.path.basename(folder) != OWN_FOLDER)
    for name in _names(folder):
        path = os.path.join(folder, name)
        if path != shared or not has_data:
            shutil.rmtree(path, ignore_errors=True) if os.path.isdir(path) else os.unlink(path)
    if has_data:
        return shared
    os.rmdir(folder)
    return None


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []

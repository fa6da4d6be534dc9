"""The marker of an environment's root: which store the data below it belong to.

`<root>/.dataflow/root.json` names the store and its projects. It moves and is copied with the data. A root that another
store has marked, and one without the marker that it had, are refused before anything is claimed: the data are not where
the store believes them to be.
"""

import contextlib
import json
import os
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from opendataflow.domain.dataset import is_below
from opendataflow.domain.job import Job, Mark
from opendataflow.domain.runs.questions import CODES, Question
from opendataflow.errors import Refused
from opendataflow.private_files import OWN_FOLDER
from opendataflow.storage.buckets.address import is_in_bucket

if TYPE_CHECKING:
    from opendataflow.domain.registration import Registration
    from opendataflow.store.base import BaseStore

FILE = "root.json"
GOOD_SECONDS = 1.0  # for which a root that was found good is not looked at again
GOOD_SECONDS_FAR = 60.0  # the same in an object store
MOVE = "`dataflow apply --move`"

_Key = tuple[str, str, Mark]
_good_until: dict[_Key, float] = {}
_marked: set[tuple[str, str, str]] = set()  # roots that this process has marked: root, project, store's id


class Marker(NamedTuple):
    store_id: str
    store: str  # the path of a SQLite store; '' for others
    projects: tuple[str, ...]


# Asking ---------------------------------------------------------------------------------------------------------------
def why_wrong_root(job: Job) -> str:
    """Why nothing below the root can be this job's data, with what to do about it; empty when the root is good."""
    if job.mark is None:
        return ""
    key = (job.root, job.project, job.mark)
    now = time.monotonic()
    if _good_until.get(key, 0.0) > now:
        return ""
    problem = find_problem(job.project, job.home, job.root, job.mark)
    if not problem:
        _good_until[key] = now + (GOOD_SECONDS_FAR if is_in_bucket(job.root) else GOOD_SECONDS)
    return problem


def find_problem(project: str, home: str, root: str, mark: Mark, *, must_reach: bool = True) -> str:
    """As `why_wrong_root`, looked at now. Not `must_reach`: an object store that does not answer is no problem."""
    if not _has_marker(root):
        return ""
    try:
        marker = read_marker(root)
    except OSError as error:
        if not must_reach and is_in_bucket(root):
            return ""
        return f"the marker of {root}, {_path(root)}, cannot be read: {error.strerror or error}"
    if marker is None:
        if mark.is_expected or (root, project, mark.store_id) in _marked:
            return (
                f"{root} has no marker of this store, which has published data of {project} below its root: it may not "
                f"be mounted, or the project was moved without its data; bring the data there, then run {MOVE}"
            )
    elif marker.store_id != mark.store_id:
        of = f" ({marker.store})" if marker.store else ""
        return (
            f"{root} holds the data of another store{of}; give project {project} a root of its own, or run {MOVE} if "
            "its data are to be this store's from now on"
        )
    elif _is_copy(marker, home, root, mark):
        return (
            f"{root} holds the data of the store {marker.store}, of which this one is a copy; give project {project} a "
            f"root of its own, or run {MOVE} if its data are to be this store's from now on"
        )
    if mark.other_root and _is_other(mark):
        return (
            f"the store has the data of project {project} in {mark.other_root}, which is still there, and not in "
            f"{root}; if this is a copy, give it a store of its own; if the data have moved to {root}, run {MOVE}"
        )
    return ""


def _is_copy(marker: Marker, home: str, root: str, mark: Mark) -> bool:
    """True when the store that marked the root is still there, and this one is another file with the same id.

    A root in the project's own folder is copied together with its store.
    """
    if not marker.store or not mark.store or is_below(root, home) or not os.path.exists(marker.store):
        return False
    return os.path.exists(mark.store) and not os.path.samefile(marker.store, mark.store)


def _is_other(mark: Mark) -> bool:
    """True when the root that the project is registered with is still here, and marked."""
    try:
        marker = read_marker(mark.other_root)
    except OSError:
        return False
    return marker is not None and marker.store_id == mark.store_id


# Marking --------------------------------------------------------------------------------------------------------------
def mark_root(store: "BaseStore", job: Job) -> None:
    """Leave the marker in the root of a job that begins to run; a root that nobody can write to has none."""
    if job.mark is not None and (job.root, job.project, job.mark.store_id) not in _marked:
        _leave(store, job.project, job.root, job.mark)


def _leave(store: "BaseStore", project: str, root: str, mark: Mark) -> None:
    if not _has_marker(root):
        return
    with contextlib.suppress(OSError):
        marker = read_marker(root)
        if marker is not None and marker.store_id != mark.store_id:
            return  # another was faster: the next look refuses
        write_marker(root, project, mark)
        if not mark.is_expected or mark.has_moved:
            store.note_place(project)
        _marked.add((root, project, mark.store_id))


def check_root(store: "BaseStore", wanted: "Registration", *, move: bool) -> None:
    """Before a project is registered: see that its root is this store's, or with `move`, make it so.

    Raises Refused (INVALID_PATH), as each run would be.
    """
    if not _has_marker(wanted.root):
        return
    mark = store.get_mark(wanted.project, wanted.root)
    if not move and (problem := find_problem(wanted.project, wanted.home, wanted.root, mark, must_reach=False)):
        code, exit_code = CODES[Question.LOCATION]
        raise Refused(f"{code}: {problem}", exit_code=exit_code)
    if move:
        if number := store.count_live_runs(wanted.project):
            code, exit_code = CODES[Question.SAFE]
            raise Refused(
                f"{code}: {number} runs of {wanted.project} are live, and they write to the root as it was; wait until "
                "they have ended, or see `dataflow abort --help`",
                exit_code=exit_code,
            )
        write_marker(wanted.root, wanted.project, mark)


def keep_root(store: "BaseStore", wanted: "Registration") -> None:
    """After a project was registered: mark its root, if there is one yet; otherwise its first run does."""
    if is_in_bucket(wanted.root) or os.path.isdir(wanted.root):
        _leave(store, wanted.project, wanted.root, store.get_mark(wanted.project, wanted.root))


def write_marker(root: str, project: str, mark: Mark) -> None:
    """Write it where it is missing or says otherwise."""
    before = read_marker(root)
    theirs = before.projects if before is not None and before.store_id == mark.store_id else ()
    wanted = Marker(mark.store_id, mark.store, tuple(sorted({*theirs, project})))
    if wanted == before:
        return
    text = json.dumps(wanted._asdict()) + "\n"
    path = _path(root)
    if is_in_bucket(root):
        from opendataflow.storage.buckets.files import write_text

        write_text(path, text)
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    beside = f"{path}.{os.getpid()}"
    is_private = not os.stat(os.path.dirname(path)).st_mode & 0o077  # the root is the project's folder
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600 if is_private else 0o666)
    with open(handle, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(beside, path)


# The file -------------------------------------------------------------------------------------------------------------
def read_marker(root: str) -> Marker | None:
    """What the root's marker says; None where there is none."""
    path = _path(root)
    try:
        if is_in_bucket(root):
            from opendataflow.storage.buckets.files import read_text

            text = read_text(path)
        else:
            with open(path, encoding="utf-8") as file:
                text = file.read()
        told: dict[str, Any] = json.loads(text)
        return Marker(str(told["store_id"]), str(told["store"]), tuple(told["projects"]))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError):
        return Marker("", f"unreadable: {path}", ())


def _path(root: str) -> str:
    return f"{root.rstrip('/')}/{OWN_FOLDER}/{FILE}"


def _has_marker(root: str) -> bool:
    """False for places that nobody here can look at."""
    return "://" not in root or is_in_bucket(root)

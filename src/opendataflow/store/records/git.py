"""Git projects in the store: where each comes from, the versions that were in place, and the work on them.

Credentials arrive here encrypted and leave encrypted; no function but `find_secrets` gives them out.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from opendataflow.domain.registration import Registration
from opendataflow.errors import UsageError
from opendataflow.store.base import Transaction
from opendataflow.store.claims import LoopStore
from opendataflow.store.rows import Params

FILE = "git"
NEWEST = 2**62
WAITING, RUNNING, DONE, REFUSED, FAILED, LOST = "WAITING", "RUNNING", "DONE", "REFUSED", "FAILED", "LOST"
STALE_SECONDS = 90.0  # without a sign of life from another host


class Registered(NamedTuple):
    """A project that the store knows, wherever it comes from."""

    project: str
    name: str
    root: str
    home: str
    modified: str


class GitProject(NamedTuple):
    project: str
    url: str
    branch: str
    folder: str
    commit: str | None  # the version in place
    username: str | None
    credential_kind: str | None  # token | key
    has_hook: bool
    added_at: str
    added_by: str
    checked_at: str | None
    refused_commit: str | None  # the newest commit, while it is not good enough
    refused_subject: str | None
    refused_at: str | None
    problems: tuple[dict[str, Any], ...]


class Secrets(NamedTuple):
    """Both encrypted."""

    credential: str | None
    hook_secret: str | None


class Change(NamedTuple):
    """A version that was put in place."""

    versionid: int
    commit: str
    author: str
    subject: str
    committed_at: str
    how: str  # add | pull | hook | rollback
    switched_at: str
    switched_by: str
    left_at: str | None


class Task(NamedTuple):
    """Work on a repository."""

    taskid: int
    kind: str  # add | pull | hook | rollback
    project: str | None
    url: str | None
    branch: str | None
    commit: str | None
    state: str
    step: str
    said: str
    problems: tuple[dict[str, Any], ...]
    asked_at: str
    asked_by: str
    beat_at: str
    ended_at: str | None
    host: str | None
    pid: int | None
    pid_started: int | None

    @property
    def is_open(self) -> bool:
        return self.state in (WAITING, RUNNING)


class OpenTask(NamedTuple):
    taskid: int
    project: str | None
    state: str
    host: str | None
    pid: int | None
    pid_started: int | None
    is_stale: bool
    asked_by: str


class Credential(NamedTuple):
    """What opens a private repository, encrypted."""

    username: str | None = None
    text: str | None = None
    kind: str | None = None  # token | key


class Switch(NamedTuple):
    """What is recorded of a version as it is put in place."""

    commit: str
    author: str
    subject: str
    committed_at: float  # seconds since the epoch
    how: str


# Projects -------------------------------------------------------------------------------------------------------------
def list_registered(store: LoopStore) -> list[Registered]:
    places = {place.project: place for place in store.list_places()}
    return [
        Registered(project, name, places[project].root, places[project].home, modified)
        for project, name, modified in store.read("registered_projects", {}, file=FILE)
        if project in places
    ]


def list_git_projects(store: LoopStore) -> list[GitProject]:
    return [_project(row) for row in store.read("git_projects", {"project": None}, file=FILE)]


def find_git_project(store: LoopStore, project: str) -> GitProject | None:
    rows = store.read("git_projects", {"project": project}, file=FILE)
    return _project(rows[0]) if rows else None


def get_git_project(store: LoopStore, project: str) -> GitProject:
    found = find_git_project(store, project)
    if found is None:
        known = ", ".join(one.project for one in list_git_projects(store))
        step = f"there is {known}" if known else "`dataflow project add URL` adds one"
        raise UsageError(f"there is no git project {project!r}; {step}")
    return found


def find_secrets(store: LoopStore, project: str) -> Secrets:
    rows = store.read("git_secrets_of", {"project": project}, file=FILE)
    return Secrets(*rows[0]) if rows else Secrets(None, None)


def add_git_project(
    store: LoopStore, project: str, *, url: str, branch: str, folder: str, credential: Credential, by: str
) -> bool:
    """False when there is one of that name."""
    row = {
        "project": project, "url": url, "branch": branch, "folder": folder, "username": credential.username,
        "credential": credential.text, "credential_kind": credential.kind, "now": store.time(), "by": by,
    }  # fmt: skip
    return bool(_write(store, "add_git_project", row))


def set_credential(store: LoopStore, project: str, credential: Credential) -> None:
    row = {"username": credential.username, "credential": credential.text, "credential_kind": credential.kind}
    _write(store, "set_git_credential", {"project": project, **row})


def set_hook_secret(store: LoopStore, project: str, encrypted: str | None) -> None:
    _write(store, "set_hook_secret", {"project": project, "hook_secret": encrypted})


def note_checked(store: LoopStore, project: str) -> None:
    """The newest commit is in place, or was left on purpose: nothing is refused."""
    _write(store, "forget_refused", {"project": project, "now": store.time()})


def note_refused(store: LoopStore, project: str, commit: str, subject: str, problems: Sequence[dict[str, Any]]) -> None:
    row = {"git_commit": commit, "subject": subject, "problems": json.dumps(list(problems)), "now": store.time()}
    _write(store, "note_refused", {"project": project, **row})


# Versions -------------------------------------------------------------------------------------------------------------
def record_switch(store: LoopStore, tx: Transaction, project: str, switch: Switch, *, by: str) -> None:
    """Within the transaction that registers the version."""
    now = store.time()
    of = {"project": project, "now": now}
    row = {
        **of, "git_commit": switch.commit, "author": switch.author, "subject": switch.subject, "how": switch.how,
        "committed_at": store.time(switch.committed_at - store.clock()), "by": by,
    }  # fmt: skip
    if tx.run("set_git_commit", {**of, "git_commit": switch.commit}) != 1:
        raise UsageError(f"project {project} was removed meanwhile; nothing was changed")
    tx.run("leave_version", of)
    tx.run("put_version", row)


def list_versions(store: LoopStore, project: str, *, before: int = NEWEST, limit: int = 50) -> list[Change]:
    """Newest first: the first one is in place."""
    rows = store.read("git_versions", {"project": project, "before": before, "limit": limit}, file=FILE)
    return [Change(*row) for row in rows]


def find_version_of(store: LoopStore, project: str, commit: str) -> Change | None:
    """When the commit was last put in place."""
    rows = store.read("find_git_version", {"project": project, "git_commit": commit}, file=FILE)
    return Change(*rows[0]) if rows else None


def oldest_running(store: LoopStore, project: str) -> str | None:
    """When the oldest of its runs that go on was begun."""
    found = store.read("oldest_running", {"project": project}, file=FILE)[0][0]
    return None if found is None else str(found)


def record_commit(store: LoopStore, runid: int, commit: str) -> None:
    _write(store, "put_run_version", {"runid": runid, "git_commit": commit})


def commits_of(store: LoopStore, runids: Sequence[int]) -> dict[int, str]:
    """The commits of these runs, as far as they are known; it costs what so many runs cost, however many there are."""
    wanted = set(runids)
    if not wanted:
        return {}
    first, last = min(wanted), max(wanted)
    spans = [(first, last)] if last - first < 4 * len(wanted) else [(one, one) for one in sorted(wanted)]
    rows = [row for one, other in spans for row in store.read("run_commits", {"first": one, "last": other}, file=FILE)]
    return {int(runid): str(commit) for runid, commit in rows if runid in wanted}


def remove_project(store: LoopStore, project: str) -> None:
    """Take the project out of the store; chunks, runs and history stay. UsageError while somebody needs it."""
    from opendataflow.store.registry import forget_project

    foreign = store.read("foreign_readers", {"project": project}, file=FILE)
    if foreign:
        who = ", ".join(f"{owner}.{job} reads {dataset}" for owner, job, dataset in foreign[:5])
        raise UsageError(f"other projects need {project}: {who}; remove or change those first")
    busy = store.read("running_of", {"project": project}, file=FILE)
    if busy:
        who = ", ".join(f"{job}/{dataid} ({owner})" for job, dataid, owner in busy[:5])
        raise UsageError(f"runs of {project} go on: {who}; let them end, or `dataflow pause all` first")
    forget_project(store, Registration(project, project, "", "", store.environment, (), ()))


def rotate_git_secrets(store: LoopStore, rotate: Callable[[str], str], *, dry_run: bool = False) -> tuple[int, int]:
    """Replace credentials and webhooks' secrets by what `rotate` makes of them: how many changed, how many stayed."""
    made, known = [], 0
    for project, credential, hook_secret in store.read("all_git_secrets", {}, file=FILE):
        old = {"old_credential": credential, "old_hook_secret": hook_secret}
        new = {"credential": credential and rotate(credential), "hook_secret": hook_secret and rotate(hook_secret)}
        changed = sum(value != old[f"old_{name}"] for name, value in new.items())
        known += sum(value is not None for value in new.values())
        if changed:
            made.append((changed, {"project": project, **old, **new}))
    if made and not dry_run:
        with store.transaction(file=FILE) as tx:
            for _, row in made:
                if tx.run("replace_git_secrets", row) != 1:
                    raise UsageError(f"{row['project']} got another credential meanwhile; nothing was changed")
    rotated = sum(changed for changed, _ in made)
    return rotated, known - rotated


# Work -----------------------------------------------------------------------------------------------------------------
def new_task(
    store: LoopStore, kind: str, *, project: str | None, by: str, url: str | None = None, branch: str | None = None,
    credential: Credential | None = None, commit: str | None = None, join: bool = False, lost: Sequence[int] = (),
) -> tuple[int, bool]:  # fmt: skip
    """Ask for work: its number, and whether it is new. With `join`, one of the same kind that still waits will do.

    Of `lost` the process is gone.
    """
    credential = credential or Credential()
    row = {
        "kind": kind, "project": project, "url": url, "branch": branch, "username": credential.username,
        "credential": credential.text, "credential_kind": credential.kind, "git_commit": commit,
        "now": store.time(), "by": by,
    }  # fmt: skip

    def ask() -> tuple[int, bool]:
        with store.transaction(file=FILE) as tx:
            tx.run("lock_tasks", {})
            for one in lost:
                tx.run("end_task", _end(store, one, LOST, "its process is gone", (), None))
            if join and (waiting := tx.rows("waiting_tasks", {"project": project, "kind": kind})):
                return int(waiting[0][0]), False
            return int(tx.rows("put_task", row)[0][0]), True

    return store.again(ask)


def get_task(store: LoopStore, taskid: int) -> Task:
    rows = store.read("get_task", {"taskid": taskid}, file=FILE)
    if not rows:
        raise UsageError(f"there is no task {taskid}")
    return _task(rows[0])


def list_tasks(store: LoopStore, *, project: str | None = None, before: int = NEWEST, limit: int = 20) -> list[Task]:
    """Newest first."""
    rows = store.read("tasks", {"project": project, "before": before, "limit": limit}, file=FILE)
    return [_task(row) for row in rows]


def task_credential(store: LoopStore, taskid: int) -> Credential:
    return Credential(*store.read("task_credential", {"taskid": taskid}, file=FILE)[0])


def open_tasks(store: LoopStore) -> list[OpenTask]:
    rows = store.read("open_tasks", {"stale": store.time(-STALE_SECONDS)}, file=FILE)
    return [_open_task(row) for row in rows]


def take_up(store: LoopStore, taskid: int, *, host: str, pid: int, started: int) -> bool:
    """This process does the task; False when it is not waiting any more."""
    row = {"taskid": taskid, "host": host, "pid": pid, "pid_started": started, "now": store.time()}
    return bool(_write(store, "take_up_task", row))


def start_task(store: LoopStore, taskid: int, project: str | None, *, lost: Sequence[int]) -> OpenTask | None:
    """Begin, unless other work on the project goes on: that is returned then. Of `lost` the process is gone."""

    def start() -> OpenTask | None:
        with store.transaction(file=FILE) as tx:
            tx.run("lock_tasks", {})
            for one in lost:
                tx.run("end_task", _end(store, one, LOST, "its process is gone", (), None))
            rows = tx.rows("open_tasks", {"stale": store.time(-STALE_SECONDS)})
            for other in map(_open_task, rows):
                is_ahead = other.state == RUNNING or (other.taskid < taskid and other.pid is not None)
                if other.taskid != taskid and project is not None and other.project == project and is_ahead:
                    return other
            tx.run("start_task", {"taskid": taskid, "now": store.time()})
            return None

    return store.again(start)


def name_task(store: LoopStore, taskid: int, project: str) -> None:
    _write(store, "name_task", {"taskid": taskid, "project": project})


def beat_task(store: LoopStore, taskid: int, step: str) -> None:
    _write(store, "beat_task", {"taskid": taskid, "step": step, "now": store.time()})


def end_task(
    store: LoopStore, taskid: int, state: str, said: str, *, problems: Sequence[dict[str, Any]] = (),
    commit: str | None = None,
) -> None:  # fmt: skip
    _write(store, "end_task", _end(store, taskid, state, said, problems, commit))


def _end(
    store: LoopStore, taskid: int, state: str, said: str, problems: Sequence[dict[str, Any]], commit: str | None
) -> Params:
    return {
        "taskid": taskid, "state": state, "said": said, "problems": json.dumps(list(problems)), "git_commit": commit,
        "now": store.time(),
    }  # fmt: skip


def _project(row: Sequence[Any]) -> GitProject:
    fields = list(row)
    fields[7], fields[14] = bool(fields[7]), tuple(json.loads(fields[14]))
    return GitProject(*fields)


def _open_task(row: Sequence[Any]) -> OpenTask:
    fields = list(row)
    fields[6] = bool(fields[6])
    return OpenTask(*fields)


def _task(row: Sequence[Any]) -> Task:
    fields = list(row)
    fields[9] = tuple(json.loads(fields[9]))
    return Task(*fields)


def _write(store: LoopStore, name: str, params: Params) -> int:
    def write() -> int:
        with store.transaction(file=FILE) as tx:
            return tx.run(name, params)

    return store.again(write)

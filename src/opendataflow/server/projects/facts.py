"""Projects as pages and the API show them: where each comes from, its versions, and what is done to it."""

from typing import Any

from opendataflow.deploy.work import lost_tasks
from opendataflow.server.problems import NotThere
from opendataflow.store.claims import LoopStore
from opendataflow.store.records import git
from opendataflow.store.records.git import GitProject, Registered, Task

TASKS = 10


def find_projects(store: LoopStore, *, limit: int, offset: int) -> dict[str, Any]:
    """All projects by name, and what goes on."""
    from_git = {one.project: one for one in git.list_git_projects(store)}
    registered = {one.project: one for one in git.list_registered(store)}
    names = sorted({*from_git, *registered})
    shown = names[offset : offset + limit]
    tasks = _tasks(store, None)
    return {
        "items": [_project(store, name, registered.get(name), from_git.get(name)) for name in shown],
        "tasks": [one for one in tasks if one["is_open"] or one["project"] is None][:TASKS],
        "total": len(names), "limit": limit, "offset": offset,
    }  # fmt: skip


def find_project(store: LoopStore, project: str, *, before: int = git.NEWEST, limit: int = 20) -> dict[str, Any]:
    """One project with its versions, newest first; `next_before` leads to older ones."""
    known = next((one for one in git.list_registered(store) if one.project == project), None)
    found = git.find_git_project(store, project)
    if known is None and found is None:
        raise NotThere(f"there is no project {project!r}")
    versions = git.list_versions(store, project, before=before, limit=limit + 1)
    return {
        **_project(store, project, known, found),
        "root": known.root if known else None,
        "added_at": found.added_at if found else None,
        "added_by": found.added_by if found else None,
        "username": found.username if found else None,
        "credential": found.credential_kind if found else None,
        "has_hook": bool(found and found.has_hook),
        "problems": list(found.problems) if found else [],
        "versions": [one._asdict() for one in versions[:limit]],
        "next_before": versions[limit - 1].versionid if len(versions) > limit else None,
        "tasks": _tasks(store, project),
    }


def find_task(store: LoopStore, taskid: int) -> dict[str, Any]:
    rows = [one for one in git.list_tasks(store, before=taskid + 1, limit=1) if one.taskid == taskid]
    if not rows:
        raise NotThere(f"there is no task {taskid}")
    return _task(rows[0], set(lost_tasks(store)))


def _project(store: LoopStore, name: str, known: Registered | None, found: GitProject | None) -> dict[str, Any]:
    last = git.list_versions(store, name, limit=1) if found else []
    refused = {key: getattr(found, f"refused_{key}", None) for key in ("commit", "subject", "at")}
    return {
        "project": name,
        "name": known.name if known else name,
        "home": known.home if known else None,
        "url": found.url if found else None,
        "branch": found.branch if found else None,
        "commit": found.commit if found else None,
        "subject": last[0].subject if last else None,
        "switched_at": last[0].switched_at if last else (known.modified if known else None),
        "switched_by": last[0].switched_by if last else None,
        "checked_at": found.checked_at if found else None,
        "refused": {**refused, "errors": _errors(found.problems)} if found and found.refused_commit else None,
    }


def _errors(problems: tuple[dict[str, Any], ...]) -> int:
    return sum(one["severity"] == "error" for one in problems)


def _tasks(store: LoopStore, project: str | None) -> list[dict[str, Any]]:
    lost = set(lost_tasks(store))
    return [_task(one, lost) for one in git.list_tasks(store, project=project, limit=TASKS)]


def _task(task: Task, lost: set[int]) -> dict[str, Any]:
    is_lost = task.taskid in lost
    shown = {
        key: value for key, value in task._asdict().items() if key not in ("host", "pid", "pid_started", "beat_at")
    }
    return {
        **shown, "state": git.LOST if is_lost else task.state, "problems": list(task.problems),
        "said": "its process is gone" if is_lost else task.said, "is_open": task.is_open and not is_lost,
    }  # fmt: skip

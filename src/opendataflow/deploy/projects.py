"""Git projects: add one, pull, roll back, remove; and bring this host the version that is in place.

A version is exported to a folder of its own, checked as a whole, and put in place by one transaction that registers it
and records who did it. Until that transaction nothing of the old version has changed; after it nothing of the new one
is missing. Whatever dies in between leaves a folder that the next pull removes.
"""

import datetime
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, NamedTuple

from opendataflow import faults
from opendataflow.deploy import folders
from opendataflow.deploy.check import check_files, check_version
from opendataflow.deploy.git_address import read_branch, read_remote
from opendataflow.deploy.repository import Commit, Plain, Repository
from opendataflow.deploy.work import Working, locked, lost_tasks
from opendataflow.errors import ConfigurationError, DataflowError, UsageError
from opendataflow.project.address import Address
from opendataflow.project.check import ERROR, Problem
from opendataflow.project.registration.load import load_registration, read_addresses
from opendataflow.project.secrets import decrypt, get_passkey
from opendataflow.project.version import write_marker
from opendataflow.store.claims import LoopStore
from opendataflow.store.records import git
from opendataflow.store.records.git import Change, Credential, GitProject, Switch, Task
from opendataflow.store.records.sources import bindings_of
from opendataflow.store.registry import apply

BEFORE_SWITCH, AFTER_SWITCH = "before_switch", "after_switch"  # where tests stop a pull
EXPORTED = "version_exported"


class Report(NamedTuple):
    """How a piece of work ended."""

    state: str  # DONE | REFUSED | FAILED
    said: str
    project: str | None = None
    commit: str | None = None
    problems: tuple[dict[str, Any], ...] = ()
    changes: tuple[str, ...] = ()


def run_task(store: LoopStore, address: Address, taskid: int, *, say: Callable[[str], None]) -> Report:
    """Do what was asked for, to its recorded end; an error of ours is recorded and is a Report, too."""
    task = git.get_task(store, taskid)
    work = Working(store, taskid, say)
    try:
        work.wait_for_turn(task.project)
        report = _Pulling(store, address, task, work).run()
    except DataflowError as error:
        report = Report(git.FAILED, str(error), task.project)
    except BaseException as error:
        git.end_task(store, taskid, git.FAILED, f"it was stopped: {type(error).__name__}")
        raise
    git.end_task(store, taskid, report.state, report.said, problems=report.problems, commit=report.commit)
    return report


class _Pulling:
    def __init__(self, store: LoopStore, address: Address, task: Task, work: Working) -> None:
        self._store, self._address, self._task, self._work = store, address, task, work

    def run(self) -> Report:
        if self._task.kind == "add":
            return self._add()
        project = git.get_git_project(self._store, self._task.project or "")
        with locked(project.folder, self._work.beat):
            folders.remove_leftovers(project.folder)
            return self._roll_back(project) if self._task.kind == "rollback" else self._pull(project)

    # Adding ---------------------------------------------------------------------------------------------------------
    def _add(self) -> Report:
        task, beat = self._task, self._work.beat
        credential = git.task_credential(self._store, task.taskid)
        remote = read_remote(task.url or "")
        beside = folders.adding_folder(self._address, task.taskid)
        try:
            repository = Repository(folders.repository_of(beside), remote, _plain(credential))
            self._work.begin(f"fetches {remote.url}")
            branch = read_branch(task.branch) if task.branch else repository.find_default_branch(beat)
            head = repository.get_commit(repository.fetch(branch, beat))
            project = task.project or self._name_of(repository, head, beside)
            if isinstance(project, Report):
                return project
            folder = folders.project_folder(self._address, project)
            self._take_name(project)
            added = git.add_git_project(
                self._store, project, url=remote.url, branch=branch, folder=folder,
                credential=credential._replace(username=credential.username or remote.username), by=self._by,
            )  # fmt: skip
            if not added:
                raise UsageError(
                    f"there is a git project {project} already; `dataflow project pull {project}` pulls it"
                )
            with locked(folder, beat):
                shutil.rmtree(folders.repository_of(folder), ignore_errors=True)
                os.rename(folders.repository_of(beside), folders.repository_of(folder))
                known = git.get_git_project(self._store, project)
                return self._switch(known, self._repository(known), head)
        finally:
            shutil.rmtree(beside, ignore_errors=True)

    def _name_of(self, repository: Repository, head: Commit, beside: str) -> "str | Report":
        """What project.yml calls it; without one nothing is added."""
        version = os.path.join(beside, "version")
        repository.export(head.commit, version, self._work.beat)
        files = check_files(version, repository.entries(head.commit))
        try:
            return str(read_addresses(version)["project"])
        except (ConfigurationError, OSError):
            environment = self._store.environment or os.environ.get("DATAFLOW_ENV") or "default"
            checked = check_version(
                self._store, version, "", environment, files=files, run_tests=False, beat=self._work.beat
            )
            told = f"{head.commit[:12]} was refused: {_count(checked.errors)}; nothing was added"
            return Report(git.REFUSED, told, None, head.commit, _as_json(checked.problems))

    def _take_name(self, project: str) -> None:
        if self._task.project is None:
            git.name_task(self._store, self._task.taskid, project)

    # Pulling --------------------------------------------------------------------------------------------------------
    def _pull(self, project: GitProject) -> Report:
        repository = self._repository(project)
        self._work.begin(f"fetches {project.url}")
        head = repository.get_commit(repository.fetch(project.branch, self._work.beat))
        versions = git.list_versions(self._store, project.project)
        name = f"{project.project}, branch {project.branch}"
        if head.commit == project.commit:
            self._complete(project, repository, head)
            git.note_checked(self._store, project.project)
            return Report(git.DONE, f"{name}: {head.commit[:12]} is in place already", project.project, head.commit)
        left = versions[1].commit if len(versions) > 1 and versions[0].how == "rollback" else None
        if self._task.kind == "hook" and head.commit == left:
            # A push that is told twice must not undo what a person did.
            git.note_checked(self._store, project.project)
            told = f"{name}: {head.commit[:12]} was rolled back; push a better one, or pull by hand"
            return Report(git.DONE, told, project.project, project.commit)
        return self._switch(project, repository, head)

    def _complete(self, project: GitProject, repository: Repository, commit: Commit) -> None:
        """What a process that was killed after the switch has not done any more."""
        home = os.path.join(project.folder, commit.commit)
        if not os.path.isdir(home):
            self._export(project, repository, commit, home)
        bound = bindings_of(self._store, project.project)
        registration = load_registration(home, self._environment(home), bound=bound)
        folders.bring_data(registration, home, new_only=False)

    def _roll_back(self, project: GitProject) -> Report:
        versions = git.list_versions(self._store, project.project, limit=1000)
        repository = self._repository(project)
        if not os.path.isdir(repository.folder):
            repository.fetch(project.branch, self._work.beat)
        asked = self._task.commit
        commit = _earlier(versions) if asked is None else _named(asked, versions)
        found = repository.find_commit(commit or asked or "")
        if found is None:
            known = ", ".join(dict.fromkeys(one.commit[:12] for one in versions[:10]))
            if asked is None:
                raise UsageError(f"{project.project} has no earlier version; there was {known or 'none'}")
            raise UsageError(
                f"{project.project} has no commit {asked!r} on {project.branch}; there was {known or 'none'}"
            )
        if found.commit == project.commit:
            told = f"{project.project}: {found.commit[:12]} is in place already"
            return Report(git.DONE, told, project.project, found.commit)
        return self._switch(project, repository, found, was_good=commit is not None)

    # Putting in place -------------------------------------------------------------------------------------------------
    def _switch(self, project: GitProject, repository: Repository, to: Commit, *, was_good: bool = False) -> Report:
        """Check the version as a whole, then put it in place; or say all that is wrong with it and change nothing."""
        store, work, me = self._store, self._work, project.project
        home, staging = os.path.join(project.folder, to.commit), folders.staging_of(project.folder, to.commit)
        version = home if os.path.isdir(home) else staging
        work.begin(f"checks {to.commit[:12]}: {to.subject}")
        try:
            files: list[Problem] = []
            if version == staging:
                files = self._export(project, repository, to, staging)
            faults.point(EXPORTED)
            checked = check_version(
                store, version, me, self._environment(version), files=files, run_tests=not was_good, beat=work.beat
            )
            if checked.errors or checked.registration is None:
                return self._refused(project, to, checked.problems)
            if version == staging:
                os.rename(staging, home)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        registration = checked.registration._replace(home=home)
        how, by = self._task.kind, self._by
        switch = Switch(to.commit, to.author, to.subject, to.committed_at, how)
        folders.bring_data(registration, home, new_only=True)
        faults.point(BEFORE_SWITCH)
        work.begin(f"puts {to.commit[:12]} in place")
        try:
            changes = apply(
                store, registration, now=datetime.datetime.now(datetime.UTC),
                then=lambda tx: git.record_switch(store, tx, me, switch, by=by),
            )  # fmt: skip
        except ConfigurationError as error:  # somebody registered something meanwhile
            late = Problem(severity=ERROR, file="project.yml", line=1, message=str(error), next_step="pull again")
            return self._refused(project, to, [late])
        faults.point(AFTER_SWITCH)
        folders.bring_data(registration, home, new_only=False)
        self._prune(project)
        warnings = _as_json(checked.problems)
        told = f"{me} is at {to.commit[:12]} ({to.subject}), {len(changes)} changes"
        return Report(git.DONE, told, me, to.commit, warnings, tuple(changes))

    def _refused(self, project: GitProject, commit: Commit, problems: list[Problem]) -> Report:
        told = _as_json(problems)
        if self._task.kind != "rollback":
            git.note_refused(self._store, project.project, commit.commit, commit.subject, told)
        stays = f"{project.commit[:12]} stays in place" if project.commit else "no version of it is in place"
        errors = [one for one in problems if one.severity == ERROR]
        said = f"{project.project}: {commit.commit[:12]} ({commit.subject}) was refused: {_count(errors)}; {stays}"
        return Report(git.REFUSED, said, project.project, commit.commit, told)

    def _export(self, project: GitProject, repository: Repository, commit: Commit, folder: str) -> list[Problem]:
        """The version in a folder, with its marker; what is wrong with its files."""
        repository.export(commit.commit, folder, self._work.beat)
        files = check_files(folder, repository.entries(commit.commit))
        me = project.project
        environment = self._environment(folder)
        write_marker(folder, folders.marker_of(self._address, me, project.folder, commit.commit, environment))
        os.makedirs(folders.shared_of(project.folder), exist_ok=True)
        return files

    def _environment(self, folder: str) -> str:
        """The store's, or the one that is asked for; in a new store the project's first."""
        asked = self._store.environment or os.environ.get("DATAFLOW_ENV")
        if asked:
            return asked
        try:
            return str(read_addresses(folder)["first"])
        except (ConfigurationError, OSError):
            return "default"

    def _prune(self, project: GitProject) -> None:
        versions = git.list_versions(self._store, project.project, limit=1000)
        running = git.oldest_running(self._store, project.project)
        folders.prune(project.folder, versions, now=self._store.clock(), oldest_running=running)

    def _repository(self, project: GitProject) -> Repository:
        return open_repository(self._store, project)

    @property
    def _by(self) -> str:
        return self._task.asked_by


def open_repository(store: LoopStore, project: GitProject) -> Repository:
    secret = git.find_secrets(store, project.project).credential
    plain = _plain(Credential(project.username, secret, project.credential_kind))
    return Repository(folders.repository_of(project.folder), read_remote(project.url), plain)


def sync(store: LoopStore, *, project: str | None, say: Callable[[str], None]) -> list[str]:
    """Bring this host the versions that are in place and not here; the folders that were made."""
    made = []
    for one in git.list_git_projects(store):
        home = os.path.join(one.folder, one.commit or "")
        if one.commit is None or project not in (None, one.project) or os.path.isdir(home):
            continue
        with locked(one.folder, lambda _: None):
            folders.remove_leftovers(one.folder)
            if os.path.isdir(home):
                continue
            say(f"fetches {one.url} for {one.project} at {one.commit[:12]}")
            repository = open_repository(store, one)
            repository.fetch(one.branch, lambda _: None)
            staging = folders.staging_of(one.folder, one.commit)
            try:
                repository.export(one.commit, staging, lambda _: None)
                check_files(staging, repository.entries(one.commit))
                write_marker(staging, _marker_here(store, one, one.commit))
                os.makedirs(folders.shared_of(one.folder), exist_ok=True)
                os.rename(staging, home)
            finally:
                shutil.rmtree(staging, ignore_errors=True)
            bound = bindings_of(store, one.project)
            folders.bring_data(load_registration(home, store.environment, bound=bound), home, new_only=True)
        made.append(home)
    return made


def _marker_here(store: LoopStore, project: GitProject, commit: str) -> Any:
    from opendataflow.project.version import Managed

    work = os.path.dirname(os.path.dirname(project.folder))
    url = store.url if store.url.startswith("sqlite") else None
    return Managed(
        project=project.project, commit=commit, shared=folders.shared_of(project.folder), work=work,
        environment=store.environment, store=url,
    )  # fmt: skip


def remove(store: LoopStore, project: str) -> str:
    """Take the project out of the store and off this host, but for its data; returns what became of it."""
    known = git.get_git_project(store, project)
    lost = set(lost_tasks(store))
    busy = [
        one for one in git.list_tasks(store, project=project, limit=5) if one.is_open and one.taskid not in lost
    ]  # fmt: skip
    if busy:
        raise UsageError(f"{project}: {busy[0].kind} by {busy[0].asked_by} goes on; wait for its end")
    with locked(known.folder, lambda _: None):
        git.remove_project(store, project)
        data = folders.remove_folder(known.folder)
    kept = f"; its data is still at {data}" if data else ""
    return f"{project} was removed; its chunks, runs and history stay in the store{kept}"


def _plain(credential: Credential) -> Plain | None:
    if credential.text is None or credential.kind is None:
        return None
    return Plain(credential.username, decrypt(credential.text, get_passkey()), credential.kind)


def _earlier(versions: list[Change]) -> str | None:
    """What was in place before the present version, where a rollback takes back all that came after its commit."""
    stack: list[str] = []
    for one in reversed(versions):
        if one.commit in stack:
            del stack[stack.index(one.commit) :]
        stack.append(one.commit)
    return stack[-2] if len(stack) > 1 else None


def _named(asked: str, versions: list[Change]) -> str | None:
    """The version whose commit begins like this, if it was ever in place."""
    found = {one.commit for one in versions if one.commit.startswith(asked.lower())}
    return found.pop() if len(found) == 1 else None


def _as_json(problems: list[Problem]) -> tuple[dict[str, Any], ...]:
    return tuple(asdict(one) for one in problems)


def _count(errors: list[Problem]) -> str:
    return f"{len(errors)} error{'' if len(errors) == 1 else 's'}"

"""Actions on git projects: add, pull, roll back, remove, and their secrets. A process of its own does the work."""

from pydantic import Field as Limited

from opendataflow.deploy.git_address import read_branch, read_remote
from opendataflow.deploy.webhook import HOOK_PATH, encrypted_credential, new_hook_secret
from opendataflow.deploy.work import lost_tasks, start_work
from opendataflow.errors import UsageError
from opendataflow.server.action import Acting, Action, Asked, Done, Field, Plan
from opendataflow.server.action_params import Word
from opendataflow.server.problems import NotThere
from opendataflow.store.records import git
from opendataflow.store.records.accounts import Role
from opendataflow.store.records.git import Credential, GitProject

SECRET = frozenset({"token", "key"})
_USER = Field("username", "User name, for https", hint="only of a private repository")
_TOKEN = Field("token", "Token or password, for https", "password")
_KEY = Field("key", "Private key, for ssh", "area", hint="-----BEGIN OPENSSH PRIVATE KEY-----")


class ProjectAsked(Asked):
    project: Word


class CredentialFields(Asked):
    username: str | None = Limited(None, max_length=200)
    token: str | None = Limited(None, max_length=10_000)
    key: str | None = Limited(None, max_length=50_000)


class AddAsked(CredentialFields):
    url: str | None = Limited(None, max_length=2_000)
    branch: str | None = Limited(None, max_length=200)
    name: str | None = Limited(None, max_length=200)


class RollbackAsked(ProjectAsked):
    commit: str | None = Limited(None, pattern="^[0-9a-fA-F]{4,64}$")


class CredentialAsked(CredentialFields, ProjectAsked):
    forget: bool = False


def _get(acting: Acting, project: str) -> GitProject:
    found = git.find_git_project(acting.store, project)
    if found is None:
        raise NotThere(f"there is no git project {project!r}")
    return found


def _begin(acting: Acting, kind: str, project: str | None, **more: object) -> int:
    taskid, _ = git.new_task(
        acting.store, kind, project=project, by=acting.user.actor, lost=lost_tasks(acting.store), **more,  # type: ignore[arg-type]
    )  # fmt: skip
    start_work(taskid)
    return taskid


def _waits(acting: Acting, project: str) -> str:
    lost = set(lost_tasks(acting.store))
    for one in git.list_tasks(acting.store, project=project, limit=5):
        if one.is_open and one.taskid not in lost:
            return f" It waits for the {one.kind} that {one.asked_by} asked for at {one.asked_at[:19]}."
    return ""


# Add ------------------------------------------------------------------------------------------------------------------
def describe_add(_acting: Acting, asked: AddAsked) -> Plan:
    says = (
        "The repository is cloned, and its project is checked as a whole: project.yml, sources, scripts, "
        "transformations and their unit tests. Only if all is well is it registered, and run from then on."
    )
    fields = (
        Field("url", "Address", value=asked.url or "", hint="https://git.example.com/shop.git", required=True),
        Field("branch", "Branch; empty: the repository's own", value=asked.branch or ""),
        Field("name", "Project; empty: as its project.yml says", value=asked.name or ""),
        _USER._replace(value=asked.username or ""), _TOKEN, _KEY,
    )  # fmt: skip
    return Plan(says, fields=fields)


def perform_add(acting: Acting, asked: AddAsked) -> Done:
    from opendataflow.project.registration.links import project_id

    if not asked.url:
        raise UsageError("url: where is the repository?")
    remote = read_remote(asked.url)
    branch = read_branch(asked.branch) if asked.branch else None
    credential = encrypted_credential(
        asked.username or remote.username, token=asked.token, key=asked.key, protocol=remote.protocol
    )
    project = project_id(asked.name) if asked.name else None
    if project is not None and git.find_git_project(acting.store, project) is not None:
        raise UsageError(f"there is a git project {project} already; pull it")
    number = _begin(acting, "add", project, url=remote.url, branch=branch, credential=credential)
    return Done(f"{remote.url} is being cloned and checked.", remote.url, {"task": number}, then="/projects")


# Pull and roll back ---------------------------------------------------------------------------------------------------
def describe_pull(acting: Acting, asked: ProjectAsked) -> Plan:
    found = _get(acting, asked.project)
    at = f"{found.commit[:12]} stays in place" if found.commit else "nothing is put in place"
    says = (
        f"The newest commit of {found.branch} is fetched and checked as a whole, with its unit tests; if something is "
        f"wrong, {at}. Runs that go on end with the version they began with."
    )
    return Plan(says + _waits(acting, asked.project))


def perform_pull(acting: Acting, asked: ProjectAsked) -> Done:
    found = _get(acting, asked.project)
    number = _begin(acting, "pull", found.project)
    return Done(f"{found.project} is being pulled.", found.project, {"task": number}, then=f"/projects/{found.project}")


def describe_rollback(acting: Acting, asked: RollbackAsked) -> Plan:
    found = _get(acting, asked.project)
    versions = git.list_versions(acting.store, asked.project, limit=50)
    others = [one for one in versions if one.commit != found.commit]
    if not others:
        return Plan(f"{asked.project} has no earlier version.", possible=False)
    says = (
        f"{asked.project} is at {(found.commit or '')[:12]}. Another version is put in place of it, checked against "
        "the store as it is now. Runs that go on end with the version they began with; a webhook does not undo it."
    )
    choices = list(dict.fromkeys(one.commit[:12] for one in others))
    chosen = next((one for one in choices if asked.commit and one.startswith(asked.commit[:12].lower())), choices[0])
    rows = [(one.commit[:12], one.subject, one.author, one.switched_at[:19], one.how) for one in others[:20]]
    return Plan(
        says + _waits(acting, asked.project), ("Commit", "Subject", "Author", "In place since", "How"), rows,
        fields=(Field("commit", "Version", value=chosen, choices=choices),),
    )  # fmt: skip


def perform_rollback(acting: Acting, asked: RollbackAsked) -> Done:
    found = _get(acting, asked.project)
    number = _begin(acting, "rollback", found.project, commit=asked.commit)
    to = f" to {asked.commit[:12]}" if asked.commit else ""
    return Done(
        f"{found.project} is being rolled back{to}.", f"{found.project}{to}", {"task": number},
        then=f"/projects/{found.project}",
    )  # fmt: skip


# Remove ---------------------------------------------------------------------------------------------------------------
def describe_remove(acting: Acting, asked: ProjectAsked) -> Plan:
    found = _get(acting, asked.project)
    return Plan(
        f"{found.project}, its jobs and datasets are taken out of the store, and its code and credentials are deleted. "
        "Its data, chunks, runs and history stay. It is refused while something of it runs, or others read its data."
    )


def perform_remove(acting: Acting, asked: ProjectAsked) -> Done:
    from opendataflow.deploy.projects import remove

    found = _get(acting, asked.project)
    return Done(remove(acting.store, found.project), found.project, then="/projects")


# Secrets --------------------------------------------------------------------------------------------------------------
def describe_credential(acting: Acting, asked: CredentialAsked) -> Plan:
    found = _get(acting, asked.project)
    kept = f"a {found.credential_kind} is kept" if found.credential_kind else "none is kept"
    fields = (
        _USER._replace(value=asked.username or found.username or ""), _TOKEN, _KEY,
        Field("forget", "Keep none any more", "checkbox"),
    )  # fmt: skip
    return Plan(f"What opens {found.url}: {kept}. It is encrypted with the passkey and never shown.", fields=fields)


def perform_credential(acting: Acting, asked: CredentialAsked) -> Done:
    found = _get(acting, asked.project)
    protocol = read_remote(found.url).protocol
    given = encrypted_credential(asked.username, token=asked.token, key=asked.key, protocol=protocol)
    if given.text is None and not asked.forget:
        raise UsageError("give a token or a key, or tick that none is kept")
    git.set_credential(acting.store, found.project, Credential() if asked.forget else given)
    says = "no credential is kept any more" if asked.forget else f"its {given.kind} is kept, encrypted"
    return Done(f"{found.project}: {says}", found.project, then=f"/projects/{found.project}")


def describe_hook(acting: Acting, asked: ProjectAsked) -> Plan:
    found = _get(acting, asked.project)
    old = " The one that there is no longer counts." if found.has_hook else ""
    path = HOOK_PATH.format(project=found.project)
    return Plan(f"A secret for the forge's webhook, shown once. The webhook goes to {path}, for pushes, as JSON.{old}")


def perform_hook(acting: Acting, asked: ProjectAsked) -> Done:
    found = _get(acting, asked.project)
    path = HOOK_PATH.format(project=found.project)
    says = f"The secret of the webhook of {found.project}; its address is {path} of this server:"
    secret = new_hook_secret(acting.store, found.project)
    return Done(says, found.project, {"path": path}, then=f"/projects/{found.project}", once=secret)


ACTIONS = (
    Action("project-add", "Add a project", Role.ADMIN, AddAsked, describe_add, perform_add, secret=SECRET),
    Action("project-pull", "Pull", Role.OPERATOR, ProjectAsked, describe_pull, perform_pull),
    Action("project-rollback", "Roll back", Role.OPERATOR, RollbackAsked, describe_rollback, perform_rollback),
    Action("project-remove", "Remove", Role.ADMIN, ProjectAsked, describe_remove, perform_remove, is_grave=True),
    Action(
        "project-credential", "Keep", Role.ADMIN, CredentialAsked, describe_credential, perform_credential,
        secret=SECRET,
    ),
    Action("project-hook", "Make the secret", Role.ADMIN, ProjectAsked, describe_hook, perform_hook),
)  # fmt: skip

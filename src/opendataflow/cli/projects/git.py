"""`dataflow project`: projects that come from git repositories."""

import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opendataflow.cli.opened import address, opened
from opendataflow.cli.options import Json
from opendataflow.cli.render import confirm, put, put_json, put_table, say
from opendataflow.errors import UsageError

if TYPE_CHECKING:
    from opendataflow.deploy.projects import Report
    from opendataflow.project.address import Address
    from opendataflow.store.claims import LoopStore
    from opendataflow.store.records.git import Credential

app = typer.Typer(
    help="Projects from git repositories: add, pull, roll back, remove; each version is checked before it runs.",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(metavar="PROJECT", help="As `dataflow project list` names it.")]
Username = Annotated[str | None, typer.Option(help="Of a private repository; the token is in DATAFLOW_GIT_TOKEN.")]
TokenFile = Annotated[str | None, typer.Option(metavar="FILE", help="A file with the token or password; - is stdin.")]
SshKey = Annotated[str | None, typer.Option(metavar="FILE", help="A private key for ssh, without a passphrase.")]


def add_to(main: typer.Typer) -> None:
    main.add_typer(app, name="project")


@app.command()
def add(
    url: Annotated[str, typer.Argument(help="https://…, ssh://…, user@host:path, or a folder of this machine.")],
    branch: Annotated[str | None, typer.Option(help="The branch to follow; else the repository's own.")] = None,
    name: Annotated[str | None, typer.Option(help="The project's id; else the name in its project.yml.")] = None,
    username: Username = None,
    token_file: TokenFile = None,
    ssh_key: SshKey = None,
    as_json: Json = False,
) -> int:
    """Clone a repository, check the project in it as a whole, and register it. Makes the store if there is none.

    A credential is kept encrypted (DATAFLOW_PASSKEY). Exit: 0 when it is in place, 1 when it was refused.

    Examples: dataflow project add https://git.example.com/shop.git --branch main;
    DATAFLOW_GIT_TOKEN=… dataflow project add https://git.example.com/private.git --username robot
    """
    from opendataflow.deploy.git_address import read_branch, read_remote
    from opendataflow.store.records.git import new_task

    remote = read_remote(url)
    if branch is not None:
        read_branch(branch)
    credential = _credential(username or remote.username, token_file, ssh_key, remote.protocol)
    found = address()
    store = opened(found, make=True)
    task, _ = new_task(
        store, "add", project=_id(name), by=store.actor, url=remote.url, branch=branch, credential=credential
    )
    return _done(store, found, task, as_json=as_json)


@app.command()
def pull(
    project: Annotated[str | None, typer.Argument(metavar="[PROJECT]", help="Only this one; else all.")] = None,
    as_json: Json = False,
) -> int:
    """Fetch the branch, check its newest commit as a whole, and put it in place, or refuse it with every error.

    Exit: 0 when the newest commit is in place, 1 when one was refused or could not be fetched; the old one stays.

    Examples: dataflow project pull;  dataflow project pull shop --json
    """
    from opendataflow.store.records.git import get_git_project, list_git_projects, new_task

    found = address()
    store = opened(found)
    names = [one.project for one in list_git_projects(store)] if project is None else [project]
    if not names:
        say("there is no git project; `dataflow project add URL` adds one")
    code = 0
    for name in names:
        get_git_project(store, name)
        task, _ = new_task(store, "pull", project=name, by=store.actor)
        code = max(code, _done(store, found, task, as_json=as_json))
    return code


@app.command()
def rollback(
    project: Name,
    commit: Annotated[str | None, typer.Argument(help="Which one; else the one before.")] = None,
    as_json: Json = False,
) -> int:
    """Put an earlier version in place again. Unit tests are run only of one that never was.

    A webhook's pull does not undo it; `dataflow project pull` does.

    Examples: dataflow project rollback shop;  dataflow project rollback shop 1f3a9c2
    """
    from opendataflow.store.records.git import get_git_project, new_task

    found = address()
    store = opened(found)
    get_git_project(store, project)
    task, _ = new_task(store, "rollback", project=project, by=store.actor, commit=commit)
    return _done(store, found, task, as_json=as_json)


@app.command("list")
def list_projects(as_json: Json = False) -> None:
    """The projects of this store: the commit of each, when it was put in place, and what was refused since.

    Example: dataflow project list --json
    """
    from opendataflow.store.records.git import list_git_projects, list_registered, list_versions

    store = opened()
    versions = {one.project: list_versions(store, one.project, limit=1) for one in list_git_projects(store)}
    git = {one.project: one for one in list_git_projects(store)}
    registered = {one.project: one for one in list_registered(store)}
    rows: list[dict[str, Any]] = []
    for name in sorted({*git, *registered}):
        one, last = git.get(name), versions.get(name)
        row: dict[str, Any] = {"project": name, "home": registered[name].home if name in registered else None}
        row |= {"url": None, "branch": None, "commit": None} if one is None else one._asdict()
        row["in_place"] = last[0]._asdict() if last else None
        rows.append(row)
    if as_json:
        put_json(rows)
        return
    columns = ("project", "from", "branch", "commit", "since", "by", "refused")
    put_table("", columns, [_line(row) for row in rows])
    if not rows:
        say("there is no project; `dataflow project add URL` adds one, `dataflow apply` registers one from a folder")


def _line(row: dict[str, Any]) -> tuple[Any, ...]:
    at = row["in_place"] or {}
    refused = f"{row['refused_commit'][:12]}: {len(row['problems'])} problems" if row.get("refused_commit") else ""
    return (
        row["project"], row["url"] or row["home"], row["branch"], (row["commit"] or "")[:12], at.get("switched_at"),
        at.get("switched_by"), refused,
    )  # fmt: skip


@app.command()
def show(
    project: Name, limit: Annotated[int, typer.Option(min=1, help="Versions.")] = 20, as_json: Json = False
) -> None:
    """A git project: its versions, newest first, and all that is wrong with the commit that was refused last.

    Example: dataflow project show shop
    """
    from opendataflow.store.records.git import get_git_project, list_tasks, list_versions

    store = opened()
    one, versions = get_git_project(store, project), list_versions(store, project, limit=limit)
    tasks = list_tasks(store, project=project, limit=5)
    if as_json:
        put_json({**one._asdict(), "versions": [v._asdict() for v in versions], "tasks": [t._asdict() for t in tasks]})
        return
    put(f"{one.project}: {one.url}, branch {one.branch}, added {one.added_at} by {one.added_by}")
    columns = ("commit", "author", "subject", "how", "in place since", "by", "until")
    listed = [(v.commit[:12], v.author, v.subject, v.how, v.switched_at, v.switched_by, v.left_at) for v in versions]
    put_table("", columns, listed)
    for task in tasks:
        if task.is_open:
            put(f"{task.kind} by {task.asked_by} since {task.asked_at}: {task.step or task.state}")
    if one.refused_commit:
        put(f"refused {one.refused_at}: {one.refused_commit[:12]} ({one.refused_subject})")
        _put_problems(list(one.problems))


@app.command()
def remove(
    project: Name, yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False, as_json: Json = False
) -> None:
    """Take a git project out of the store and its code off this host. Data, chunks, runs and history stay.

    Example: dataflow project remove shop --yes
    """
    from opendataflow.deploy.projects import remove as remove_project
    from opendataflow.store.records.git import get_git_project

    store = opened()
    get_git_project(store, project)
    confirm(f"remove {project}, its jobs and its code from this store and host; its data stays", yes=yes)
    said = remove_project(store, project)
    if as_json:
        put_json({"project": project, "said": said})
    say(said)


@app.command()
def credential(
    project: Name, username: Username = None, token_file: TokenFile = None, ssh_key: SshKey = None,
    forget: Annotated[bool, typer.Option("--forget", help="Keep none any more.")] = False,
) -> None:  # fmt: skip
    """Give the token or key that opens a private repository; it is kept encrypted, and never shown.

    Examples: dataflow project credential shop --username robot --token-file -;
    dataflow project credential shop --forget
    """
    from opendataflow.deploy.git_address import read_remote
    from opendataflow.store.records.git import Credential, get_git_project, set_credential

    store = opened()
    known = get_git_project(store, project)
    given = Credential() if forget else _credential(username, token_file, ssh_key, read_remote(known.url).protocol)
    if given.text is None and not forget:
        raise UsageError("give the token in DATAFLOW_GIT_TOKEN or with --token-file, a key with --ssh-key, or --forget")
    set_credential(store, project, given)
    say(f"{project}: " + ("no credential is kept any more" if forget else f"its {given.kind} is kept, encrypted"))


@app.command()
def hook(
    project: Name, forget: Annotated[bool, typer.Option("--forget", help="Answer no webhook any more.")] = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Make the secret for the webhook of a forge, show it once, and say where the webhook is to go.

    Example: dataflow project hook shop
    """
    from opendataflow.deploy.webhook import HOOK_PATH, new_hook_secret
    from opendataflow.store.records.git import get_git_project, set_hook_secret

    store = opened()
    get_git_project(store, project)
    if forget:
        set_hook_secret(store, project, None)
        say(f"{project}: no webhook is answered any more")
        return
    secret = new_hook_secret(store, project)
    path = HOOK_PATH.format(project=project)
    if as_json:
        put_json({"project": project, "path": path, "secret": secret})
        return
    put(secret)
    say(f"the webhook: POST to {path} of your server, content type application/json, events: push, with this secret")
    say("it is shown only now, and earlier ones no longer count")


@app.command()
def sync(
    project: Annotated[str | None, typer.Argument(metavar="[PROJECT]", help="Only this one; else all.")] = None,
    as_json: Json = False,
) -> None:
    """Bring this host the versions that are in place and not here; workers of other hosts do it by themselves.

    Example: dataflow project sync
    """
    from opendataflow.deploy.projects import sync as sync_here

    made = sync_here(opened(), project=project, say=say)
    if as_json:
        put_json({"made": made})
        return
    for home in made:
        put(home)
    if not made:
        say("all versions that are in place are here")


@app.command(hidden=True)
def work(task: Annotated[int, typer.Argument(help="Its number.")]) -> int:
    """Do a task that the server asked for.

    Example: dataflow project work 12
    """
    from opendataflow.store.records.git import get_task

    found = address()
    store = opened(found)
    store.actor = get_task(store, task).asked_by
    return _done(store, found, task, as_json=False)


# What they share ------------------------------------------------------------------------------------------------------
def _done(store: "LoopStore", found: "Address", task: int, *, as_json: bool) -> int:
    from opendataflow.deploy.projects import run_task
    from opendataflow.store.records.git import DONE

    report = run_task(store, found, task, say=say)
    if as_json:
        put_json(report._asdict())
    else:
        _put_report(report)
    say(report.said)
    return 0 if report.state == DONE else 1


def _put_report(report: "Report") -> None:
    for change in report.changes:
        put(change)
    _put_problems(list(report.problems))


def _put_problems(problems: list[dict[str, Any]]) -> None:
    for one in problems:
        put(f"{one['severity']}: {one['file']}:{one['line']}: {one['message']}")
        put(f"    {one['next_step']}")


def _id(name: str | None) -> str | None:
    from opendataflow.project.registration.load import project_id

    return None if name is None else project_id(name)


def _credential(username: str | None, token_file: str | None, ssh_key: str | None, protocol: str) -> "Credential":
    """What was given, encrypted."""
    from opendataflow.deploy.webhook import encrypted_credential

    token = os.environ.get("DATAFLOW_GIT_TOKEN")
    if token_file is not None:
        token = _read(token_file).strip("\r\n")
    key = _read(ssh_key) if ssh_key is not None else None
    if protocol == "ssh" and key is None:
        token = None
    return encrypted_credential(username, token=token, key=key, protocol=protocol)


def _read(path: str) -> str:
    if path == "-":
        return sys.stdin.read()
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None

"""`dataflow import-opendataflow`: move from the original OpenDataFlow to this one."""

import os
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opendataflow.cli.opened import address, opened
from opendataflow.cli.render import put, put_json, say
from opendataflow.domain.words import number_of
from opendataflow.errors import ConfigurationError, UsageError

if TYPE_CHECKING:
    from opendataflow.store.records.importer import Brought, Found, Original

TODAY = "today"  # the original's clock, and ours
_FIELDS = ("hostname", "database", "schemaname", "tablename", "username", "encryptedpass")


def add_to(app: typer.Typer) -> None:
    app.command("import-opendataflow")(import_opendataflow)


def import_opendataflow(
    url: Annotated[str | None, typer.Option(help="The original's database, without a password.")] = None,
    properties: Annotated[
        str | None, typer.Option(help="Its dataflow.properties; otherwise the nearest one is taken.")
    ] = None,
    schema: Annotated[str | None, typer.Option(help="The schema of its tables, if not `dataflow`.")] = None,
    project: Annotated[str, typer.Option(help="The name of the project to write.")] = "opendataflow",
    write: Annotated[str | None, typer.Option(help="Write project.yml to this file instead of stdout.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Let --write replace a file.")] = False,
    status: Annotated[
        bool, typer.Option("--status", help="Declare the original's READY chunks in this project's store.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For scripts.")] = False,
) -> None:
    """Read the original OpenDataFlow's dataset, job and datastatus tables; nothing changes there.

    Without --status, its datasets and jobs become a project.yml. With --status, after `dataflow apply`, its READY
    chunks become READY here; what was RUNNING, FAILED or RESUBMIT is listed and runs again.
    Example: dataflow import-opendataflow --write project.yml && dataflow apply && dataflow import-opendataflow --status
    """
    from opendataflow.store.records.importer import judge_statuses

    if status and write:
        raise UsageError("--write and --status are two steps, with `dataflow apply` between them")
    original = _read(url, properties, schema)
    found = judge_statuses(original)
    told: dict[str, Any] = {"statuses": dict(Counter(str(row.status) for row in original.statuses))}
    if status:
        _bring(found, told, dry_run=dry_run, as_json=as_json)
        return
    content, notes = project_of(original, name=project)
    text = project_text(content, notes)
    problem = _problem(text)
    if problem:
        notes.append(f"needs a hand before `dataflow apply`: {problem}")
    if write and not dry_run:
        _write(write, text, force=force)
    if as_json:
        told |= {"project": content, "notes": notes, "written": write if not dry_run else None}
        put_json({**told, "ready": len(found.ready), "left": [row._asdict() for row in found.left]})
        return
    if not write or dry_run:
        put(text.rstrip("\n"))
    for note in notes:
        say(f"note: {note}")
    say(
        f"{number_of(len(content['datasets']), 'dataset')}, {number_of(len(content['jobs']), 'job')}"
        + (f" → {write}" if write else "")
    )
    say(f"{len(found.ready)} chunks are READY there; after `dataflow apply`, --status brings them here")


def _read(url: str | None, properties: str | None, schema: str | None) -> "Original":
    from opendataflow.project.address import find_properties
    from opendataflow.project.properties import read_properties, search_path
    from opendataflow.store.base import without_password
    from opendataflow.store.records.importer import read_original

    if url is not None and properties is not None:
        raise UsageError("give --url or --properties, not both")
    if url is not None:
        if without_password(url) != url or "password=" in url:
            raise UsageError(
                "--url holds a password, which everyone on this machine can read in the process list; "
                "use --properties, PGPASSWORD or ~/.pgpass"
            )
        return read_original(url, search_path=search_path(schema or "dataflow"))
    file = properties or find_properties(os.getcwd())
    if file is None:
        raise UsageError("where is the original's database? give --url postgresql://… or --properties FILE")
    found = read_properties(file)
    return read_original(found._replace(schema=None).url, search_path=search_path(schema or found.schema or "dataflow"))


# Its datasets and jobs ------------------------------------------------------------------------------------------------
def project_of(original: "Original", *, name: str) -> tuple[dict[str, Any], list[str]]:
    """What a project.yml says of the original's datasets and jobs, and what it cannot say."""
    notes: list[str] = []
    datasets = _datasets(original, notes)
    jobs: dict[str, Any] = {}
    producer: dict[str, str] = {}
    for jobid, entry in _jobs(original, notes).items():
        both = sorted({*entry["inputs"]} & {*entry["outputs"]})
        other = next((one for one in entry["outputs"] if one in producer), None)
        if not entry["outputs"]:
            notes.append(f"job {jobid} is left out: it has no OUT dataset, so nothing could remember that it ran")
        elif both:
            notes.append(f"job {jobid} is left out: {', '.join(both)} is both its input and its output")
        elif other is not None:
            notes.append(f"job {jobid} is left out: {producer[other]} already produces {other}")
        else:
            jobs[jobid] = {key: value for key, value in entry.items() if value}
            producer |= dict.fromkeys(entry["outputs"], jobid)
            for dataset in (*entry["inputs"], *entry["outputs"]):
                if dataset != TODAY and dataset not in datasets:
                    datasets[dataset] = {}
                    notes.append(f"dataset {dataset} is used by job {jobid} but was not registered")
    # The store is named: beside a project.yml without one, dataflow.properties would point at the original's schema.
    environments = {"default": {"root": ".", "store": "sqlite:///.dataflow/state.db"}}
    return {"name": name, "environments": environments, "datasets": datasets, "jobs": jobs}, notes


def _datasets(original: "Original", notes: list[str]) -> dict[str, dict[str, str]]:
    from opendataflow.project.secrets import is_encrypted

    found: dict[str, dict[str, str]] = {}
    for row in original.datasets:
        entry = {field: value for field in _FIELDS if (value := getattr(row, field))}
        if row.datasetid == TODAY:
            continue
        if not is_encrypted(entry.get("encryptedpass", "enc:v1:")):
            del entry["encryptedpass"]
            notes.append(f"dataset {row.datasetid}: its encryptedpass is not encrypted and was left out")
        if found.setdefault(row.datasetid, entry) != entry:
            notes.append(f"dataset {row.datasetid} is registered more than once; the first of them is taken")
    return found


def _jobs(original: "Original", notes: list[str]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for item in original.items:
        job = found.setdefault(item.jobid, {"inputs": [], "outputs": [], "env": {}})
        if item.itemtype not in ("IN", "OUT"):
            job["env"][item.itemtype] = item.itemvalue or ""
        elif not item.datasetid:
            notes.append(f"job {item.jobid} has an {item.itemtype} item without a dataset")
        else:
            side = job["inputs" if item.itemtype == "IN" else "outputs"]
            if item.datasetid not in side:
                side.append(item.datasetid)
    return found


def project_text(content: dict[str, Any], notes: list[str]) -> str:
    import yaml

    head = ["# Made by `dataflow import-opendataflow` from the original's tables."]
    head += [f"# Note: {' '.join(note.split())}" for note in notes]
    return "\n".join(head) + "\n" + yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=1000)


def _problem(text: str) -> str | None:
    """What `dataflow apply` would say against this project.yml."""
    import tempfile

    from opendataflow.project.registration.load import load_registration

    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "project.yml"), "w", encoding="utf-8") as file:
            file.write(text)
        try:
            load_registration(folder, "default")
            return None
        except ConfigurationError as error:
            return str(error).replace(folder + os.sep, "")


def _write(path: str, text: str, *, force: bool) -> None:
    try:
        with open(path, "w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{path} is there already; --force replaces it") from None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error


# Its chunks -----------------------------------------------------------------------------------------------------------
def _bring(found: "Found", told: dict[str, Any], *, dry_run: bool, as_json: bool) -> None:
    from opendataflow.store.records.importer import bring_ready

    here = address()
    store = opened(here)
    brought = bring_ready(store, found.ready, project=here.project, dry_run=dry_run)
    if as_json:
        left = [row._asdict() for row in found.left]
        put_json({**told, **brought._asdict(), "left": left, "applied": not dry_run})
        return
    for line in (*brought.refused, *(f"{row.datasetid}/{row.dataid}: {_why_left(row)}" for row in found.left)):
        say(line)
    say(_summary(brought, len(found.left), dry_run=dry_run))


def _why_left(row: Any) -> str:
    if row.locktype != "OUT":
        return f"{row.jobid} was reading it ({row.status}); nothing to bring"
    return f"was {row.status} by {row.jobid}; it runs again here when its inputs are READY"


def _summary(brought: "Brought", left: int, *, dry_run: bool) -> str:
    verb = "would become" if dry_run else "became"
    return (
        f"{len(brought.ready)} chunks {verb} READY, {len(brought.already)} were already, "
        f"{len(brought.refused)} could not be, {left} rows are left as they are"
    )

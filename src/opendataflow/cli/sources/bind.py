"""`dataflow source bind`, `unbind` and `list`: what a store gives to datasets beside project.yml."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from opendataflow.cli.opened import address, declared_project, opened
from opendataflow.cli.options import Json
from opendataflow.cli.render import ask_secret, put, put_json, put_table, say
from opendataflow.errors import UsageError

if TYPE_CHECKING:
    from opendataflow.operations.bind import Bound

DatasetId = Annotated[str, typer.Argument(metavar="DATASET", help="The dataset, as pipelines name it.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only check it, and show what would change.")]


def add_to(app: typer.Typer) -> None:
    app.command()(bind)
    app.command()(unbind)
    app.command("list")(list_sources)


def bind(
    dataset: DatasetId,
    values: Annotated[
        list[str], typer.Argument(metavar="FIELD=VALUE…", help="As in project.yml; `password` alone is asked for.")
    ],
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Give a dataset in this store what project.yml leaves open, or make one that project.yml does not name.

    What is bound stays at every `dataflow apply`; what project.yml declares cannot be bound. A password is asked for or
    read from standard input, and kept encrypted. Checked and registered at once, or not at all.

    Examples: dataflow source bind crm url=postgresql://reader@db/crm table=public.customers password;
    dataflow source bind orders path=in/{dataid}.csv format=csv partitions=daily:2025-01-01
    """
    _do(dataset, dict(_given(one) for one in values), dry_run=dry_run, as_json=as_json)


def unbind(
    dataset: DatasetId,
    fields: Annotated[list[str] | None, typer.Argument(metavar="[FIELD…]", help="Only these; else all.")] = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Take back what was bound to a dataset; one that project.yml does not name is gone then, and its chunks stay.

    Examples: dataflow source unbind crm;  dataflow source unbind crm hostname
    """
    wanted = fields
    if not wanted:
        from opendataflow.store.records.sources import list_bindings

        found = address()
        wanted = [one.field for one in list_bindings(opened(found), declared_project(found), dataset)]
        if not wanted:
            raise UsageError(f"nothing is bound to {dataset!r}; see `dataflow source list`")
    _do(dataset, dict.fromkeys(wanted), dry_run=dry_run, as_json=as_json)


def list_sources(as_json: Json = False) -> None:
    """Every dataset as a source: kind, place, what was bound in this store, its last test, who reads and writes it.

    Example: dataflow source list --json
    """
    from opendataflow.operations.source_facts import describe_source
    from opendataflow.store.records.sources import list_sources as sources_of

    found = address()
    listed = [describe_source(one) for one in sources_of(opened(found), project=found.project, limit=100_000)]
    if as_json:
        put_json([one._asdict() for one in listed])
        return
    put_table(
        "",
        ("dataset", "kind", "place", "bound", "last test", "written by", "read by"),
        [
            (one.dataset, one.kind, one.place, " ".join(one.bound), one.test, " ".join(one.makers),
             " ".join(one.readers))
            for one in listed
        ],
    )  # fmt: skip


# Doing ----------------------------------------------------------------------------------------------------------------
def _given(text: str) -> tuple[str, str]:
    from opendataflow.project.bound import SECRETS

    field, equals, value = text.partition("=")
    if field in SECRETS:
        if equals and not value.startswith("enc:v1:"):
            raise UsageError(f"{field}: give the name alone, and the password on standard input: others see arguments")
        return field, value or ask_secret(f"{field}: ")
    if not equals:
        raise UsageError(f"{text!r} is not like FIELD=VALUE")
    return field, value


def _do(dataset: str, given: dict[str, Any], *, dry_run: bool, as_json: bool) -> None:
    from opendataflow.operations.bind import bind as bind_to
    from opendataflow.operations.bind import home_of

    found = address()
    store = opened(found, make=found.home is not None)
    if found.home is not None and not store.environment:
        store.environment = found.environment or ""  # the first apply stamps it
    project = declared_project(found)
    if not project:
        raise UsageError("which project? go to its folder, or set DATAFLOW_PROJECT")
    home = found.home or home_of(store, project)
    done = bind_to(store, home, project, dataset.removeprefix(f"{project}."), given, dry_run=dry_run)
    if as_json:
        put_json({**done._asdict(), "applied": not dry_run and not done.waits_for})
        return
    _tell(done, dry_run=dry_run)


def _tell(done: "Bound", *, dry_run: bool) -> None:
    for change in done.changes:
        put(change)
    would = "would be " if dry_run else ""
    for word, fields in (("bound", done.bound), ("unbound", done.unbound)):
        if fields:
            say(f"{done.datasetid}: {', '.join(fields)} {would}{word}")
    for problem in done.waits_for:
        say(f"project.yml: {problem}")
    if done.waits_for:
        say("nothing is registered until project.yml is right; then run `dataflow apply`")

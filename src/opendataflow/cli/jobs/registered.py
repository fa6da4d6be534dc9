"""`dataflow dataset` and `dataflow job`: what is registered, and adding to project.yml."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opendataflow.cli import completion
from opendataflow.cli.opened import address, bound_in, opened, project_address
from opendataflow.cli.options import Json
from opendataflow.cli.render import put, put_json, put_table, say
from opendataflow.errors import UsageError

if TYPE_CHECKING:
    from opendataflow.store.claims import LoopStore

datasets = typer.Typer(help="Datasets: what is registered, and adding one to project.yml.", no_args_is_help=True)
jobs = typer.Typer(help="Jobs: what is registered, and adding one to project.yml.", no_args_is_help=True)

Apply = Annotated[bool, typer.Option("--apply", help="Run `dataflow apply` afterwards.")]
Row = dict[str, Any]


def add_to(app: typer.Typer) -> None:
    app.add_typer(datasets, name="dataset")
    app.add_typer(jobs, name="job")


# Datasets -------------------------------------------------------------------------------------------------------------
@datasets.command("list")
def list_datasets(as_json: Json = False) -> None:
    """The registered datasets: where they are, how they are partitioned, who makes and who reads them.

    Example: dataflow dataset list --json
    """
    found = _registered("dataset")
    if as_json:
        put_json(found)
        return
    put_table(
        "",
        ("dataset", "where", "format", "partitions", "producer", "consumers"),
        [
            (_name(one, "dataset", found), _where(one), one["format"], _scheme(one["partitions"]), one["producer"],
             len(one["consumers"]))
            for one in found
        ],
    )  # fmt: skip


@datasets.command("show")
def show_dataset(
    name: Annotated[str, typer.Argument(help="The dataset's id.", autocompletion=completion.datasets)],
    as_json: Json = False,
) -> None:
    """Everything that is registered of a dataset; of a credential only that there is one.

    Example: dataflow dataset show orders
    """
    from opendataflow.domain.checks.check import texts_of

    one = _get("dataset", name)
    if as_json:
        put_json(one)
        return
    shown = {
        "dataset": one["datasetid"],
        "project": one["project"],
        "clock": one["clock"],
        **{key: one[key] for key in ("path", "format", "url", "hostname", "database", "schemaname", "tablename")},
        **{key: one[key] for key in ("query", "partition_column", "username")},
        "password": one["encryptedpass"],
        "partitions": _scheme(one["partitions"]),
        "options": _pairs(one["options"]),
        "schema": _pairs(one["schema"]),
        "arrival": _pairs(one["arrival"]),
        "checks": texts_of(one["checks"]),
        "pipeline checks": texts_of(one["pipeline_checks"]),
        "producer": one["producer"],
        "consumers": [_mapped(reader["job"], reader["map"]) for reader in one["consumers"]],
        "registered": one["modified"],
    }
    _put_facts(shown)


@datasets.command("add")
def add_dataset(
    name: Annotated[str, typer.Argument(help="Its id.")],
    path: Annotated[str | None, typer.Option(help="Below the environment's root, like orders/{dataid}.csv.")] = None,
    format_: Annotated[str | None, typer.Option("--format", help="csv, json, parquet, orc or text.")] = None,
    partitions: Annotated[
        str | None, typer.Option(help="Like daily:2025-01-01, shards:1..100, values:a,b or none.")
    ] = None,
    hostname: Annotated[str | None, typer.Option(help="The host of its database.")] = None,
    database: Annotated[str | None, typer.Option(help="The database.")] = None,
    schemaname: Annotated[str | None, typer.Option(help="The schema of its table.")] = None,
    tablename: Annotated[str | None, typer.Option(help="The table.")] = None,
    username: Annotated[str | None, typer.Option(help="Who reads it.")] = None,
    encryptedpass: Annotated[str | None, typer.Option(help="Made by `dataflow crypt encrypt`.")] = None,
    apply: Apply = False,
) -> None:
    """Add a dataset to project.yml; the rest of the file stays as it is. Nothing is written unless the whole loads.

    Example: dataflow dataset add orders --path orders/{dataid}.csv --format csv --partitions daily:2025-01-01
    """
    entry = {
        "path": path, "format": format_, "partitions": _read_scheme(partitions), "hostname": hostname,
        "database": database, "schemaname": schemaname, "tablename": tablename, "username": username,
        "encryptedpass": encryptedpass,
    }  # fmt: skip
    _add("datasets", name, entry, apply=apply)


def _where(one: Row) -> str:
    """The place of the data in one line."""
    if one["clock"]:
        return "(clock)"
    if one["path"] is not None:
        return str(one["path"])
    table = ".".join(part for part in (one["database"], one["schemaname"], one["tablename"]) if part)
    return ("/" if one["hostname"] and table else "").join(part for part in (one["hostname"], table) if part)


def _read_scheme(text: str | None) -> Any:
    """`daily:2025-01-01` as project.yml says it: {daily: 2025-01-01}."""
    kind, colon, rest = (text or "").partition(":")
    if not colon:
        return text
    return {kind.strip(): [one.strip() for one in rest.split(",")] if kind.strip() == "values" else rest.strip()}


# Jobs -----------------------------------------------------------------------------------------------------------------
@jobs.command("list")
def list_jobs(as_json: Json = False) -> None:
    """The registered jobs and pipelines: what they run, read and write.

    Example: dataflow job list --json
    """
    found = _registered("job")
    if as_json:
        put_json(found)
        return
    put_table(
        "",
        ("job", "kind", "script", "inputs", "outputs", "partitions", "order", "retries"),
        [
            (_name(one, "job", found), one["kind"], one["script"],
             ", ".join(_mapped(link["dataset"], link["map"]) for link in one["inputs"]), ", ".join(one["outputs"]),
             _scheme(one["partitions"]), one["order"], one["retries_max"])
            for one in found
        ],
    )  # fmt: skip


@jobs.command("show")
def show_job(
    name: Annotated[str, typer.Argument(help="The job's id.", autocompletion=completion.jobs)],
    as_json: Json = False,
) -> None:
    """Everything that is registered of a job.

    Example: dataflow job show load_orders
    """
    one = _get("job", name)
    if as_json:
        put_json(one)
        return
    spark = one.get("spark") or {}
    shown = {
        "job": one["jobid"],
        "project": one["project"],
        "kind": one["kind"],
        "script": one["script"],
        "inputs": [_mapped(link["dataset"], link["map"]) for link in one["inputs"]],
        "outputs": one["outputs"],
        "partitions": _scheme(one["partitions"]),
        "expected up to": one["expected_upto"],
        "transformations": one.get("transformations"),
        "args": one.get("args"),
        "env": _pairs(one.get("env")),
        "spark": [*([f"master: {spark['master']}"] if spark.get("master") else []), *_pairs(spark.get("conf"))],
        "order": one["order"],
        "retries": f"{one['retries_max']}, the first after {one['backoff_seconds']:g} s" if one["retries_max"] else "0",
        "lease": f"{one['lease_seconds']:g} s",
        "timeout": f"{one['timeout_seconds']:g} s" if one["timeout_seconds"] else None,
        "concurrency": one["concurrency"],
        "catchup": one["catchup"],
        "held": f"by {one['paused_by']} since {one['paused_at']}" if one["paused_by"] else None,
        "held until": one["paused_until"] if one["paused_by"] else None,
        "registered": one["modified"],
    }
    _put_facts(shown)


@jobs.command("add")
def add_job(
    name: Annotated[str, typer.Argument(help="Its id: the script's name without its extension.")],
    output: Annotated[list[str], typer.Option(help="A dataset that it writes; once for each.")],
    script: Annotated[str | None, typer.Option(help="Where the script is, from the project's folder.")] = None,
    input_: Annotated[
        list[str] | None, typer.Option("--input", help="A dataset or clock that it reads, or NAME=MAP; once for each.")
    ] = None,
    retries: Annotated[int | None, typer.Option(help="How often it is tried again after a failure.")] = None,
    timeout: Annotated[str | None, typer.Option(help="After which it is ended, like 2h.")] = None,
    order: Annotated[str | None, typer.Option(help="any, or strict: no dataid before the one before it.")] = None,
    apply: Apply = False,
) -> None:
    """Add a job to project.yml; the rest of the file stays as it is. Nothing is written unless the whole loads.

    Example: dataflow job add load --script jobs/load.sh --input orders --input rates=offset:-1 --output totals
    """
    entry = {
        "script": script, "inputs": [_read_input(one) for one in input_ or ()], "outputs": output,
        "order": order, "retries": None if retries is None else {"max": str(retries)}, "timeout": timeout,
    }  # fmt: skip
    _add("jobs", name, entry, apply=apply)


def _read_input(text: str) -> Any:
    """`rates=offset:-1` as project.yml says it: {rates: {map: {offset: -1}}}."""
    from opendataflow.domain.partitions.maps import canonical_map

    name, equals, map_ = text.rpartition("=")
    if not equals or not name:
        return text
    kind, colon, number = canonical_map(map_).partition(":")
    return {name: {"map": {kind: int(number)} if colon else kind}}


# Both -----------------------------------------------------------------------------------------------------------------
def _registered(noun: str) -> list[Row]:
    found = address()
    listed = _lister(noun)(opened(found), project=found.project)
    if not listed:
        say(f"no {noun} is registered; declare it in project.yml and run `dataflow apply`")
    return listed


def _lister(noun: str) -> "Callable[..., list[Row]]":
    from opendataflow.store.reports.listing import list_datasets as datasets_of
    from opendataflow.store.reports.listing import list_jobs as jobs_of

    return datasets_of if noun == "dataset" else jobs_of


def _get(noun: str, name: str) -> Row:
    """The registered dataset or job of that name; `other.orders` is another project's."""
    found = address()
    store = opened(found)
    known = _lister(noun)(store, project=found.project)
    fitting = [one for one in known if one[f"{noun}id"] == name] or _elsewhere(store, noun, name)
    if len(fitting) > 1:
        owners = ", ".join(f"{one['project']}.{name}" for one in fitting)
        raise UsageError(f"several projects have a {noun} {name!r}; say which: {owners}")
    if not fitting:
        import difflib

        near = difflib.get_close_matches(name, [one[f"{noun}id"] for one in known], n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"see `dataflow {noun} list`"
        raise UsageError(f"{noun} {name!r} is not registered; {hint}")
    return fitting[0]


def _elsewhere(store: "LoopStore", noun: str, name: str) -> list[Row]:
    project, dot, theirs = name.partition(".")
    if not dot:
        return []
    return [one for one in _lister(noun)(store, project=project) if one[f"{noun}id"] == theirs]


def _add(section: str, name: str, given: Row, *, apply: bool) -> None:
    from opendataflow.project.edit import add_to_project

    found = project_address()
    entry = {key: value for key, value in given.items() if value not in (None, [])}
    add_to_project(found.home or "", found.environment or "", section, name, entry, bound=bound_in(found))
    say(f"added {section[:-1]} {name} to {found.home}/project.yml" + ("" if apply else "; run `dataflow apply`"))
    if apply:
        from opendataflow.cli.jobs.state import apply as apply_now

        apply_now()


def _name(one: Row, noun: str, listed: list[Row]) -> str:
    """The id, with its project where several are listed."""
    several = len({other["project"] for other in listed}) > 1
    return f"{one['project']}.{one[f'{noun}id']}" if several else str(one[f"{noun}id"])


def _scheme(scheme: Any) -> str:
    if not isinstance(scheme, dict):
        return scheme or ""
    ((kind, value),) = scheme.items()
    if not isinstance(value, list):
        return f"{kind} {value}"
    return f"{kind} {', '.join(value[:5])}{f' and {len(value) - 5} more' if len(value) > 5 else ''}"


def _mapped(name: str, map_: str) -> str:
    return name if map_ == "same" else f"{name} ({map_})"


def _pairs(values: Row | None) -> list[str]:
    return [f"{key}: {_plain(value)}" for key, value in (values or {}).items()]


def _plain(value: Any) -> str:
    """As project.yml would say it: true, 10."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _put_facts(facts: Row) -> None:
    """A fact a line; of a list, an item a line below each other. What is not there is left out."""
    width = max(len(key) for key in facts)
    for key, value in facts.items():
        items = value if isinstance(value, list) else [value]
        for number, item in enumerate(items):
            if item not in (None, ""):
                put(f"{key if number == 0 else '':{width}}  {item}")

"""Before something is done again: what is missing, what hangs on it, what would run, in which order, for how long."""

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opendataflow.cli import completion
from opendataflow.cli.jobs.operate import (
    AllDownstream,
    AllRuns,
    Cascade,
    Failed,
    MadeBy,
    Outage,
    SinceFailed,
    SomeDataids,
    SomeJob,
    StaleOnly,
    UntilFailed,
    choose,
)
from opendataflow.cli.opened import address, opened
from opendataflow.cli.options import JobId, Json
from opendataflow.cli.paused import until_text
from opendataflow.cli.render import put, put_json, put_table, say
from opendataflow.domain.words import number_of
from opendataflow.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opendataflow.domain.lineage.graph import Graph

DatasetId = Annotated[
    str,
    typer.Argument(
        metavar="DATASET", help="The dataset; `other.orders`: another project's.", autocompletion=completion.datasets
    ),
]
Drawn = Annotated[str | None, typer.Option("--svg", metavar="FILE", help="Draw it into this file.")]
Dot = Annotated[bool, typer.Option("--dot", help="As text for Graphviz.")]
Limit = Annotated[int, typer.Option(min=1, help="At most so many chunks and jobs.")]

what_if_app = typer.Typer(help="What a command would do, without doing it.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    for command in (plan, gaps, lineage, impact):
        app.command()(command)
    app.add_typer(what_if_app, name="what-if")


@what_if_app.command("resubmit")
def what_if_resubmit(
    job: SomeJob = None,
    dataids: SomeDataids = None,
    failed: Failed = False,
    since: SinceFailed = None,
    until: UntilFailed = None,
    all_runs: AllRuns = False,
    outage: Outage = None,
    cascade: Cascade = False,
    all_downstream: AllDownstream = False,
    stale: StaleOnly = False,
    made_by: MadeBy = None,
    as_json: Json = False,
) -> None:
    """What `dataflow resubmit` with the same options would have run, step by step. Changes nothing.

    What follows a cascade only if something comes out different is told apart.

    Examples: dataflow what-if resubmit load_orders 2025-11-12 --cascade;
    dataflow what-if resubmit --outage 02:10..03:40 --cascade
    """
    from opendataflow.store.operations import resubmit
    from opendataflow.store.recovery import in_order

    store = opened(found := address())
    chosen = choose(store, found, job, dataids or [], failed, since, until, all_runs, outage, stale, made_by)
    cascade = cascade or (stale and not all_downstream)
    would = resubmit(store, chosen.keys, only=chosen.only, cascade=cascade, downstream=all_downstream, dry_run=True)
    listed = [{**one, "why": chosen.why(one)} for one in in_order(store, would)]
    if as_json:
        put_json(listed)
        return
    put_table(
        "",
        ("step", "job", "dataid", "now", "runs", "because"),
        [
            (one["step"], one["jobid"], one["dataid"], one["before"],
             "if what it reads changes" if one["if_changed"] else "after this run" if one["again"] else "yes",
             one["why"])
            for one in listed
        ],
    )  # fmt: skip
    surely = sum(not one["if_changed"] for one in listed)
    steps = max((one["step"] for one in listed), default=0)
    may = f", and up to {len(listed) - surely} that read them" if surely < len(listed) else ""
    say(f"{surely} would run{may}, in {number_of(steps, 'step')}; nothing was changed" if listed else "nothing to do")


def plan(
    job: JobId,
    slots: Annotated[
        int | None, typer.Option(min=1, help="So many at a time; without it: the slots of the live workers, or 1.")
    ] = None,
    as_json: Json = False,
) -> None:
    """What would run of a job, how many, and how long that takes by its latest runs, before it is started.

    Its limits hold too, and so do pauses; what waits for something that failed is not counted as coming.

    Example: dataflow plan load_orders --slots 10
    """
    from opendataflow.store.recovery import plan as plan_of

    store = opened(found := address())
    told = plan_of(store, store.get_job(job, project=found.project), slots=slots)
    if as_json:
        put_json(told)
        return
    first = f", first {', '.join(told['next'])}{' …' if told['ready'] > len(told['next']) else ''}"
    put(f"{job}: {_many(told['ready'], 'is', 'are')} ready to run{first if told['next'] else ''}")
    for text in (*_not_ready(job, told), *_gates(told)):
        put(f"  {text}")
    if told["runs"]:
        took = "none was complete" if told["median_seconds"] is None else (
            f"{_duration(told['median_seconds'])} in the middle, nine of ten within {_duration(told['p90_seconds'])}"
        )  # fmt: skip
        runs = "The last run" if told["runs"] == 1 else f"The last {told['runs']} runs"
        put(f"{runs}: {took}; {told['failure_rate']:.1%} failed")
    _put_estimate(told)


def _many(count: int, one: str, more: str) -> str:
    return f"{count} {one if count == 1 else more}"


def _not_ready(job: str, told: dict[str, Any]) -> "Iterator[str]":
    for name, one, more in (
        ("waiting", "waits for inputs", "wait for inputs"),
        ("behind_failed", "waits for what failed; see `dataflow why`", "wait for what failed; see `dataflow why`"),
        ("parked", "was refused and is tried again by itself", "were refused and are tried again by themselves"),
        ("retrying", "failed and is tried again by itself", "failed and are tried again by themselves"),
        ("running", "runs now", "run now"), ("held", "is on HOLD", "are on HOLD"),
    ):  # fmt: skip
        if told[name]:
            yield _many(told[name], one, more)
    for refused in told["refused"]:
        many = _many(refused["count"], "was refused and waits", "were refused and wait")
        yield f"{many} for somebody: {refused['code']}; next for {refused['first']}: {refused['next_step']}"
    if told["failed"]:
        stays = _many(told["failed"], "is FAILED and stays so", "are FAILED and stay so")
        yield f"{stays} until `dataflow resubmit {job} --failed`"


def _gates(told: dict[str, Any]) -> "Iterator[str]":
    """What stands between the job and its next run."""
    if told["paused"]:
        what = "everything is paused" if told["paused"] == "all" else "the job is held"
        ends = f"`dataflow resume {told['paused']}` ends it"
        yield f"nothing starts: {what} by {told['paused_by']}{until_text(told['paused_until'])}; {ends}"
    if told["limit"] == 0:
        name = told["limited_by"]
        yield f"nothing starts: the limit of {name} is 0; `dataflow scale {name} N` lets it go on"
    elif told["limit"] is not None:
        yield f"at most {told['limit']} at a time, by the limit of {told['limited_by']}"


def _put_estimate(told: dict[str, Any]) -> None:
    if told["seconds_ready"] is None:
        if told["limit"] != 0:
            none = "it has not run yet" if not told["runs"] else "none of its runs was complete"
            put(f"How long it takes is not known: {none}")
        return
    if not any(told[name] for name in ("ready", "waiting", "parked", "retrying")):
        return
    slots = number_of(told["slots"], "slot")
    if told["workers"]:
        slots += f" of {number_of(told['workers'], 'live worker')}"
    elif told["workers"] == 0:
        slots += " (no worker is live; see --slots)"
    if not told["ready"]:
        put(f"With {slots}: about {_duration(told['seconds_all'])} for what waits, once it can run")
        return
    put(f"With {slots}: about {_duration(told['seconds_ready'])} for what is ready now")
    if told["seconds_all"] != told["seconds_ready"]:
        put(f"  and {_duration(told['seconds_all'])} with what waits, once it can run")


def gaps(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[JOB|DATASET]", help="Only of this one.", autocompletion=completion.jobs_and_datasets),
    ] = None,
    as_json: Json = False,
) -> None:
    """What should be there by now and is not: dataids of datasets that are not READY, or of a job that are not done.

    With the reason, and the next step where somebody must take one.

    Examples: dataflow gaps;  dataflow gaps orders --json
    """
    from opendataflow.store.reports.gaps import find_gaps

    found = address()
    told = find_gaps(opened(found), project=found.project, name=name)
    if as_json:
        put_json(told)
        return
    put_table(
        "",
        ("", "from", "to", "number", "status", "because", "next step"),
        [
            (one.get("dataset") or one["job"], one["first"], one["last"], one["count"],
             "nothing" if one["status"] == "GAP" else one["status"], one["reason"], one["next_step"])
            for one in told
        ],
    )  # fmt: skip
    say(f"{sum(one['count'] for one in told)} missing in {number_of(len(told), 'gap')}" if told else "no gaps")


def lineage(
    dataset: DatasetId,
    dataid: Annotated[str | None, typer.Argument(help="This chunk's; without it: of the dataset as declared.")] = None,
    drawing: Drawn = None,
    as_dot: Dot = False,
    limit: Limit = 1000,
    as_json: Json = False,
) -> None:
    """Where data comes from: the chunks that a chunk was made of, and theirs, in the versions that were read.

    Without a dataid: all datasets and jobs before and after this one.

    Examples: dataflow lineage report 2025-11-12;  dataflow lineage report --svg report.svg
    """
    from opendataflow.store.published import find_dataset
    from opendataflow.store.reports.lineage import chunk_lineage, dataset_lineage

    store = opened(found := address())
    of = find_dataset(store, dataset, project=found.project)[0]
    graph = dataset_lineage(store, of) if dataid is None else chunk_lineage(store, of, dataid, limit=limit)
    if _put_graph(graph, drawing, as_dot=as_dot, as_json=as_json):
        return
    from opendataflow.domain.lineage.drawing import tree

    if dataid is None:
        put("Made of:")
        for line in tree(graph, upstream=True):
            put(f"  {line}")
        put("Read by:")
    for line in tree(graph, upstream=dataid is not None):
        put(line if dataid is not None else f"  {line}")


def impact(
    dataset: DatasetId,
    dataid: Annotated[str, typer.Argument(help="Which chunk.")],
    drawing: Drawn = None,
    as_dot: Dot = False,
    limit: Limit = 1000,
    as_json: Json = False,
) -> None:
    """What hangs on a chunk: every dataid that reads it, what was made of it, and who reads that.

    Example: dataflow impact orders 2025-11-12
    """
    from opendataflow.store.published import find_dataset
    from opendataflow.store.reports.lineage import impact as impact_of

    store = opened(found := address())
    graph = impact_of(store, find_dataset(store, dataset, project=found.project)[0], dataid, limit=limit)
    if _put_graph(graph, drawing, as_dot=as_dot, as_json=as_json):
        return
    from opendataflow.domain.lineage.drawing import tree

    for line in tree(graph, upstream=False):
        put(line)
    jobs = sum(node.kind == "job" for node in graph.nodes.values())
    chunks = len(graph.nodes) - jobs - 1
    say(f"{number_of(jobs, 'dataid')} of jobs, {_many(chunks, 'chunk hangs', 'chunks hang')} on it")


def _put_graph(graph: "Graph", drawing: str | None, *, as_dot: bool, as_json: bool) -> bool:
    """True when it was wanted in another form than lines."""
    from opendataflow.domain.lineage.drawing import dot, svg

    if graph.cut:
        say(f"{graph.cut} more are not shown; see --limit")
    if drawing is not None:
        try:
            with open(drawing, "w", encoding="utf-8") as file:
                file.write(svg(graph))
        except OSError as error:
            raise UsageError(f"{drawing} cannot be written: {error.strerror}") from error
        say(f"drew {_many(len(graph.nodes), 'box', 'boxes')} into {os.path.abspath(drawing)}")
    if as_json:
        put_json(graph.as_json())
    elif as_dot:
        put(dot(graph))
    return as_json or as_dot or drawing is not None


def _duration(seconds: float) -> str:
    if seconds < 0.1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours / 24:.1f} days"

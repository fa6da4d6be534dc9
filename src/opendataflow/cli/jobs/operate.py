"""Operating a system that runs: resubmit, hold, force, cleaning up, and the doctor."""

import json
import os
import time
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opendataflow.cli import completion
from opendataflow.cli.opened import address, opened
from opendataflow.cli.options import DryRun, JobId, Json, Yes
from opendataflow.cli.render import confirm, put, put_json, put_table, say
from opendataflow.cli.runs.show import env, logs, runs
from opendataflow.errors import ConfigurationError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opendataflow.operations.doctor import Finding
    from opendataflow.operations.selection import Chosen
    from opendataflow.project.address import Address
    from opendataflow.store.claims import LoopStore

SAID = 20  # of many changes so many are named; --json names all
CLEAN_PAUSE_SECONDS = 0.02  # between two batches: runners that wait for the store get their turn


history_app = typer.Typer(help="The record of what happened.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    for command in (runs, logs, env, resubmit, hold, release, doctor):
        app.command()(command)
    app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": False})(force)
    app.command("delete-run")(delete_run)
    app.add_typer(history_app, name="history")


# Doing again ----------------------------------------------------------------------------------------------------------
SomeJob = Annotated[
    str | None,
    typer.Argument(help="The job's id; without it: all jobs of the project.", autocompletion=completion.jobs),
]
SomeDataids = Annotated[list[str] | None, typer.Argument(help="One or more dataids.")]
Failed = Annotated[bool, typer.Option("--failed", help="All that are FAILED.")]
SinceFailed = Annotated[
    str | None, typer.Option(help="What failed since then and still is: a time, a date (UTC), or 2h.")
]
UntilFailed = Annotated[str | None, typer.Option(help="The end of that window, if it is over.")]
AllRuns = Annotated[bool, typer.Option("--all-runs", help="With --since: everything that ran then, failed or not.")]
Outage = Annotated[
    str | None,
    typer.Option(
        metavar="FROM..TO",
        help="All that ran, failed, was blocked or was published then: 02:10..03:40 (UTC, the latest), or full times.",
    ),
]
Cascade = Annotated[
    bool, typer.Option("--cascade", help="Whatever read the outputs follows if they come out different, and so on.")
]
StaleOnly = Annotated[
    bool,
    typer.Option("--stale", help="All that is stale; what reads it follows as with --cascade."),
]
MadeBy = Annotated[
    str | None, typer.Option(metavar="COMMIT", help="With --stale: only what this commit of a git project made.")
]
AllDownstream = Annotated[
    bool, typer.Option("--all-downstream", help="Also whatever read the outputs, and so on, at once and in any case.")
]


def resubmit(
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
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Have dataids produced again: their outputs close to consumers until they are.

    With --cascade nothing downstream is touched before there is something new to read: consumers of what comes out the
    same are left alone. `dataflow what-if resubmit …` shows the order.

    Examples: dataflow resubmit load_orders 2025-11-12 --cascade;  dataflow resubmit --failed;
    dataflow resubmit --stale;
    dataflow resubmit --outage 02:10..03:40 --cascade --dry-run
    """
    from opendataflow.operations.staleness import warn_of_older_readers
    from opendataflow.store.operations import resubmit as resubmit_in

    if cascade and all_downstream:
        raise UsageError("give --cascade or --all-downstream, not both")
    found = address()
    store = opened(found)
    chosen = choose(store, found, job, dataids or [], failed, since, until, all_runs, outage, stale, made_by)
    cascade = cascade or (stale and not all_downstream)
    done = resubmit_in(
        store, chosen.keys, only=chosen.only, cascade=cascade, downstream=all_downstream, dry_run=dry_run
    )
    done = [{**one, "why": chosen.why(one)} for one in done]
    if as_json:
        put_json(done)
        return
    for one in done if dry_run else done[:SAID]:
        (put if dry_run else say)(_changed(one))
    if len(done) > SAID and not dry_run:
        say(f"… and {len(done) - SAID} more")
    counts = Counter(
        "that follow if what they read changes" if one["if_changed"]
        else "to run again after this run" if one["again"] else one["status"] for one in done
    )  # fmt: skip
    told = ", ".join(f"{number} {status}" for status, number in counts.items()) or "nothing to do"
    say(f"{'would be: ' if dry_run and done else ''}{told}")
    if cascade and done and not dry_run:
        say("what reads them follows if they come out different")
    elif done and not dry_run and not all_downstream:
        chunks = [
            (*link.dataset[:2], one["dataid"])
            for one in done[:SAID]
            for link in store.get_job(one["jobid"], project=one["project"]).outputs
        ]
        whose = f"{job} {' '.join(dataids)}" if job and dataids else "…"
        if older := warn_of_older_readers(store, chunks, step=f"dataflow resubmit {whose} --cascade"):
            say(older)


def _changed(one: dict[str, Any]) -> str:
    name, because = f"{one['jobid']}/{one['dataid']}", f" ({one['why']})" if one["why"] else ""
    if one["if_changed"]:
        return f"{name}: {one['before']}, runs again if what it reads changes{because}"
    after = "RUNNING, again after this run" if one["again"] else one["status"]
    return f"{name}: {one['before']} → {after}{because}"


def choose(
    store: "LoopStore", found: "Address", job: str | None, dataids: list[str], failed: bool, since: str | None,
    until: str | None, all_runs: bool, outage: str | None, stale: bool = False, made_by: str | None = None,
) -> "Chosen":  # fmt: skip
    """The dataids that these options mean, or raise UsageError; of an outage, its window is said."""
    from opendataflow.operations.selection import choose as choose_in
    from opendataflow.operations.staleness import bring_up_to_date

    if stale:
        bring_up_to_date(store, project=found.project)
    chosen = choose_in(
        store,
        found.project,
        job,
        dataids,
        failed=failed,
        since=since,
        until=until,
        all_runs=all_runs,
        outage=outage,
        stale=stale,
        made_by=made_by,
    )
    if chosen.window:
        say(f"the outage: {chosen.window[0]} to {chosen.window[1]}")
    return chosen


# Holding --------------------------------------------------------------------------------------------------------------
def hold(
    job: JobId,
    dataids: Annotated[list[str] | None, typer.Argument(help="Which dataids; without any: the whole job.")] = None,
    reason: Annotated[str, typer.Option(help="Why, for those who wonder.")] = "",
) -> None:
    """Hold back dataids, or a whole job: nothing of it is claimed until it is released; what runs goes on.

    Examples: dataflow hold load_orders --reason "the feed is wrong";  dataflow hold load_orders 2025-11-12
    """
    from opendataflow.store.operations import hold as hold_in
    from opendataflow.store.operations import hold_job

    found = address()
    store = opened(found)
    of = store.get_job(job, project=found.project)
    if dataids:
        _say_changes(hold_in(store, of, dataids, reason=reason))
        return
    done, by = hold_job(store, of, reason=reason)
    say(f"{job} is {'now ' if done else 'already '}held by {by}; `dataflow release {job}` lets it go on")


def release(
    job: JobId,
    dataids: Annotated[list[str] | None, typer.Argument(help="Which dataids; without any: the whole job.")] = None,
) -> None:
    """Let held dataids, or a held job, go on.

    Examples: dataflow release load_orders;  dataflow release load_orders 2025-11-12
    """
    from opendataflow.store.operations import release as release_in
    from opendataflow.store.operations import release_job

    found = address()
    store = opened(found)
    of = store.get_job(job, project=found.project)
    if dataids:
        _say_changes(release_in(store, of, dataids))
        return
    done, held = release_job(store, of)
    say(f"{job} is released" if done else f"{job} was not held as a whole")
    if held:
        say(f"{held} of its dataids are on HOLD of their own; `dataflow status {job} --status HOLD` lists them")


def _say_changes(done: list[dict[str, Any]]) -> None:
    for one in done:
        same = one["before"] == one["status"]
        change = f"is {one['status']} already" if same else f"{one['before']} → {one['status']}"
        say(f"{one['jobid']}/{one['dataid']}: {change}")


def force(
    ctx: typer.Context,
    job: JobId,
    dataid: Annotated[str, typer.Argument(help="Which dataid.")],
    command: Annotated[list[str] | None, typer.Argument(help="After --: a command instead of the job's own.")] = None,
    as_json: Json = False,
) -> int:
    """Run a dataid now, whatever the five answers are. They are asked and kept, and the run is recorded as forced.

    Only a live run of it, or a live reader of its output, is still in the way. A hold of the dataid ends with it.

    Examples: dataflow force load_orders 2025-11-12;  dataflow force load_orders 2025-11-12 -- ./repair.sh --full
    """
    from opendataflow.execution.guard import Guard

    guard = Guard()  # forked while this process has nothing open
    from opendataflow.execution.session import Session
    from opendataflow.execution.supervise import Signals
    from opendataflow.operations.force import force as force_run
    from opendataflow.operations.force import forced_work
    from opendataflow.scheduling.report import line

    session = Session(guard, Signals(), address(), job, say=say, out_fd=2 if as_json else 1)
    work = forced_work(session, list(command or []) + list(ctx.args))
    outcome = force_run(session, work, dataid, cwd=os.getcwd())
    if as_json:
        put(json.dumps({**outcome._asdict(), "verdict": None, "forced": True}))
    else:
        say(f"{line(outcome)} (forced)")
    session.store.close()
    if guard.child_stays:
        from opendataflow.cli.runs.run import SPARK_END_SECONDS

        guard.let_child_end(SPARK_END_SECONDS)
    guard.close()
    return outcome.exit_code


# Cleaning up ----------------------------------------------------------------------------------------------------------
def delete_run(run: Annotated[int, typer.Argument(help="The run's number.")], yes: Yes = False) -> None:
    """Remove the record of one ended run: its row, and its manifests where no chunk points at them. Nothing else.

    Example: dataflow delete-run 42 --yes
    """
    from opendataflow.store.operations import delete_run as delete_in
    from opendataflow.store.registry import get_run

    store = opened()
    shown = get_run(store, run)
    confirm(f"remove the record of run {run} ({shown['jobid']}/{shown['dataid']}, {shown['status']})", yes=yes)
    done = delete_in(store, run)
    say(f"removed run {run} of {done['jobid']}/{done['dataid']} and {done['manifests']} of its manifests")
    if done["log_path"] and os.path.isfile(done["log_path"]):
        say(f"its log file stays: {done['log_path']}")


@history_app.command("clean")
def clean(
    job: Annotated[str | None, typer.Option("--job", help="Only of this job and what it makes.")] = None,
    days_old: Annotated[float | None, typer.Option(min=0, help="Only what ended at least so many days ago.")] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Delete the records of finished runs and the history of changes; where jobs and chunks stand is never touched.

    Live runs stay, and so does the last run of everything that is FAILED.

    Example: dataflow history clean --days-old 90 --yes
    """
    from opendataflow.store.operations import clean_history, get_project
    from opendataflow.store.rows import utc_text

    found = address()
    store = opened(found)
    project = store.get_job(job, project=found.project).project if job else get_project(store, found.project)
    before = utc_text(store.clock() - days_old * 86_400) if days_old is not None else None

    def go_through(*, only_count: bool) -> str:
        number = [0, 0]
        for batch in clean_history(store, project, jobid=job, before=before, dry_run=only_count):
            number = [number[0] + batch.runs, number[1] + batch.history]
            if not only_count:
                time.sleep(CLEAN_PAUSE_SECONDS)
        return f"{number[0]} runs and {number[1]} changes of {job or project}"

    if dry_run:
        put(f"would delete {go_through(only_count=True)}")
        return
    if not yes:
        confirm(f"delete {go_through(only_count=True)}", yes=False)
    say(f"deleted {go_through(only_count=False)}")


def doctor(as_json: Json = False) -> int:
    """Look at everything a run needs, and say what would fix what is wrong; exit 1 if something is.

    It changes one thing: what others can read of the state, logs and streams is closed to them, and reported.

    Example: dataflow doctor
    """
    from opendataflow.operations.doctor import PROBLEM, examine

    found = [*examine(os.getcwd()), *_spark_drivers()]
    if as_json:
        put_json([one._asdict() for one in found])
    else:
        put_table("", ("check", "", "", "what to do"), [(one.check, one.state, one.told, one.fix) for one in found])
    return 1 if any(one.state == PROBLEM for one in found) else 0


def _spark_drivers() -> "Iterator[Finding]":
    """Whether this user's Spark drivers answer, and how old they are."""
    from opendataflow.cli.workers.spark import format_age
    from opendataflow.operations.doctor import OK, PROBLEM, WARNING, Finding
    from opendataflow.spark.keeper_client import list_keepers

    try:
        found = list(list_keepers())
    except ConfigurationError as error:
        yield Finding("spark driver", PROBLEM, str(error))
        return
    if not found:
        yield Finding("spark driver", OK, "none is running; a pipeline starts one")
    for one in found:
        if "pid" in one:
            age = format_age(one["started_at"])
            yield Finding(
                "spark driver", OK, f"{one['master']}, {one['state']}, {age} old, {one['served']} runs served"
            )
        else:
            told = f"the one in {one['folder']} does not answer"
            yield Finding("spark driver", WARNING, told, "`dataflow spark stop --force`, or end its process")

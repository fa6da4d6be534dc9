"""`dataflow run`: a job by its id, a script or a pipeline."""

import json
import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opendataflow.cli import completion
from opendataflow.cli.render import put, put_now, say
from opendataflow.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from opendataflow.execution.session import Session
    from opendataflow.execution.work import Outcome

SPARK_END_SECONDS = 10.0  # for a warm Spark child to clean up after itself


def add_to(app: typer.Typer) -> None:
    app.command(
        context_settings={"allow_extra_args": True, "ignore_unknown_options": False, "allow_interspersed_args": True}
    )(run)


def run(
    ctx: typer.Context,
    job: Annotated[str, typer.Argument(help="The job's or pipeline's id.", autocompletion=completion.jobs)],
    args: Annotated[list[str] | None, typer.Argument(help="After --: arguments for the script.")] = None,
    dataid: Annotated[str | None, typer.Option(help="This dataid instead of the lowest claimable one.")] = None,
    wait: Annotated[float, typer.Option(help="If nothing can run yet, wait for up to so many seconds.")] = 0.0,
    drain: Annotated[bool, typer.Option("--drain", help="Again and again until nothing can run any more.")] = False,
    slots: Annotated[
        int | None,
        typer.Option("--slots", "--at-once", help="With --drain: so many runs at the same time.", min=1, max=256),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Of one dataid: run it although it is done and nothing has changed.")
    ] = False,
    grace: Annotated[float, typer.Option(help="After SIGTERM, seconds in which what runs may finish.", min=0.0)] = 0.0,
    profile: Annotated[bool, typer.Option("--profile", help="Keep rows and time of each transformation.")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Keep Spark's plan; `dataflow transformations --run` shows it.")
    ] = False,
    stream: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Of a stream pipeline: process the items of this CSV or NDJSON file alone."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --stream: show the result, publish nothing.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object per run on stdout; the job's own output goes to stderr.")
    ] = False,
) -> int:
    """Run a job on the lowest dataid whose inputs are ready, or on the one given; a stream until it is stopped.

    A dataid that is done, and is given or the only one of its job, runs again when its code, its inputs or its output
    changed since.

    Examples: dataflow run load_orders;  dataflow run load_orders --drain -- --batch 1000;
    dataflow run extract --drain --slots 10;  dataflow run clean_flights --drain --slots 4;
    dataflow run leads --stream sample.csv --dry-run
    """
    if wait != wait:  # noqa: PLR0124  NaN would wait for ever
        raise UsageError("--wait nan is not a number of seconds")
    if grace != grace:  # noqa: PLR0124
        raise UsageError("--grace nan is not a number of seconds")
    if drain and dataid is not None:
        raise UsageError("--drain takes every dataid; leave out --dataid")
    if drain and again:
        raise UsageError("--again is for one dataid; `dataflow resubmit` sets many to RESUBMIT")
    if slots is not None and not drain:
        raise UsageError("--slots is for many dataids; give --drain, too")
    if dry_run and stream is None:
        raise UsageError("--dry-run goes with --stream FILE; `dataflow plan JOB` shows what would run")
    if stream is not None and (drain or dataid is not None or slots is not None or args or ctx.args):
        raise UsageError("--stream processes the items of one file; leave out --drain, --dataid, --slots and arguments")
    script_args = list(args or []) + list(ctx.args)
    given = {name: True for name, value in (("profile", profile), ("explain", explain)) if value}
    if slots is not None:
        return _drain_in_slots(job, script_args, asked=given, slots=slots, grace=grace, wait=wait, as_json=as_json)
    if stream is not None:
        return _run_sample(job, stream, dry_run=dry_run, grace=grace, as_json=as_json)
    return run_job(
        job, script_args, asked=given, dataid=dataid, wait=wait, drain=drain, grace=grace, as_json=as_json, again=again
    )


def run_job(
    job: str, script_args: list[str] | None = None, *, asked: dict[str, Any] | None = None, dataid: str | None = None,
    wait: float = 0.0, drain: bool = False, grace: float = 0.0, as_json: bool = False, must_stream: bool = False,
    again: bool = False,
) -> int:  # fmt: skip
    """Run the job in this process and tell of each run; the exit code."""
    session = _open_session(job, grace=grace, as_json=as_json)
    from opendataflow.domain.streams import find_sealed_stream, find_settings, not_a_stream
    from opendataflow.scheduling.report import line, report

    def tell(outcome: "Outcome") -> None:
        if not as_json:
            say(line(outcome))
            return
        fields = outcome._asdict()
        fields["verdict"] = outcome.verdict.as_json() if outcome.verdict else None
        put_now(json.dumps(fields))

    cwd = os.getcwd()
    is_stream = find_settings(session.job) is not None
    if must_stream and not is_stream:
        raise not_a_stream(job)
    if (stream := find_sealed_stream(session.job)) is not None:
        raise UsageError(f"{job} seals the stream {stream}, whose own runner does that: `dataflow stream run {stream}`")
    if is_stream:
        if script_args or asked or dataid is not None:
            raise UsageError(f"{job} is a stream; it takes all items in their order, without arguments or --dataid")
        from opendataflow.streams.run import run_stream

        outcomes = run_stream(session, drain=drain, wait_seconds=wait)
    else:
        definition = session.job.definition if session.job.kind == "pipeline" and drain else {}
        slots = int(str(definition.get("at_once") or 1))
        if slots > 1 or int(str(definition.get("chunks_per_job") or 1)) > 1:
            _close(session)
            return _drain_in_slots(
                job, script_args or [], asked=asked or {}, slots=slots, grace=grace, wait=wait, as_json=as_json,
                each=tell if slots == 1 else None,
            )  # fmt: skip
        if session.job.kind == "pipeline":
            asked = {**(asked or {}), "chunks_per_job": 1}  # one chunk shares no Spark job
        ended = None if drain else _prepare_again(session, dataid, again=again)
        if ended is not None:
            code = report(iter([ended]), say=say, drain=False, each=tell)
            _close(session)
            return code
        work = session.get_work(script_args or [], asked=asked or {})
        if drain:
            outcomes = session.drain(work, wait_seconds=wait, cwd=cwd)
        else:
            outcomes = iter([session.run(work, dataid=dataid, wait_seconds=wait, cwd=cwd)])
    code = report(outcomes, say=say, drain=drain or is_stream, each=tell)
    _close(session)
    return code


def _prepare_again(session: "Session", dataid: str | None, *, again: bool) -> "Outcome | None":
    """What is to be said of a dataid that is done and has no reason to run again; None where there is a run to try."""
    job = session.job
    only = dataid or ("full" if job.partitions == '"none"' else None)
    if only is None:
        if again:
            raise UsageError(f"which dataid of {job.jobid} is to run again? give --dataid")
        return None
    from opendataflow.operations.run_again import prepare_again

    session.tidy()  # sources that are simply there are taken in anew, which may be a reason
    found = prepare_again(session.store, job, only, again=again)
    if found.reasons:
        say(f"{job.jobid}/{only} runs again: {'; '.join(found.reasons)}")
    return found.outcome


def _open_session(job: str, *, grace: float, as_json: bool) -> "Session":
    from opendataflow.execution.processes import end_with_parent

    end_with_parent()
    from opendataflow.execution.guard import Guard

    guard = Guard()  # forked while this process has nothing open
    from opendataflow.execution.session import Session
    from opendataflow.execution.supervise import Signals
    from opendataflow.project.address import get_address

    return Session(
        guard, Signals(grace_seconds=grace), get_address(os.getcwd()), job, say=say, out_fd=2 if as_json else 1
    )


def _close(session: "Session") -> None:
    session.store.close()
    session.runner.close_forked_guard()
    guard = session.runner.guard
    if guard.child_stays:
        guard.let_child_end(SPARK_END_SECONDS)
    guard.close()


def _run_sample(job: str, file: str, *, dry_run: bool, grace: float, as_json: bool) -> int:
    """The items of a file through a stream pipeline, without server, log or offsets."""
    if not os.path.isfile(file):
        raise UsageError(f"there is no file {file}")
    session = _open_session(job, grace=grace, as_json=as_json)
    from opendataflow.domain.streams import event_id, get_settings
    from opendataflow.scheduling.report import line
    from opendataflow.streams.sample import run_sample

    get_settings(session.job)
    done = run_sample(session, file, dry_run=dry_run)
    _close(session)
    if as_json:
        fields = {**done.outcome._asdict(), "verdict": None, "rows": done.rows, "shown": done.shown}
        put(json.dumps({**fields, "failed": [one._asdict() for one in done.failed]}, default=str, ensure_ascii=False))
        return done.outcome.exit_code
    for row in done.shown:
        put(json.dumps(row, default=str, ensure_ascii=False))
    for one in done.failed:
        say(f"{event_id(job, one.offset)} was set aside: {(one.error.splitlines() or [''])[-1]}")
    say(line(done.outcome))
    say(f"{done.rows} rows; nothing was published" if dry_run else f"{done.rows} rows")
    return done.outcome.exit_code


def _drain_in_slots(
    job: str, args: list[str], *, asked: dict[str, Any], slots: int, grace: float, wait: float, as_json: bool,
    each: "Callable[[Outcome], None] | None" = None,
) -> int:  # fmt: skip
    """The loop of a worker, for one job. With `each`, that is all that shows a run."""
    from opendataflow.cli.workers.worker import start_guards, work

    guards, signals = start_guards(slots, grace)
    from opendataflow.cli.opened import address
    from opendataflow.cli.workers.view import Runs, new_view
    from opendataflow.scheduling.worker import Asked

    found = address()
    wanted = Asked(jobs=(job,), once=True, wait_seconds=wait, args=tuple(args), cwd=os.getcwd(), of_pipelines=asked)
    view = new_view(found, as_json=as_json, jobs=(job,)) if each is None else Runs(each)
    return work(guards, signals, found, wanted, view)

"""`dataflow run`: a job by its id, a script or a pipeline."""

import json
import os
from typing import Annotated

import typer

from opendataflow.cli.render import put, say
from opendataflow.errors import UsageError

SPARK_END_SECONDS = 10.0  # for a warm Spark child to clean up after itself


def add_to(app: typer.Typer) -> None:
    app.command(
        context_settings={"allow_extra_args": True, "ignore_unknown_options": False, "allow_interspersed_args": True}
    )(run)


def run(
    ctx: typer.Context,
    job: Annotated[str, typer.Argument(help="The job's or pipeline's id.")],
    args: Annotated[list[str] | None, typer.Argument(help="After --: arguments for the script.")] = None,
    dataid: Annotated[str | None, typer.Option(help="This dataid instead of the lowest claimable one.")] = None,
    wait: Annotated[float, typer.Option(help="If nothing can run yet, wait for up to so many seconds.")] = 0.0,
    drain: Annotated[bool, typer.Option("--drain", help="Again and again until nothing can run any more.")] = False,
    slots: Annotated[
        int | None, typer.Option(help="With --drain: so many runs of a script at the same time.", min=1, max=256)
    ] = None,
    grace: Annotated[float, typer.Option(help="After SIGTERM, seconds in which what runs may finish.", min=0.0)] = 0.0,
    at_once: Annotated[
        int | None, typer.Option(help="Chunks that a pipeline's Spark works on at the same time.", min=1, max=64)
    ] = None,
    profile: Annotated[bool, typer.Option("--profile", help="Keep rows and time of each transformation.")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Keep Spark's plan; `dataflow transformations --run` shows it.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object per run on stdout; the job's own output goes to stderr.")
    ] = False,
) -> int:
    """Run a job on the lowest dataid whose inputs are ready, or on the one given.

    Examples: dataflow run load_orders;  dataflow run load_orders --drain -- --batch 1000;
    dataflow run extract --drain --slots 10;  dataflow run clean_flights --drain --at-once 4
    """
    if wait != wait:  # noqa: PLR0124  NaN would wait for ever
        raise UsageError("--wait nan is not a number of seconds")
    if grace != grace:  # noqa: PLR0124
        raise UsageError("--grace nan is not a number of seconds")
    if drain and dataid is not None:
        raise UsageError("--drain takes every dataid; leave out --dataid")
    if slots is not None and not drain:
        raise UsageError("--slots is for many dataids; give --drain, too")
    script_args = list(args or []) + list(ctx.args)
    if slots is not None:
        if at_once is not None or profile or explain:
            raise UsageError("--slots is for scripts; a pipeline works on several chunks with --at-once")
        return _drain_in_slots(job, script_args, slots=slots, grace=grace, wait=wait, as_json=as_json)
    from opendataflow.runner.processes import end_with_parent

    end_with_parent()
    from opendataflow.runner.guard import Guard

    guard = Guard()  # forked while this process has nothing open
    from opendataflow.project.address import get_address
    from opendataflow.runner.report import line, report
    from opendataflow.runner.runjob import Outcome
    from opendataflow.runner.session import Session
    from opendataflow.runner.supervise import Signals

    signals = Signals(grace_seconds=grace)
    cwd = os.getcwd()
    session = Session(guard, signals, get_address(cwd), job, say=say, out_fd=2 if as_json else 1)
    asked = {"at-once": at_once, "profile": profile or None, "explain": explain or None}
    given = {name.replace("-", "_"): value for name, value in asked.items() if value is not None}
    work = session.get_work(script_args, asked=given)

    def tell(outcome: Outcome) -> None:
        if not as_json:
            say(line(outcome))
            return
        fields = outcome._asdict()
        fields["verdict"] = outcome.verdict.as_json() if outcome.verdict else None
        put(json.dumps(fields))

    if drain:
        outcomes = session.drain(work, wait_seconds=wait, cwd=cwd)
    else:
        outcomes = iter([session.run(work, dataid=dataid, wait_seconds=wait, cwd=cwd)])
    code = report(outcomes, say=say, drain=drain, each=tell)
    session.store.close()
    if guard.child_stays:
        guard.let_child_end(SPARK_END_SECONDS)
    guard.close()
    return code


def _drain_in_slots(job: str, args: list[str], *, slots: int, grace: float, wait: float, as_json: bool) -> int:
    """The loop of a worker, for one job."""
    from opendataflow.cli.worker import start_guards, work

    guards, signals = start_guards(slots, grace)
    from opendataflow.cli.opened import address
    from opendataflow.cli.worker_view import new_view
    from opendataflow.runner.worker import Asked

    found = address()
    asked = Asked(jobs=(job,), once=True, wait_seconds=wait, args=tuple(args), cwd=os.getcwd())
    return work(guards, signals, found, asked, new_view(found.project, as_json=as_json, jobs=(job,)))

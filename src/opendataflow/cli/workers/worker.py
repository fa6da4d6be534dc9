"""`dataflow worker`: a process that stays and runs whatever is ready."""

import os
from typing import TYPE_CHECKING, Annotated

import typer

from opendataflow.errors import UsageError

if TYPE_CHECKING:
    from opendataflow.cli.workers.view import Lines, Runs
    from opendataflow.execution.guard import Guard
    from opendataflow.execution.supervise import Signals
    from opendataflow.project.address import Address
    from opendataflow.scheduling.worker import Asked

MOST_SLOTS = 256


def add_to(app: typer.Typer) -> None:
    app.command()(worker)


def worker(
    jobs: Annotated[str | None, typer.Option(help="Only these jobs, separated by commas.")] = None,
    slots: Annotated[
        int | None, typer.Option(min=1, max=MOST_SLOTS, help="Runs at the same time; as many as processors.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Until nothing can run any more, then exit.")] = False,
    grace: Annotated[float, typer.Option(min=0.0, help="After SIGTERM, seconds in which what runs may finish.")] = 30.0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per event on stdout.")] = False,
) -> int:
    """Run whatever is ready, of all jobs of the project, and go on: until a signal comes.

    Many workers, also on many hosts, share one PostgreSQL store; none runs what another has. Files that arrive, slots
    of clocks and lost runs are looked after. At SIGTERM nothing more is taken, what runs may finish within the grace,
    the rest is handed back; a second signal ends it at once. Streams run beside the slots. Exit 0 when it was told to
    stop and nothing had to be ended; `--once` exits as `run --drain` does.

    Examples: dataflow worker --slots 8;  dataflow worker --jobs extract,load --once;  dataflow worker --json
    """
    if grace != grace:  # noqa: PLR0124  NaN would be no limit at all
        raise UsageError("--grace nan is not a number of seconds")
    wanted = tuple(name.strip() for name in jobs.split(",") if name.strip()) if jobs is not None else ()
    if jobs is not None and not wanted:
        raise UsageError("--jobs names no job; leave it out for all of them")
    guards, signals = start_guards(slots, grace)
    from opendataflow.cli.opened import address
    from opendataflow.cli.workers.view import new_view
    from opendataflow.scheduling.worker import Asked

    found = address()
    view = new_view(found, as_json=as_json, jobs=wanted)
    return work(guards, signals, found, Asked(jobs=wanted, once=once), view)


def start_guards(slots: int | None, grace: float) -> "tuple[list[Guard], Signals]":
    """The guards of so many slots, before anything is opened."""
    from opendataflow.execution.guard import Guard
    from opendataflow.execution.supervise import Signals

    guards = [Guard(apart=True) for _ in range(slots or len(os.sched_getaffinity(0)))]
    return guards, Signals(grace_seconds=grace)


def work(guards: "list[Guard]", signals: "Signals", found: "Address", asked: "Asked", view: "Lines | Runs") -> int:
    """Let a worker run to its end; returns the exit code."""
    from opendataflow.cli.opened import opened
    from opendataflow.scheduling.worker import Worker

    store = opened(found)
    for name in asked.jobs:
        store.get_job(name, project=found.project)  # raises for one that is not registered
    here = Worker(guards, signals, found, store, asked, view)
    try:
        here.run()
        for outcome in here.last:
            if outcome.exit_code or view.tells_rest:
                view.ended((found.project or "", outcome.jobid), outcome)
    finally:
        here.close()
        view.close()
    store.close()
    return here.exit_code

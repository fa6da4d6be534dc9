"""`dataflow tick`: what a scheduler calls."""

import contextlib
import json
from typing import Annotated

import typer

from opendataflow.cli.render import put, put_json, put_now, say
from opendataflow.errors import StoreUnavailable


def add_to(app: typer.Typer) -> None:
    app.command()(tick)


def tick(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what could run now; nothing is run.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object per run on stdout; the jobs' own output goes to stderr.")
    ] = False,
) -> int:
    """Run everything that is due and claimable, once: for cron, systemd or Airflow.

    Arrived files are taken in, slots of clocks are opened, lost runs are recovered; then every job of the project runs
    on the dataids that are ready, producers before consumers. Many ticks at once never run a dataid twice. Exit 0 when
    nothing failed; what waits for its inputs or is paused is no failure. Where all else is well, 11 while a file stands
    that changed after it was READY, and 13 while one stands that was rejected: `dataflow why` names them.

    Example: */5 * * * *  cd /srv/warehouse && dataflow tick
    """
    from opendataflow.execution.guard import Guard

    guard = Guard()  # forked while this process has nothing open
    from opendataflow.alerts.watch import look_once
    from opendataflow.cli.opened import address, opened
    from opendataflow.cli.paused import pause_of_all
    from opendataflow.domain.runs.questions import CODES, Question
    from opendataflow.domain.words import number_of
    from opendataflow.execution.supervise import Signals
    from opendataflow.scheduling.report import line
    from opendataflow.scheduling.tick import make_all_due
    from opendataflow.scheduling.tick import tick as run_tick
    from opendataflow.store.arrivals import list_problems

    found = address()
    store = opened(found)
    if pause := pause_of_all(store):
        say(pause)
    if dry_run:
        able = []
        for project, jobid in make_all_due(store, found, say=say):
            job = store.get_job(jobid, project=project)
            able += [{"jobid": jobid, "dataid": one.dataid} for one in store.list_claimable(job, limit=1000)]
        guard.close()
        if as_json:
            put_json(able)
        else:
            for one in able:
                put(f"{one['jobid']}/{one['dataid']}")
            say(f"{number_of(len(able), 'dataid')} could run now")
        return 0
    signals = Signals()
    code = ran = failed = not_started = 0
    for outcome in run_tick(guard, signals, found, store, say=say, out_fd=2 if as_json else 1):
        ran += outcome.runid is not None
        if outcome.exit_code and outcome.exit_code != 5:
            failed += outcome.runid is not None
            not_started += outcome.runid is None
            code = code or outcome.exit_code
        if as_json:
            fields = outcome._asdict()
            fields.pop("verdict")
            put_now(json.dumps(fields))
        else:
            say(line(outcome))
    standing = []
    with contextlib.suppress(StoreUnavailable):  # what ran, ran; the next one tells
        look_once(store, found)
        standing = list_problems(store, project=found.project)
    store.close()
    guard.close()
    if signals.received is not None:
        return 128 + signals.received
    if not as_json:
        failures = f"{failed} of them failed; see `dataflow why`" if failed else "none failed"
        missing = f"; {number_of(not_started, 'job')} could not be started" if not_started else ""
        say(f"{number_of(ran, 'run')}, {failures}{missing}")
    changed = sum(one.is_change for one in standing)
    for number, told in ((changed, "changed after READY"), (len(standing) - changed, "rejected")):
        if number and not as_json:
            say(f"{number_of(number, 'file')} {told}; see `dataflow why`")
    if code == 0 and standing:
        code = CODES[Question.RIGHT if changed else Question.VALID][1]
    return code

"""One tick: everything that is due and claimable, once, producers before consumers."""

import os
from collections.abc import Callable, Iterator

from opendataflow.arrivals.due import make_due
from opendataflow.domain.dataset import Dataset
from opendataflow.domain.streams import find_sealed_stream, find_settings
from opendataflow.errors import ConfigurationError, SecretError
from opendataflow.execution.guard import Guard
from opendataflow.execution.made_by import record_jobs
from opendataflow.execution.processes import host_identity
from opendataflow.execution.recover import recover_lost_runs, report_kept
from opendataflow.execution.session import Session
from opendataflow.execution.supervise import Signals
from opendataflow.execution.work import Outcome
from opendataflow.execution.zygote import ZygoteFailed
from opendataflow.project.address import Address
from opendataflow.store.claims import LoopStore
from opendataflow.store.on_change import keep_up
from opendataflow.store.status_counts import fold_if_due

EXPAND_SECONDS = 2.0  # for what follows from publishes since the last tick


def make_all_due(store: LoopStore, address: Address, *, say: Callable[[str], None]) -> list[tuple[str, str]]:
    """Recover, wake, open slots, expect: for all jobs of the project. Returns the jobs, producers first."""
    report_kept(address.work, store, say=say)
    recover_lost_runs(store, host=host_identity(), say=say, work=address.work)
    store.wake_parked()
    take_in(store, address.project, say=say)
    jobs = in_order(store, address.project)
    known = [store.get_job(jobid, project=project) for project, jobid in jobs]
    for job in known:
        make_due(store, job)
    fold_if_due(store)
    record_jobs(store, known)
    keep_up(store, seconds=EXPAND_SECONDS)
    return jobs


def take_in(store: LoopStore, project: str | None, *, say: Callable[[str], None]) -> None:
    """Look for files of the datasets that say how theirs arrive (`arrival:`), and for new slots of tables."""
    rows = store.read("datasets_of", {"project": project}, file="registry") if project is not None else []
    marks = ('"arrival"', '"url')
    waited_for = [
        one for one in (Dataset(*row) for row in rows) if any(mark in (one.definition or "") for mark in marks)
    ]
    if not waited_for:
        return
    from opendataflow.arrivals.sources import take_in_datasets

    take_in_datasets(store, waited_for, store.get_place(waited_for[0].project).root, say=say)


def tick(
    guard: Guard, signals: Signals, address: Address, store: LoopStore, *, say: Callable[[str], None], out_fd: int
) -> Iterator[Outcome]:
    """Run what can run, each dataid once; a job that cannot be started is told and the others go on."""
    for project, jobid in make_all_due(store, address, say=say):
        job = store.get_job(jobid, project=project)
        if find_sealed_stream(job) is not None:
            continue  # the stream's own process seals its slots
        if find_settings(job) is None and store.find_claimable(job) is None:
            continue
        if not os.path.isdir(job.home):
            told = f"its folder {job.home} is not on this host; if it comes from git, run `dataflow project sync` here"
            yield Outcome(ConfigurationError.exit_code, "NOT_STARTED", jobid, None, told)
            continue
        if find_settings(job) is not None:
            yield from _run_pipeline(signals, project, jobid, cwd=job.home, say=say)
            if signals.received is not None:
                break
            continue
        try:
            session = Session(
                guard, signals, address._replace(project=project), jobid, say=say, out_fd=out_fd, store=store
            )
            work = session.get_work([])
            if work.forked is not None and work.forked.sharing is not None:
                session.runner.close_forked_guard()
                yield from _run_pipeline(signals, project, jobid, cwd=job.home, say=say)
                continue
        except (ConfigurationError, SecretError) as error:
            yield Outcome(error.exit_code, "NOT_STARTED", jobid, None, str(error))
            continue
        seen: set[str | None] = set()
        while signals.received is None and not session.runner.guard.is_gone:
            try:
                outcome = session.run(work, dataid=None, wait_seconds=0.0, cwd=job.home, go_on=False)
            except ZygoteFailed as error:
                yield Outcome(error.exit_code, "NOT_STARTED", jobid, None, str(error))
                break
            if outcome.runid is None:
                break
            yield outcome
            if outcome.dataid in seen or outcome.exit_code in (5, 75):
                break
            seen.add(outcome.dataid)
        session.runner.close_forked_guard()
        if signals.received is not None:
            break


def _run_pipeline(
    signals: Signals, project: str, jobid: str, *, cwd: str, say: Callable[[str], None]
) -> Iterator[Outcome]:
    """What a tick's own loop is not for, in a process that ends when nothing more is to be done: a stream, and chunks
    that share Spark jobs."""
    import json
    import subprocess
    import sys

    argv = [sys.executable, "-P", "-m", "opendataflow.cli.main", "run", jobid, "--drain", "--json"]
    env = {**os.environ, "DATAFLOW_PROJECT": project}
    with subprocess.Popen(argv, cwd=cwd, env=env, stdout=subprocess.PIPE, text=True) as runner:
        told = ""
        while True:
            try:
                told = runner.communicate(timeout=0.5)[0]
                break
            except subprocess.TimeoutExpired:
                if signals.received is not None:
                    runner.send_signal(signals.received)
        outcomes = [json.loads(line) for line in told.split("\n") if line]
        if runner.returncode and not outcomes:
            say(f"{jobid} could not be run; its exit code was {runner.returncode}")
            yield Outcome(runner.returncode, "NOT_STARTED", jobid, None, "see above")
    for fields in outcomes:
        if fields["runid"] is not None:
            yield Outcome(**{**fields, "verdict": None})


def in_order(store: LoopStore, project: str | None) -> list[tuple[str, str]]:
    """All jobs, each after those that make what it reads."""
    made_by: dict[tuple[str, str], tuple[str, str]] = {}
    reads: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for owner, jobid, itemtype, dataset_project, datasetid in store.read(
        "all_links", {"project": project}, file="overview"
    ):
        if itemtype == "OUT":
            made_by[dataset_project, datasetid] = (owner, jobid)
        else:
            reads.setdefault((owner, jobid), []).append((dataset_project, datasetid))
    import graphlib

    order = graphlib.TopologicalSorter[tuple[str, str]]()
    known = {(row[0], row[1]) for row in store.read("all_jobs", {"project": project}, file="overview")}
    for job in sorted(known):
        order.add(job, *(made_by[key] for key in reads.get(job, []) if made_by.get(key) in known))
    return list(order.static_order())

"""A person runs a job's dataid against the answers: they are asked and kept, and only a live run or reader stops it."""

import os
import shutil
import time

from opendataflow.domain.chunk import ChunkStatus
from opendataflow.domain.job import Candidate
from opendataflow.errors import ConfigurationError, UsageError
from opendataflow.execution.pipeline import pipeline_work
from opendataflow.execution.prepare import check_foreign, prepare
from opendataflow.execution.script import script_work
from opendataflow.execution.session import Session, get_script
from opendataflow.execution.work import Outcome, Taken, Work
from opendataflow.store.operations import locked, make_claimable

TRIES = 10  # inputs may change between a look and the claim


def forced_work(session: Session, command: list[str]) -> Work:
    """The command as the job's work; without one, what the job itself runs. Found missing before anything is taken."""
    job = session.job
    if command:
        program = shutil.which(command[0])
        if program is None:
            raise UsageError(f"there is no command {command[0]!r} that can be run here")
        return script_work(job, os.path.abspath(program), command[1:], store=session.store, say=session.say)
    if job.kind == "pipeline":
        return pipeline_work(job, session.address.work, store=session.store, say=session.say)
    if job.script is None:
        raise ConfigurationError(f"job {job.jobid} names no script; give a command: `dataflow force … -- command`")
    script = get_script(os.path.join(job.home, job.script))
    return script_work(job, script, [], store=session.store, say=session.say)


def force(session: Session, work: Work, dataid: str, *, cwd: str) -> Outcome:
    """Run the dataid now, whatever the five answers are; they are recorded with the run, and so is that it was forced.

    Raises Refused while it runs or its output is read, and for a dataid that its data cannot have. Inputs that are
    READY are locked as always.
    """
    store, job, runner = session.store, session.job, session.runner
    session.tidy()
    if store.find_candidate(job, dataid) is None:
        store.expect_one(job, dataid)
    found = _candidate(session, dataid)
    check_foreign(job, found)
    verdict = prepare(job, found)  # as things were before we touched anything
    for _ in range(TRIES):
        make_claimable(store, job, dataid)
        candidate = _candidate(session, dataid)
        ready = tuple(chunk for chunk in candidate.inputs if chunk.status is ChunkStatus.READY)
        lease_from = time.monotonic()
        unlimited = job._replace(concurrency=None)
        claim = store.claim(unlimited, candidate._replace(inputs=ready), verdict, runner.owner, forced=True)
        if claim is not None:
            # The run is told of all its inputs, also of those that are not READY or have changed: the person knows why.
            given = tuple(chunk._replace(fingerprint=None) for chunk in candidate.inputs)
            return session.run_claimed(work, Taken(candidate._replace(inputs=given), claim, lease_from), cwd=cwd)
    raise locked(f"{job.jobid}/{dataid} could not be claimed; see `dataflow why {job.jobid} {dataid}`")


def _candidate(session: Session, dataid: str) -> Candidate:
    found = session.store.find_candidate(session.job, dataid)
    if found is None:
        raise UsageError(f"{session.job.jobid} has no dataid {dataid!r}; see `dataflow status {session.job.jobid}`")
    return found

"""Slots of a stream that are over become one chunk of its destination each: what batch pipelines read.

A slot is over when no item can be accepted in it any more and all that were are published. Should a clock have gone
wrong and an item come later all the same, its slot is sealed again.
"""

import time
from collections.abc import Iterator

from opendataflow.domain.chunk import Manifest
from opendataflow.domain.job import Job, JobStatus
from opendataflow.domain.run import Ending, Result
from opendataflow.domain.streams import batch_range, get_settings, only_records, slot_of_moment
from opendataflow.domain.tables import table_location
from opendataflow.intake.entry import moment
from opendataflow.runner.runjob import Outcome, Taken
from opendataflow.runner.stream_work import OnTheChild, SealWork
from opendataflow.store import streams

MARGIN_SECONDS = 5.0  # by which the clock of whoever accepts items may be behind ours


class Sealer:
    """Seals the slots of one stream, on the child that runs it."""

    def __init__(self, child: OnTheChild) -> None:
        self._child, session = child, child.session
        self._session, self._job, self._store = session, session.job, session.store
        self._settings = get_settings(session.job)
        self._seal: Job = session.store.get_job(self._settings.seal_job, project=session.job.project)
        self._work = SealWork(
            self._seal, session.address.work, store=session.store, say=session.say,
            secrets=tuple(session.passwords.values()),
        ).work()  # fmt: skip
        self._late: set[str] = set()

    def published(self, dataid: str, outcome: Outcome) -> None:
        """A batch is published: if its slot was sealed before, that is done again."""
        if outcome.status != "COMPLETE":
            return
        slot = next((slot for one, slot in streams.batches_since(self._store, self._job, batch_range(dataid)[0])
                     if one == dataid), None)  # fmt: skip
        if slot is not None and slot < self._over(None):
            self._late.add(slot)

    def _over(self, oldest: float | None) -> str:
        """The slot that is not over: of the oldest item that is not published, or of now."""
        now = time.time() - MARGIN_SECONDS
        return slot_of_moment(moment(now if oldest is None else min(oldest, now)), self._settings.seal)

    def seal_what_is_over(self, oldest: float | None) -> Iterator[Outcome]:
        """Seal the slots before that of the oldest item that is not published; `oldest` is when it was accepted."""
        upto = self._over(oldest)
        self._seal_late_ones_again()
        due = streams.due_slots(self._store, self._job, upto=upto)
        for slot in due:
            streams.expect_seal(self._store, self._seal, slot)
        is_whole = True
        while is_whole and (found := self._store.find_claimable(self._seal)) is not None:
            taken = self._session.runner.take(self._seal, found.dataid)
            if not isinstance(taken, Taken):
                break
            if only_records(self._seal):
                outcome = self._record(taken)
            else:
                outcome = self._child.run(self._seal, self._work, taken)
            is_whole = outcome.status == "COMPLETE"
            yield outcome
        if due and is_whole:
            streams.set_sealed_to(self._store, self._job, upto)

    def _seal_late_ones_again(self) -> None:
        from opendataflow.store.operations import Key, resubmit

        late, self._late = self._late, set()
        for slot in late:
            if self._store.find_candidate(self._seal, slot) is not None:
                key = Key(self._seal.project, self._seal.jobid, slot)
                resubmit(self._store, [key], only=frozenset({JobStatus.COMPLETE, JobStatus.FAILED}))
                self._store.recount(self._seal, slot)

    def _record(self, taken: Taken) -> Outcome:
        """The rows are in the table since their batches were published: only that the slot is whole is new."""
        claim, (output,) = taken.claim, self._seal.outputs
        rows = streams.sealed_rows(self._store, self._job, claim.dataid)
        place = table_location(output.dataset, claim.dataid, root=self._seal.root)
        manifest = Manifest(location=place, rows=rows, fingerprint=f"run {claim.runid}: {rows} rows")
        result = Result(Ending.COMPLETE, 0, manifests=((output.dataset.project, output.dataset.datasetid, manifest),))
        finished = self._store.finish(claim, result)
        return Outcome(0, str(finished.status), claim.jobid, claim.dataid, "", claim.runid)

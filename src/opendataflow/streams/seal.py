"""Slots of a stream that are over become one chunk of its destination each: what batch pipelines read.

A slot is over when no item can be accepted in it any more and all that were are published. Should a clock be behind and
an item be accepted in a slot that was sealed, it goes into the one that is open: what was sealed stays as it is.
"""

import time
from collections.abc import Iterator

from opendataflow.domain.chunk import Manifest
from opendataflow.domain.job import Job, JobStatus
from opendataflow.domain.runs.run import Ending, Result
from opendataflow.domain.streams import batch_range, get_settings, only_records, slot_end, slot_of_moment
from opendataflow.domain.tables import table_location
from opendataflow.execution.work import Outcome, Taken
from opendataflow.intake.entry import moment
from opendataflow.store.records import streams
from opendataflow.streams.child import StreamChild
from opendataflow.streams.work import SealWork

MARGIN_SECONDS = 5.0  # by which the clock of whoever accepts items may be behind ours


class Sealer:
    """Seals the slots of one stream, on the child that runs it."""

    def __init__(self, child: StreamChild) -> None:
        self._child, session = child, child.session
        self._session, self._job, self._store = session, session.job, session.store
        self._settings = get_settings(session.job)
        self._seal: Job = session.store.get_job(self._settings.seal_job, project=session.job.project)
        self._work = SealWork(
            self._seal, session.address.work, store=session.store, say=session.say,
            secrets=tuple(session.passwords.values()),
        ).work()  # fmt: skip
        stream = streams.get_stream(session.store, session.job.jobid, project=session.job.project)
        self._sealed_to = stream.sealed_to or ""

    def slot_for(self, at: str) -> str:
        """In which slot a new batch is sealed whose items were accepted then: theirs, or the next that is open."""
        slot = max(slot_of_moment(one, self._settings.seal) for one in (at, self._sealed_to))
        begun = set(streams.slots_begun(self._store, self._seal, slot))
        while slot in begun:
            slot = slot_of_moment(slot_end(slot), self._settings.seal)
        return slot

    def reopen(self, dataid: str) -> None:
        """A batch is to be made again: so is the slot that it is sealed in, and consumers wait for that."""
        from opendataflow.store.operations import Key, resubmit

        batches = streams.batches_since(self._store, self._job, batch_range(dataid)[0])
        for slot in {slot for one, slot in batches if one == dataid}:
            if slot in streams.slots_begun(self._store, self._seal, slot):
                key = Key(self._seal.project, self._seal.jobid, slot)
                resubmit(self._store, [key], only=frozenset({JobStatus.COMPLETE, JobStatus.FAILED}))
                self._store.recount(self._seal, slot)

    def _over(self, oldest: float | None) -> str:
        """The slot that is not over: of the oldest item that is not published, or of now."""
        now = time.time() - MARGIN_SECONDS
        return slot_of_moment(moment(now if oldest is None else min(oldest, now)), self._settings.seal)

    def seal_what_is_over(self, oldest: float | None) -> Iterator[Outcome]:
        """Seal the slots before that of the oldest item that is not published; `oldest` is when it was accepted."""
        upto = self._over(oldest)
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
            self._sealed_to = max(self._sealed_to, upto)

    def _record(self, taken: Taken) -> Outcome:
        """The rows are in the table since their batches were published: only that the slot is whole is new."""
        claim, (output,) = taken.claim, self._seal.outputs
        rows = streams.sealed_rows(self._store, self._job, claim.dataid)
        place = table_location(output.dataset, claim.dataid, root=self._seal.root)
        manifest = Manifest(location=place, rows=rows, fingerprint=f"run {claim.runid}: {rows} rows")
        result = Result(Ending.COMPLETE, 0, manifests=((output.dataset.project, output.dataset.datasetid, manifest),))
        finished = self._store.finish(claim, result)
        return Outcome(0, str(finished.status), claim.jobid, claim.dataid, "", claim.runid)

"""The claim-to-publish loop over named statements: each verb is exactly one transaction.

SQLite runs these verbs as they stand. PostgreSQL replaces the hot ones by functions that do the same steps in one
round trip; the conformance suite runs over both.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from opendataflow.domain.chunk import ChunkStatus
from opendataflow.domain.dataset import Dataset
from opendataflow.domain.job import Candidate, Job, JobStatus
from opendataflow.domain.runs.ending import decide_end
from opendataflow.domain.runs.questions import Verdict
from opendataflow.domain.runs.run import Claim, Ending, Finished, LostRun, Owner, Result, RunStatus
from opendataflow.errors import LeaseLost
from opendataflow.store.base import BaseStore, Transaction
from opendataflow.store.rows import (
    Params,
    Row,
    claim_key,
    inputs_json,
    key_params,
    lease_lost,
    manifest_params,
    new_candidate,
    new_claim,
    new_gates,
    verdict_json,
)

__all__ = ["LoopStore", "Next", "Transaction", "recount_in"]
PARK_SECONDS = 30.0
PARK_SECONDS_MAX = 3600.0


class Next(NamedTuple):
    """A dataid to claim: asked and found good."""

    job: Job
    candidate: Candidate
    verdict: Verdict
    owner: Owner
    forced: bool = False  # a person takes it against the answers; the inputs that are READY are still locked


class LoopStore(BaseStore):
    """What a runner needs of a store. Subclasses bring the connection and, where it pays, faster verbs."""

    # Expecting ------------------------------------------------------------------------------------------------
    def expect(self, job: Job, dataids: Iterable[str]) -> None:
        """Give every expected dataid its row; rows that are there stay as they are."""
        last = None
        with self.transaction() as tx:
            if job.mapped:
                tx.run("freeze_chunks", {})
            for dataid in dataids:
                if tx.run("expect", {"project": job.project, "jobid": job.jobid, "dataid": dataid}) and job.mapped:
                    self._map_in(tx, job, dataid)
                last = dataid
            if last is not None:
                tx.run("set_expected_upto", {"project": job.project, "jobid": job.jobid, "dataid": last})

    def expect_one(self, job: Job, dataid: str) -> None:
        """Give one dataid its row, whether it is expected by now or not; it must fit the job's scheme."""
        from opendataflow.domain.partitions.scheme import check_dataid

        check_dataid(job.jobid, job.partitions, dataid)
        with self.transaction() as tx:
            if job.mapped:
                tx.run("freeze_chunks", {})
            if tx.run("expect", {"project": job.project, "jobid": job.jobid, "dataid": dataid}) and job.mapped:
                self._map_in(tx, job, dataid)

    # Inputs by offset, window, rollup or all ---------------------------------------------------------------------
    def map_new(self, job: Job, *, limit: int = 1000) -> None:
        """Write down what new dataids of the job read, where that is not the same dataid; count what is missing."""
        of_job = {"project": job.project, "jobid": job.jobid}
        while job.mapped and (rows := self.read("unmapped", {**of_job, "limit": limit})):
            with self.transaction() as tx:
                tx.run("freeze_chunks", {})
                for (dataid,) in rows:
                    self._map_in(tx, job, dataid)
        lowest = self.read("lowest_open", of_job) if any(link.map == "all" for link in job.mapped) else []
        for (dataid,) in lowest:
            from opendataflow.store.mapping import has_grown

            if dataid is not None and has_grown(self, job, dataid):
                self.recount(job, dataid)

    def _map_in(self, tx: Transaction, job: Job, dataid: str) -> None:
        from opendataflow.store.mapping import map_in  # most jobs need none of it

        map_in(self, tx, job, dataid)

    # Clocks ---------------------------------------------------------------------------------------------------
    def latest_slot(self, dataset: Dataset) -> str | None:
        of_dataset = {"project": dataset.project, "datasetid": dataset.datasetid}
        return self.read("latest_slot", of_dataset)[0][0]  # type: ignore[no-any-return]

    def open_slots(self, dataset: Dataset, names: Iterable[str]) -> int:
        """Declare slots of a clock READY; those that are there stay as they are. Returns how many are new."""
        with self.transaction() as tx:
            tx.run("freeze_chunks", {})
            return self.open_slots_in(tx, dataset, names)

    def open_slots_in(self, tx: Transaction, dataset: Dataset, names: Iterable[str]) -> int:
        """As `open_slots`, in a transaction in which no chunk moves."""
        of_dataset = {"project": dataset.project, "datasetid": dataset.datasetid}
        opened = 0
        readers = tx.rows("readers_of_clock", of_dataset)
        for name in names:
            row = {**of_dataset, "clock": dataset.clock, "dataid": name, "now": self.time()}
            if not tx.run("open_slot", row):
                continue
            opened += 1
            for project, jobid in readers:  # other inputs may have been there before the slot began
                tx.run("recount", {"project": project, "jobid": jobid, "dataid": name})
        return opened

    def skip_missed(self, job: Job, latest: str) -> int:
        """For a job that catches up with the latest slot only: forget the earlier ones that were never begun."""
        with self.transaction() as tx:
            return tx.run("skip_missed", {"project": job.project, "jobid": job.jobid, "dataid": latest})

    # Finding work ---------------------------------------------------------------------------------------------
    def wake_parked(self) -> None:
        """Let parked dataids be tried again, and failed ones with attempts left, once their time has come."""
        now = self.time()
        if self.read("parked_due", {"now": now}):
            with self.transaction() as tx:
                tx.run("unpark", {"now": now})

    def find_claimable(self, job: Job, *, offset: int = 0) -> Candidate | None:
        """The lowest dataid that could be claimed now (or the one `offset` places after it)."""
        return _first(self.list_claimable(job, limit=1, offset=offset))

    def list_claimable(self, job: Job, *, limit: int, offset: int = 0, ending: int = 0) -> list[Candidate]:
        """The lowest dataids that could be claimed now, in order: none while the job is paused or its limits are full.

        `ending`: how many live runs of the job the caller ends before it claims.
        """
        return self._find_candidates("next_claimable", job, {"limit": limit, "offset": offset, "ending": ending})

    def list_claimable_all(
        self, jobs: Sequence[Job], per_job: int, *, ending: Mapping[tuple[str, str], int] | None = None
    ) -> dict[tuple[str, str], list[Candidate]]:
        """The lowest claimable dataids of many jobs, by project and job; jobs without any are left out.

        Of no job more than its limits leave room for, once those runs of it have ended that the caller is `ending`.
        """
        found = {}
        for job in jobs:
            key = (job.project, job.jobid)
            ends = (ending or {}).get(key, 0)
            rooms = self.read("room_of", {"project": job.project, "jobid": job.jobid})
            limit = min(per_job, rooms[0][0] + ends) if rooms else 0
            if limit > 0 and (candidates := self.list_claimable(job, limit=limit, ending=ends)):
                found[key] = candidates
        return found

    def find_candidate(self, job: Job, dataid: str) -> Candidate | None:
        """The dataid as it stands, or None when it has no row."""
        return _first(self._find_candidates("get_candidate", job, {"dataid": dataid}))

    def find_blocked(self, job: Job, *, count_running: bool) -> Candidate | None:
        """The lowest dataid that waits for something; one that runs counts as blocked if asked to."""
        return _first(self._find_candidates("lowest_blocked", job, {"count_running": count_running}))

    def find_failed(self, job: Job) -> Candidate | None:
        return _first(self._find_candidates("lowest_failed", job, {}))

    def _find_candidates(self, name: str, job: Job, extra: Params) -> list[Candidate]:
        of_job = {"project": job.project, "jobid": job.jobid, "now": self.time()}
        rows = self.read(name, {**of_job, **extra})
        if not rows:
            return []
        # What can be claimed belongs to a job that is not paused and has room under its limits; the claim looks again.
        pauses, limits = new_gates(self.read("gates_of", of_job)) if name != "next_claimable" else ((), None)
        earlier = self.read("lowest_open", of_job)[0][0] if job.strict else None
        return [
            new_candidate(
                job, row, self._facts(job, row, {**of_job, "dataid": row[0]}), whole_location=self.whole_location,
                pauses=pauses, limits=limits, earlier=earlier,
            )
            for row in rows
        ]  # fmt: skip

    def _facts(self, job: Job, _row: Row, of_dataid: Params) -> list[Row]:
        """The rows of a candidate's input and output chunks."""
        found = self.read("facts_of", of_dataid)
        return found + self.read("mapped_facts_of", of_dataid) if job.mapped else found

    # Claiming -------------------------------------------------------------------------------------------------
    def claim(
        self, job: Job, candidate: Candidate, verdict: Verdict, owner: Owner, *, forced: bool = False
    ) -> Claim | None:
        """Take the dataid with its answers, outputs exclusive and inputs shared; None when anything moved since."""
        with self.transaction() as tx:
            return self._claim_in(tx, Next(job, candidate, verdict, owner, forced))

    def _claim_in(self, tx: Transaction, wanted: "Next", now: Any = None) -> Claim | None:
        job, candidate, verdict, owner, forced = wanted
        key = {"project": job.project, "jobid": job.jobid, "dataid": candidate.dataid}
        now = now or self.time()
        if job.strict and not forced and tx.rows("lowest_open", key)[0][0] != candidate.dataid:
            return None
        for chunk in candidate.inputs:
            if not tx.rows("is_input_unchanged", {**key_params(chunk.key), "version": chunk.version}):
                return None
        for output in candidate.outputs:
            if tx.rows("is_output_read", key_params(output.key)):
                return None
        runid = tx.next_token()
        attempt, deaths = candidate.attempts + 1, candidate.deaths
        # One set of values for both statements. Plain int and str: a bool or an enum goes the long way into SQLite.
        values = {
            **key, "runid": runid, "now": now, "lease_until": self.time(job.lease_seconds), "forced": int(forced),
            "attempts": candidate.attempts, "deaths": deaths, "attempt": attempt, "owner": owner.name,
            "host": owner.host, "pid": owner.pid, "pid_started": owner.pid_started, "guard_pid": owner.guard_pid,
            "guard_started": owner.guard_started, "answers": verdict_json(verdict),
            "inputs": inputs_json(candidate),
        }  # fmt: skip
        if not tx.run("take", values):
            return None
        tx.run("insert_run", values)
        for output in candidate.outputs:
            tx.run("lock_output", {**key_params(output.key), "jobid": job.jobid, "now": now})
        for chunk in candidate.inputs:
            tx.run("lock_input", {**key_params(chunk.key), "reader": str(runid), "jobid": job.jobid, "now": now})
        return new_claim(job, candidate, runid, attempt, deaths)

    def refuse(self, job: Job, dataid: str, verdict: Verdict, *, park: bool) -> None:
        """Keep the answers of a refusal; parked, the dataid is tried again after a growing pause."""
        key = {"project": job.project, "jobid": job.jobid, "dataid": dataid}
        refusal = verdict_json(verdict)
        rows = self.read("refusals_of", key)
        if not rows or (rows[0][1] == refusal and not park):
            return  # said before: a runner that waits does not write the same again and again
        pause = min(PARK_SECONDS * 2 ** min(rows[0][0], 10), PARK_SECONDS_MAX)
        with self.transaction() as tx:
            tx.run(
                "refuse",
                {**key, "refusal": refusal, "now": self.time(), "parked_until": self.time(pause) if park else None},
            )

    def renew(self, claim: Claim, *, log_path: str | None = None, log_tail: str | None = None) -> None:
        """Extend the lease and keep the log's tail, or raise LeaseLost."""
        with self.transaction() as tx:
            lost = self._renew_in(tx, claim, log_path, log_tail)
        if lost is not None:
            raise lost

    def renew_many(self, beats: Sequence[tuple[Claim, str | None, str | None]]) -> list[LeaseLost | None]:
        """As `renew` for many claims with their logs' paths and tails (None: as it was), in one transaction.

        Those that have lost their lease are told so in their place; the others are renewed.
        """
        with self.transaction() as tx:
            return [self._renew_in(tx, *beat) for beat in beats]

    def _renew_in(self, tx: Transaction, claim: Claim, log_path: str | None, log_tail: str | None) -> LeaseLost | None:
        if not tx.run("renew", {**claim_key(claim), "lease_until": self.time(claim.lease_seconds)}):
            return lease_lost(claim)
        if log_tail is not None:
            tx.run("save_tail", {"runid": claim.runid, "log_tail": log_tail, "log_path": log_path})
        return None

    # Ending ---------------------------------------------------------------------------------------------------
    def finish(self, claim: Claim, result: Result) -> Finished:
        """End the run: outputs, job, locks and record in one transaction, or raise LeaseLost and change nothing.

        Asked again about a run that it has already ended (an answer lost on the way), it says so once more.
        """
        with self.transaction() as tx:
            return self._finish_in(tx, claim, result)

    def finish_and_claim(self, claim: Claim, result: Result, wanted: "Next") -> tuple[Finished, Claim | None]:
        """End the run as `finish` does and take the next dataid as `claim` does, in one transaction.

        Draining many small chunks is bound by commits; this halves them.
        """
        with self.transaction() as tx:
            now = self.time()
            return self._finish_in(tx, claim, result, now), self._claim_in(tx, wanted, now)

    def finish_and_claim_many(
        self, ends: Sequence[tuple[Claim, Result]], wanted: Sequence["Next"]
    ) -> tuple[list[Finished | LeaseLost], list[Claim | None]]:
        """Ends as `finish` and claims as `claim` make them, all in one transaction; either may be empty.

        Each is exact by itself: a run that had lost its lease changes nothing and is told as LeaseLost in its place,
        a dataid that moved as None, and the others are as if it had not been there.
        """
        with self.transaction() as tx:
            now = self.time()
            ended = [self._end_in(tx, claim, result, now) for claim, result in ends]
            return ended, [self._claim_in(tx, one, now) for one in wanted]

    def _end_in(self, tx: Transaction, claim: Claim, result: Result, now: Any) -> Finished | LeaseLost:
        try:
            return self._finish_in(tx, claim, result, now)
        except LeaseLost as lost:  # raised before anything is changed
            return lost

    def _finish_in(self, tx: Transaction, claim: Claim, result: Result, now: Any = None) -> Finished:
        key, result = claim_key(claim), self.stored_result(result)
        now = now or self.time()
        for again in (0, 1):
            end = decide_end(claim, result.ending, again=bool(again))
            ended_now = tx.run(
                "end_job",
                {**key, "status": end.status.value, "attempts": end.attempts, "deaths": end.deaths, "now": now,
                 "again": again, "parked_until": self.time(end.retry_in) if end.retry_in is not None else None},
            )  # fmt: skip
            if ended_now:
                break
        else:
            ended = tx.rows("run_status", {"runid": claim.runid})
            if ended and ended[0][0] not in (RunStatus.RUNNING, RunStatus.LOST):
                return Finished(ended[0][0], "recorded before")
            raise lease_lost(claim)
        if result.ending is Ending.COMPLETE:
            chunk = ChunkStatus.READY if end.status is JobStatus.COMPLETE else ChunkStatus.RESUBMIT
            for project, datasetid, manifest in result.manifests:
                written = manifest_params(manifest, now) | {
                    "project": project, "datasetid": datasetid, "dataid": claim.dataid, "status": chunk.value,
                    "runid": claim.runid, "version": claim.runid,
                }  # fmt: skip
                tx.run("publish_chunk", written)
                if manifest.location is not None:  # data without a place has nothing to list
                    tx.run("insert_manifest", written)
        elif end.status is JobStatus.FAILED:
            tx.run("fail_outputs", {**key, "now": now})
        for chunk_key in claim.inputs:
            tx.run("release_input", {**key_params(chunk_key), "reader": str(claim.runid)})
        tx.run(
            "end_run",
            {"runid": claim.runid, "status": end.run_status.value, "now": now, "exit_code": result.exit_code,
             "message": end.explain(result.message), "log_path": result.log_path, "log_tail": result.log_tail,
             "code": result.code, "checks": result.checks},
        )  # fmt: skip
        return Finished(end.status, end.note)

    # Recovering -----------------------------------------------------------------------------------------------
    def suspects(self, host: str) -> list[tuple[LostRun, bool, Owner]]:
        """Live claims that ran out, and all of this host: the run, whether it ran out, and who held it."""
        return [
            (LostRun(runid, project, jobid, dataid, owner, at), bool(expired), Owner(owner, at, *pids))
            for runid, project, jobid, dataid, owner, at, expired, *pids in self.read(
                "suspects", {"now": self.time(), "host": host}
            )
        ]

    def recover(self, lost: LostRun, *, host: str, note: str) -> bool:
        """Return a lost run's work to RESUBMIT, no attempt used; False when it was renewed or ended meanwhile."""
        key = {"project": lost.project, "jobid": lost.jobid, "dataid": lost.dataid}
        now = self.time()
        with self.transaction() as tx:
            if not tx.run("lose", {**key, "runid": lost.runid, "now": now, "host": host}):
                return False
            for project, datasetid, dataid, *_ in json.loads(tx.rows("inputs_read", {"runid": lost.runid})[0][0]):
                chunk = {"project": project, "datasetid": datasetid, "dataid": dataid}
                tx.run("release_input", {**chunk, "reader": str(lost.runid)})
            tx.run(
                "end_run",
                {"runid": lost.runid, "status": RunStatus.LOST, "now": now, "exit_code": None, "message": note,
                 "log_path": None, "log_tail": "", "code": None, "checks": None},
            )  # fmt: skip
        return True

    def recount(self, job: Job, dataid: str | None = None) -> None:
        """Set the counters of a job (of one dataid) to what the chunks say: the sweep behind the counters."""
        key = {"project": job.project, "jobid": job.jobid}
        with self.transaction() as tx:
            tx.run("freeze_chunks", {})
            if job.mapped and dataid is not None:
                self._map_in(tx, job, dataid)
            recount_in(tx, key, dataid)


def recount_in(tx: Transaction, key: Params, dataid: str | None) -> None:
    tx.run("recount_shared", key)
    tx.run("recount", {**key, "dataid": dataid})


def _first(found: list[Candidate]) -> Candidate | None:
    return found[0] if found else None

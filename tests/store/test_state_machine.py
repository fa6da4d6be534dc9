"""Anything in any order, by hand and by runners, against a model: nothing lost, nothing twice, never two owners.

Topology: a, b (by hand) and f (by hand, shared by every dataid) → make → m → use → z, over three dataids.
DATAFLOW_HYPOTHESIS=long runs it for longer.
"""

import itertools
import os
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from world import NO_PATH, YES, World, job, owner

from opendataflow.domain.partitions.scheme import natural_key
from opendataflow.domain.runs.run import Claim, Ending
from opendataflow.errors import LeaseLost

LONG = os.environ.get("DATAFLOW_HYPOTHESIS") == "long"
PROFILE = settings(
    max_examples=400 if LONG else 25,
    stateful_step_count=80 if LONG else 30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    # Shrinking takes minutes on a real database; the long run does it.
    phases=[phase for phase in Phase if LONG or phase not in (Phase.shrink, Phase.explain)],
    print_blob=True,
)
DATAIDS = ("9", "10", "100")
RETRIES = 1
LEASE, BACKOFF, A_LONG_TIME = 1000.0, 500.0, 5000.0
READS = {"make": ("a", "b"), "use": ("m",)}
MAKES = {"make": "m", "use": "z"}
PRODUCER = {made: by for by, made in MAKES.items()}
dataids, jobs, owners = st.sampled_from(DATAIDS), st.sampled_from(["make", "use"]), st.sampled_from(["anna", "bert"])


@dataclass
class Row:
    """A job on a dataid as it should be."""

    status: str = "PENDING"
    again: bool = False
    attempts: int = 0
    deaths: int = 0
    parked: bool = False
    run: int | None = None
    seen: list[str] = field(default_factory=list)

    def to(self, status: str) -> None:
        if status != self.status:
            self.status = status
            self.seen.append(status)


class Model:
    """What the rules say, written down a second time."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], Row] = {}
        self.chunks: dict[tuple[str, str], str] = {}
        self.told: dict[tuple[str, str], list[str]] = {}
        self.live: dict[int, Claim] = {}
        self.ended: dict[int, str] = {}
        self.published: set[tuple[str, str, int]] = set()
        self.expired: set[int] = set()
        self.due: set[tuple[str, str]] = set()

    def row(self, jobid: str, dataid: str) -> Row:
        return self.rows.setdefault((jobid, dataid), Row())

    def set_chunk(self, dataset: str, dataid: str, status: str) -> None:
        if self.chunks.get((dataset, dataid)) != status:
            self.told.setdefault((dataset, dataid), []).append(status)
        self.chunks[dataset, dataid] = status
        if status == "READY":
            for jobid, inputs in READS.items():
                if dataset in inputs:
                    self.row(jobid, dataid)

    def waiting(self, jobid: str, dataid: str) -> int:
        return sum(self.chunks.get((dataset, dataid)) != "READY" for dataset in READS[jobid])

    def is_read(self, dataset: str, dataid: str) -> bool:
        return any(claim.dataid == dataid and dataset in READS[claim.jobid] for claim in self.live.values())

    def next(self, jobid: str) -> str | None:
        if jobid == "make" and self.chunks.get(("f", "full")) != "READY":
            return None
        can = [
            dataid
            for (name, dataid), row in self.rows.items()
            if name == jobid and row.status in ("PENDING", "RESUBMIT") and not row.parked
            and self.waiting(jobid, dataid) == 0 and not self.is_read(MAKES[jobid], dataid)
        ]  # fmt: skip
        return min(can, key=natural_key, default=None)

    def closes(self, jobid: str, dataid: str) -> None:
        """The job will make its chunk again."""
        if self.chunks.get((MAKES[jobid], dataid)) in ("READY", "FAILED", "RUNNING"):
            self.set_chunk(MAKES[jobid], dataid, "RESUBMIT")

    def resubmit(self, jobid: str, dataid: str) -> None:
        row = self.rows.get((jobid, dataid))
        if row is None:
            return
        if row.status == "RUNNING":
            row.again = True
            return
        row.parked = False
        if row.status in ("PENDING", "HOLD"):
            return
        row.attempts = row.deaths = 0
        row.to("RESUBMIT")
        self.closes(jobid, dataid)

    def declare_ready(self, dataset: str, dataid: str) -> None:
        was = self.chunks.get((dataset, dataid))
        self.set_chunk(dataset, dataid, "READY")
        if was != "READY" and dataset in PRODUCER:
            row = self.row(PRODUCER[dataset], dataid)
            if row.status in ("PENDING", "FAILED", "RESUBMIT"):
                row.to("COMPLETE")
                row.parked = False

    def claim(self, claim: Claim) -> None:
        row = self.row(claim.jobid, claim.dataid)
        row.attempts += 1
        row.again, row.run = False, claim.runid
        row.to("RUNNING")
        self.set_chunk(MAKES[claim.jobid], claim.dataid, "RUNNING")
        self.live[claim.runid] = claim

    def finish(self, claim: Claim, ending: Ending) -> str:
        row = self.row(claim.jobid, claim.dataid)
        made = MAKES[claim.jobid]
        back = ending is Ending.HANDED_BACK or (ending is Ending.DIED and row.deaths < 2)
        self.ended[claim.runid] = "RESUBMIT" if back else "COMPLETE" if ending is Ending.COMPLETE else "FAILED"
        if ending is Ending.COMPLETE:
            self.published.add((made, claim.dataid, claim.runid))
        if back:
            row.attempts -= 1
            row.deaths += ending is Ending.DIED
            row.to("RESUBMIT")
            self.set_chunk(made, claim.dataid, "RESUBMIT")
        elif row.again:
            row.attempts = row.deaths = 0
            row.to("RESUBMIT")
            self.set_chunk(made, claim.dataid, "RESUBMIT")
        elif ending is Ending.COMPLETE:
            row.deaths = 0
            row.to("COMPLETE")
            self.set_chunk(made, claim.dataid, "READY")
        else:
            row.deaths = 3 if ending is Ending.DIED else 0
            row.parked = ending is Ending.FAILED and row.attempts <= RETRIES
            row.to("FAILED")
            self.set_chunk(made, claim.dataid, "FAILED")
        row.again = False
        del self.live[claim.runid]
        return row.status

    def lose(self, runid: int) -> None:
        claim = self.live.pop(runid)
        self.ended[runid] = "LOST"
        row = self.row(claim.jobid, claim.dataid)
        row.attempts -= 1
        row.again = False
        row.to("RESUBMIT")
        self.set_chunk(MAKES[claim.jobid], claim.dataid, "RESUBMIT")

    def wake(self) -> None:
        for key in self.due:
            row = self.rows[key]
            if row.parked:
                row.parked = False
                if row.status == "FAILED":
                    row.to("RESUBMIT")
                    self.closes(*key)
        self.due.clear()


class Machine(RuleBasedStateMachine):
    world: World
    numbers: Any

    def __init__(self) -> None:
        super().__init__()
        # A project of its own for each example: one store serves them all.
        self.project = f"p{next(self.numbers)}"
        self.model = Model()
        self.claims: list[Claim] = []
        options = {"project": self.project, "lease": LEASE, "retries": RETRIES, "backoff": BACKOFF}
        self.world.apply(
            job("make", ["a", "b", "f:full"], ["m"], **options),
            job("use", ["m"], ["z"], **options),
            project=self.project,
        )

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        return self.world.sql(statement.replace("$P", f"project = '{self.project}'"))

    def of(self, jobid: str) -> Any:
        return self.world.store.get_job(jobid, project=self.project)

    # By hand --------------------------------------------------------------------------------------------------
    def _declare(self, dataset: str, dataid: str) -> None:
        if (dataset, dataid) in self.model.chunks:
            self.sql(
                f"UPDATE datastatus SET status = 'READY' WHERE $P AND datasetid = '{dataset}' AND dataid = '{dataid}'"
            )
        else:
            self.sql(
                "INSERT INTO datastatus (project, datasetid, dataid, status) "
                f"VALUES ('{self.project}', '{dataset}', '{dataid}', 'READY')"
            )
        self.model.declare_ready(dataset, dataid)

    @rule(dataset=st.sampled_from("ab"), dataid=dataids)
    def an_input_turns_ready(self, dataset: str, dataid: str) -> None:
        self._declare(dataset, dataid)

    @rule(dataid=dataids)
    def all_inputs_turn_ready(self, dataid: str) -> None:
        for dataset, which in (("a", dataid), ("b", dataid), ("f", "full")):
            self._declare(dataset, which)

    @rule(dataid=dataids)
    def a_produced_chunk_is_declared_ready(self, dataid: str) -> None:
        if self.model.chunks.get(("m", dataid)) != "RUNNING":
            self._declare("m", dataid)

    @rule(which=st.sampled_from([("a", d) for d in DATAIDS] + [("m", d) for d in DATAIDS] + [("f", "full")]))
    def a_chunk_is_resubmitted(self, which: tuple[str, str]) -> None:
        dataset, dataid = which
        status = self.model.chunks.get(which)
        if status not in ("READY", "FAILED"):
            return
        self.sql(
            f"UPDATE datastatus SET status = 'RESUBMIT' WHERE $P AND datasetid = '{dataset}' AND dataid = '{dataid}'"
        )
        self.model.set_chunk(dataset, dataid, "RESUBMIT")
        by = self.model.rows.get((PRODUCER.get(dataset, ""), dataid))
        if by is not None and by.status in ("COMPLETE", "FAILED"):
            self.model.resubmit(PRODUCER[dataset], dataid)

    @rule(dataid=dataids)
    def a_dataid_is_resubmitted_whatever_its_jobs_are(self, dataid: str) -> None:
        self.sql(f"UPDATE job_status SET status = 'RESUBMIT' WHERE $P AND dataid = '{dataid}'")
        for jobid in READS:
            self.model.resubmit(jobid, dataid)

    @rule(jobid=jobs, dataid=dataids)
    def a_job_is_held(self, jobid: str, dataid: str) -> None:
        row = self.model.rows.get((jobid, dataid))
        if row is not None and row.status in ("PENDING", "FAILED", "RESUBMIT"):
            self.sql(f"UPDATE job_status SET status = 'HOLD' WHERE $P AND jobid = '{jobid}' AND dataid = '{dataid}'")
            row.to("HOLD")

    @rule(dataid=dataids)
    def what_is_held_is_released(self, dataid: str) -> None:
        self.sql(f"UPDATE job_status SET status = 'PENDING' WHERE $P AND status = 'HOLD' AND dataid = '{dataid}'")
        for (_, of), row in self.model.rows.items():
            if of == dataid and row.status == "HOLD":
                row.to("PENDING")

    # Runners --------------------------------------------------------------------------------------------------
    @rule(jobid=jobs, name=owners)
    def a_runner_claims(self, jobid: str, name: str) -> None:
        expected = self.model.next(jobid)
        candidate = self.world.store.find_claimable(self.of(jobid))
        assert (candidate.dataid if candidate else None) == expected
        if candidate is None:
            return
        claim = self.world.store.claim(self.of(jobid), candidate, YES, owner(name))
        assert claim is not None
        assert all(claim.runid > before.runid for before in self.claims)
        assert claim.deaths == self.model.row(jobid, claim.dataid).deaths
        self.claims.append(claim)
        self.model.claim(claim)
        assert claim.attempt == self.model.row(jobid, claim.dataid).attempts

    @rule(jobid=jobs, dataid=dataids, name=owners)
    def a_runner_tries_a_dataid_that_is_not_free(self, jobid: str, dataid: str, name: str) -> None:
        row = self.model.rows.get((jobid, dataid))
        candidate = self.world.store.find_candidate(self.of(jobid), dataid)
        assert (candidate is None) == (row is None)
        if row is None or candidate is None:
            return
        free = row.status in ("PENDING", "RESUBMIT") and self.model.waiting(jobid, dataid) == 0
        shut = jobid == "make" and self.model.chunks.get(("f", "full")) != "READY"
        if not free or shut or self.model.is_read(MAKES[jobid], dataid):
            assert self.world.store.claim(self.of(jobid), candidate, YES, owner(name)) is None

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), ending=st.sampled_from([Ending.COMPLETE, *Ending]))
    def a_runner_ends_its_run(self, data: st.DataObject, ending: Ending) -> None:
        """Any claim ever made: live, lost or ended long ago."""
        claim = data.draw(st.sampled_from(list(self.model.live.values()) or self.claims))
        self._finish(claim, ending)

    @precondition(lambda self: self.model.ended)
    @rule(data=st.data(), ending=st.sampled_from(list(Ending)))
    def a_runner_that_was_too_late_ends_its_run(self, data: st.DataObject, ending: Ending) -> None:
        claim = data.draw(st.sampled_from([claim for claim in self.claims if claim.runid in self.model.ended]))
        self._finish(claim, ending)

    def _finish(self, claim: Claim, ending: Ending) -> None:
        if claim.runid in self.model.live:
            assert self.world.finish(claim, ending).status == self.model.finish(claim, ending)
            return
        before = self.world.dump()
        if self.model.ended[claim.runid] == "LOST":
            with pytest.raises(LeaseLost):
                self.world.finish(claim, ending)
        else:
            again = self.world.finish(claim, ending)
            assert (again.status, again.note) == (self.model.ended[claim.runid], "recorded before")
        assert self.world.dump() == before

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def a_runner_renews_its_lease(self, data: st.DataObject) -> None:
        claim = data.draw(st.sampled_from(self.claims))
        if claim.runid in self.model.live:
            self.world.store.renew(claim)
            self.model.expired.discard(claim.runid)
        else:
            with pytest.raises(LeaseLost):
                self.world.store.renew(claim)

    @rule(jobid=jobs, dataid=dataids)
    def a_dataid_is_refused_and_parked(self, jobid: str, dataid: str) -> None:
        row = self.model.rows.get((jobid, dataid))
        self.world.store.refuse(self.of(jobid), dataid, NO_PATH, park=True)
        if row is not None and row.status in ("PENDING", "RESUBMIT"):
            row.parked = True
            self.model.due.discard((jobid, dataid))

    @rule()
    def time_passes_and_owners_vanish(self) -> None:
        self.world.pass_time(A_LONG_TIME)
        self.model.expired = set(self.model.live)
        self.model.due = {key for key, row in self.model.rows.items() if row.parked}

    @rule()
    def the_next_runner_recovers_and_wakes(self) -> None:
        self.world.recover()
        for runid in self.model.expired & set(self.model.live):
            self.model.lose(runid)
        self.model.expired.clear()
        self.world.store.wake_parked()
        self.model.wake()

    @rule(jobid=jobs, name=owners)
    def owners_vanish_and_another_takes_over(self, jobid: str, name: str) -> None:
        self.time_passes_and_owners_vanish()
        self.the_next_runner_recovers_and_wakes()
        self.a_runner_claims(jobid, name)

    @precondition(lambda self: self.model.live)
    @rule(data=st.data(), ending=st.sampled_from(list(Ending)))
    def a_stopped_owner_wakes_after_another_took_its_dataid(self, data: st.DataObject, ending: Ending) -> None:
        stopped = data.draw(st.sampled_from(list(self.model.live.values())))
        self.time_passes_and_owners_vanish()
        self.the_next_runner_recovers_and_wakes()
        if self.model.next(stopped.jobid) == stopped.dataid:
            self.a_runner_claims(stopped.jobid, "bert")
        self._finish(stopped, ending)

    @rule(jobid=jobs, dataid=dataids)
    def a_job_is_held_and_released(self, jobid: str, dataid: str) -> None:
        self.a_job_is_held(jobid, dataid)
        self.what_is_held_is_released(dataid)

    # What must always hold --------------------------------------------------------------------------------------
    @invariant()
    def all_is_as_it_should_be(self) -> None:
        self.jobs_stand_where_the_model_has_them_and_counters_equal_a_recount()
        self.chunks_are_exactly_those_of_the_model()
        self.only_live_runs_hold_locks_and_no_dataid_has_two_owners()
        self.every_completed_run_is_published_once_and_no_other()
        self.history_tells_what_happened_in_order()

    def jobs_stand_where_the_model_has_them_and_counters_equal_a_recount(self) -> None:
        rows = self.sql(
            "SELECT jobid, dataid, status, again, attempts, deaths, waiting, parked_until IS NOT NULL, "
            "owner IS NOT NULL FROM job_status WHERE $P"
        )
        assert {(jobid, dataid): tuple(map(_plain, rest)) for jobid, dataid, *rest in rows} == {
            (jobid, dataid): (
                row.status, row.again, row.attempts, row.deaths, self.model.waiting(jobid, dataid), row.parked,
                row.status == "RUNNING",
            )
            for (jobid, dataid), row in self.model.rows.items()
        }  # fmt: skip
        shared = dict(self.sql("SELECT jobid, shared_waiting FROM job WHERE $P"))
        assert shared == {"make": int(self.model.chunks.get(("f", "full")) != "READY"), "use": 0}

    def chunks_are_exactly_those_of_the_model(self) -> None:
        rows = self.sql("SELECT datasetid, dataid, status FROM datastatus WHERE $P AND locktype = 'OUT'")
        assert {(dataset, dataid): status for dataset, dataid, status in rows} == self.model.chunks

    def only_live_runs_hold_locks_and_no_dataid_has_two_owners(self) -> None:
        held = self.sql("SELECT datasetid, dataid, reader FROM datastatus WHERE $P AND locktype = 'IN'")
        expected = []
        for runid, claim in self.model.live.items():
            expected += [(dataset, claim.dataid, str(runid)) for dataset in READS[claim.jobid]]
            expected += [("f", "full", str(runid))] if claim.jobid == "make" else []
        assert sorted(held) == sorted(expected)
        running = self.sql("SELECT runid FROM run WHERE $P AND status = 'RUNNING'")
        assert {runid for (runid,) in running} == set(self.model.live)
        keys = [(claim.jobid, claim.dataid) for claim in self.model.live.values()]
        assert len(set(keys)) == len(keys)

    def every_completed_run_is_published_once_and_no_other(self) -> None:
        rows = self.sql("SELECT datasetid, dataid, version FROM data_manifest WHERE $P")
        assert sorted(rows) == sorted(self.model.published)
        ended = dict(self.sql("SELECT runid, status FROM run WHERE $P AND status <> 'RUNNING'"))
        assert ended == self.model.ended

    def history_tells_what_happened_in_order(self) -> None:
        told: dict[tuple[str, str, str], list[str]] = {}
        for kind, name, dataid, old, new in self.sql(
            "SELECT kind, name, dataid, old_status, new_status FROM history WHERE $P ORDER BY id"
        ):
            chain = told.setdefault((kind, name, dataid), [])
            assert old == (chain[-1] if chain else old)
            assert chain or old in (None, "PENDING")
            if not chain or new != chain[-1]:
                chain.append(new)
        expected = {("job", *key): row.seen for key, row in self.model.rows.items() if row.seen}
        expected |= {("chunk", *key): seen for key, seen in self.model.told.items()}
        assert told == expected

    def teardown(self) -> None:
        """Whatever happened: with all inputs there and nothing held, the usual calls bring everything to COMPLETE."""
        for dataid in DATAIDS:
            self.all_inputs_turn_ready(dataid)
            self.what_is_held_is_released(dataid)
        self.time_passes_and_owners_vanish()
        self.the_next_runner_recovers_and_wakes()
        for dataid in DATAIDS:
            self.a_dataid_is_resubmitted_whatever_its_jobs_are(dataid)
        for jobid in ("make", "use"):
            for _ in DATAIDS:
                self.a_runner_claims(jobid, "anna")
            for claim in list(self.model.live.values()):
                self._finish(claim, Ending.COMPLETE)
        assert {key: row.status for key, row in self.model.rows.items()} == {
            (jobid, dataid): "COMPLETE" for jobid in READS for dataid in DATAIDS
        }
        self.all_is_as_it_should_be()


def _plain(value: Any) -> Any:
    return value if isinstance(value, str) else int(value)


def test_nothing_is_lost_and_nothing_done_twice_whatever_happens(world: World) -> None:
    machine = type("OnThisStore", (Machine,), {"world": world, "numbers": itertools.count()})
    run_state_machine_as_test(machine, settings=PROFILE)

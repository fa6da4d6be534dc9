"""What the processes of test_races do; each opens the store itself."""

import random
import sqlite3
import time
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from typing import Any

import psycopg
from world import YES, owner

from opendataflow.domain.chunk import Manifest
from opendataflow.domain.runs.run import Ending, Result
from opendataflow.errors import LeaseLost
from opendataflow.store import open_store, registry
from opendataflow.store.claims import LoopStore, Next
from opendataflow.store.migrate import upgrade
from opendataflow.store.open import SCHEMA_VERSION
from opendataflow.store.records import workers
from opendataflow.store.status_counts import fold_tally


def together(work: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], *, seconds: float = 120) -> list[Any]:
    """Run `work(barrier, *arguments)` in one real process each, let them start at the same moment; their results."""
    context = get_context("spawn")
    with context.Manager() as manager:
        barrier = manager.Barrier(len(arguments))
        with context.Pool(len(arguments)) as pool:
            pending = [pool.apply_async(work, (barrier, *one)) for one in arguments]
            return [one.get(timeout=seconds) for one in pending]


def drain(barrier: Any, url: str, name: str) -> list[tuple[str, int]]:
    """Claim and publish until nothing is left; what this process did."""
    store = open_store(url, actor=name)
    job = store.get_job("load")
    me = owner(name)
    done: list[tuple[str, int]] = []
    barrier.wait()
    misses = 0
    while True:
        candidate = store.find_claimable(job, offset=misses % 4)
        if candidate is None:
            if misses % 4 == 0:
                break
            misses = 0
            continue
        claim = store.claim(job, candidate, YES, me)
        if claim is None:
            misses += 1
            continue
        misses = 0
        time.sleep(0.002)  # the job's own work: meanwhile the others get their turn
        finished = store.finish(claim, Result(Ending.COMPLETE, 0, manifests=(("p", "totals", Manifest("/x")),)))
        assert finished.status in ("COMPLETE", "RESUBMIT")  # RESUBMIT: somebody asked for it again meanwhile
        done.append((claim.dataid, claim.runid))
    store.close()
    return done


def by_hand(barrier: Any, url: str, statements: list[str]) -> int:
    """An operator's shell that runs one statement after the other; how often the database asked to try again."""
    clashes = 0
    if url.startswith("sqlite"):
        shell: Any = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=60, isolation_level=None)
    else:
        shell = psycopg.connect(url, autocommit=True)
    barrier.wait()
    for statement in statements:
        while True:
            try:
                shell.execute(statement)
                break
            except psycopg.errors.DeadlockDetected:
                clashes += 1
    shell.close()
    return clashes


def open_and_write(barrier: Any, url: str, number: int, times: int) -> int:
    """Make the store if it is not there, then declare chunks READY; how many were."""
    barrier.wait()
    store = open_store(url, actor=f"w{number}", must_exist=False, check=False)
    upgrade(store)
    store.check_schema(SCHEMA_VERSION)
    from world import NOW, job, registration

    name = f"p{number}"
    registry.apply(store, registration(job("load", ["orders"], ["totals"], project=name), project=name), now=NOW)
    orders, _ = registry.get_dataset(store, "orders", project=name)
    for time_ in range(times):
        registry.assert_ready(store, orders, str(time_), Manifest("/x"))
    store.close()
    return times


def claim_one(barrier: Any, url: str, name: str, dataid: str) -> int | None:
    """Everybody wants the same dataid at the same moment."""
    store = open_store(url, actor=name)
    job = store.get_job("load")
    candidate = store.find_candidate(job, dataid)
    assert candidate is not None
    barrier.wait()
    claim = store.claim(job, candidate, YES, owner(name))
    if claim is not None:
        time.sleep(0.05)
    store.close()
    return claim.runid if claim else None


def recover_all(barrier: Any, url: str, name: str) -> int:
    """Everybody finds the same lost runs."""
    store = open_store(url, actor=name, clock=lambda: time.time() + 3600)
    barrier.wait()
    found = sum(store.recover(lost, host="", note="lost") for lost, expired, _ in store.suspects("") if expired)
    store.close()
    return found


def shell_or_mapper(barrier: Any, url: str, statements: list[str] | None) -> int:
    """An operator's shell, or one who finds out anew what every dataid of `mean` reads."""
    if statements is not None:
        return by_hand(barrier, url, statements)
    store = open_store(url, actor="mapper")
    job = store.get_job("mean")
    barrier.wait()
    for number in range(1, 26):
        store.recount(job, str(number))
    store.close()
    return 25


def fold_while_working(barrier: Any, url: str, name: str) -> int:
    """Claim, finish and fold in turn."""
    store = open_store(url, actor=name)
    job = store.get_job("load")
    barrier.wait()
    done = 0
    for _ in range(15):
        candidate = store.find_claimable(job, offset=hash(name) % 3)
        claim = store.claim(job, candidate, YES, owner(name)) if candidate is not None else None
        if claim is not None:
            store.finish(claim, Result(Ending.COMPLETE, 0, manifests=(("p", "totals", Manifest()),)))
            done += 1
        with store.transaction() as tx:
            fold_tally(tx)
    store.close()
    return done


def work_in_batches(barrier: Any, url: str, name: str, jobs: list[str]) -> int:
    """A worker with three slots over several jobs, as `dataflow worker` has them; how many runs it ended."""
    store = open_store(url, actor=name)
    known = [store.get_job(jobid) for jobid in jobs]
    me, held, done = owner(name), [], 0
    outputs = {job.jobid: job.outputs[0].dataset.datasetid for job in known}
    barrier.wait()
    give_up = time.monotonic() + 60
    while time.monotonic() < give_up:
        ends = held[:2]
        ending: dict[tuple[str, str], int] = {}
        for claim in ends:
            ending[claim.project, claim.jobid] = ending.get((claim.project, claim.jobid), 0) + 1
        found = store.list_claimable_all(known, 3, ending=ending)
        free = 3 - len(held) + len(ends)
        rows = [(job, one) for job in known for one in found.get((job.project, job.jobid), [])]
        # Some begin with another job, so that they do not all want the same.
        wanted = [Next(job, one, YES, me) for job, one in (rows[::-1] if name[-1] in "13" else rows)[:free]]
        results = [
            (claim, Result(Ending.COMPLETE, 0, manifests=(("p", outputs[claim.jobid], Manifest("/x")),)))
            for claim in ends
        ]
        ended, claims = store.finish_and_claim_many(results, wanted)
        assert not [one for one in ended if isinstance(one, LeaseLost)]
        done += len(ended)
        held = held[len(ends) :] + [claim for claim in claims if claim is not None]
        if not held and not _left(store):
            break
        time.sleep(0.02)  # the runs themselves; meanwhile others get their turn
    store.close()
    return done


def _left(store: LoopStore) -> bool:
    return bool(store.select("SELECT 1 FROM job_status WHERE status IN ('PENDING', 'RESUBMIT') LIMIT 1")[1])


def change_limits(barrier: Any, url: str, jobs: list[str], connection: str, seed: int) -> int:
    """Turn all limits up and down until the work is done, by command and by hand; how often."""
    dice = random.Random(seed)
    store = open_store(url, actor="operator")
    barrier.wait()
    changed = 0
    while _left(store) and changed < 400:
        of = dice.choice([*jobs, connection])
        limit = dice.randrange(0, 6)
        if of == connection:
            workers.set_limit(store, of, limit + 1)
        elif dice.random() < 0.5:
            by_hand(_Now(), url, [f"UPDATE job SET scaled_to = {limit} WHERE jobid = '{of}'"])
        else:
            workers.set_limit(store, store.get_job(of), limit)
        changed += 1
        time.sleep(0.01)
    for of in jobs:  # whatever was left at zero goes on
        workers.set_limit(store, store.get_job(of), 2)
    workers.set_limit(store, connection, 2)
    store.close()
    return changed


class _Now:
    def wait(self) -> None:
        pass

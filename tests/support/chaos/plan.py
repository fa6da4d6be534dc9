"""What happens in a storm, and when: drawn from a seed, so that the same seed gives the same storm.

A moment is a part of the work done, not a time: a slow machine gets the same faults at the same places. Which of the
live processes a fault hits is drawn from the same seed, as a place in a list; what runs there is the machine's affair.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

WORKER, TREE, GUARD, SCRIPT = "a worker", "a worker with its guards", "a guard", "a script"


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """How large a storm is."""

    chunks: int
    slots: tuple[int, ...]  # of each worker
    kills: int
    stops: int
    restarts: int  # of PostgreSQL; of SQLite, writers killed in mid-transaction
    scales: int
    readers: int  # that hold a transaction open
    drops: int  # of every connection to PostgreSQL
    cuts: int  # of the last worker from PostgreSQL
    lease_seconds: float
    fail_percent: int = 1
    work_ms: tuple[int, int] = (10, 45)
    has_full_logs: bool = True  # where a tmpfs can be mounted


FULL = Size(
    chunks=10_000, slots=(4, 3, 3), kills=30, stops=5, restarts=3, scales=20, readers=3, drops=3, cuts=2,
    lease_seconds=6.0,
)  # fmt: skip
SMALL = Size(
    chunks=150, slots=(4, 3, 3), kills=6, stops=2, restarts=1, scales=6, readers=1, drops=1, cuts=0, lease_seconds=3.0,
    work_ms=(40, 160), has_full_logs=False,
)  # fmt: skip


class Fault(NamedTuple):
    """Something that happens when this part of the work is done."""

    at: float
    kind: str  # kill, stop, restart, scale, reader, drop or cut
    whom: str = ""  # kill and stop: WORKER, TREE, GUARD or SCRIPT; scale: the job
    pick: float = 0.0  # 0 … 1: which of them
    amount: float = 0.0  # scale: the limit, 0 for none of a person's; else seconds


def draw(size: Size, seed: int, *, dialect: str) -> list[Fault]:
    """The storm of this seed, in order. The first and last parts of the work are left calm."""
    rng = random.Random(seed)
    found: list[Fault] = []

    def add(n: int, make: Callable[[float], Fault]) -> None:
        found.extend(make(rng.uniform(0.03, 0.93)) for _ in range(n))

    def past_the_lease() -> float:
        return size.lease_seconds + rng.uniform(0.5, 2.0)

    most = sum(size.slots)
    killed = [WORKER, WORKER, TREE, GUARD, SCRIPT, SCRIPT]
    add(size.kills, lambda at: Fault(at, "kill", rng.choice(killed), rng.random()))
    add(size.stops, lambda at: Fault(at, "stop", rng.choice([WORKER, TREE]), rng.random(), past_the_lease()))
    add(size.restarts, lambda at: Fault(at, "restart", pick=rng.random(), amount=rng.uniform(0.1, 1.0)))
    add(size.scales, lambda at: Fault(at, "scale", rng.choice(["extract", "load"]), rng.random(), rng.randint(0, most)))
    add(size.readers, lambda at: Fault(at, "reader", amount=rng.uniform(1.0, 3.0)))
    if dialect == "postgres":
        add(size.drops, lambda at: Fault(at, "drop"))
        add(size.cuts, lambda at: Fault(at, "cut", amount=past_the_lease()))
    return list(_all_different(sorted(found), most))


def _all_different(faults: list[Fault], most: int) -> Iterator[Fault]:
    """The same, but every change of a limit is one."""
    last: dict[str, float] = {}
    for fault in faults:
        if fault.kind == "scale":
            amount = fault.amount if fault.amount != last.get(fault.whom, 0.0) else fault.amount % most + 1
            last[fault.whom] = amount
            yield fault._replace(amount=amount)
        else:
            yield fault

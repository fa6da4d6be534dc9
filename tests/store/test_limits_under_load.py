"""Real processes under limits that are changed all the time: no claim is ever one too many, on either store."""

from collections import Counter
from typing import Any

from race_workers import change_limits, together, work_in_batches
from world import World, job

from opendataflow.store import registry

CONNECTION = "db/crm"
EACH = 40


def test_no_limit_is_exceeded_while_all_are_changed(world: World) -> None:
    jobs = ("extract", "load")
    world.apply(*(job(name, [f"{name}_in"], [f"{name}_out"], concurrency=3) for name in jobs))
    world.sql("UPDATE dataset SET hostname = 'db', database = 'crm'")
    world.sql(f"INSERT INTO connection_limit (name, scaled_to) VALUES ('{CONNECTION}', 4)")
    for name in jobs:
        world.ready(f"{name}_in", *(str(number) for number in range(1, EACH + 1)))
    told = together(
        _play,
        [(world.url, f"w{number}", list(jobs)) for number in range(3)] + [(world.url, "", list(jobs))],
    )
    assert sum(told[:3]) == 2 * EACH  # each once
    assert told[3] >= 10
    assert world.sql("SELECT status, count(*) FROM job_status GROUP BY 1") == [("COMPLETE", 2 * EACH)]
    assert world.sql("SELECT jobid, count(*) FROM run GROUP BY 1 ORDER BY 1") == [(name, EACH) for name in jobs]
    assert registry.check(world.store, repair=False) == []
    claims, excess = replay(world, dict.fromkeys(jobs, 3))
    assert claims == 2 * EACH
    assert excess == []


def _play(barrier: Any, url: str, name: str, jobs: list[str]) -> int:
    if name:
        return work_in_batches(barrier, url, name, jobs)
    return change_limits(barrier, url, jobs, CONNECTION, seed=6)


def replay(world: World, limits: dict[str, int]) -> tuple[int, list[str]]:
    """Go through the records in their order: the number of claims, and those that went over a limit.

    Both histories are written under the lock of the row that has the limit, so their order is that of the changes. Of
    what stands at the same millisecond, the larger limit counts.
    """
    events = [
        (at, 0, "limit", jobid or connection, becomes)
        for at, jobid, connection, becomes in world.sql(
            "SELECT at, jobid, connection, becomes FROM limit_history WHERE what = 'scale' ORDER BY id"
        )
    ]
    events += [
        (at, 1, "claim" if new == "RUNNING" else "end", name, None)
        for at, name, old, new in world.sql(
            "SELECT at, name, old_status, new_status FROM history WHERE kind = 'job' ORDER BY id"
        )
        if "RUNNING" in (old, new)
    ]
    running: Counter[str] = Counter()
    allowed = {name: [limit] for name, limit in limits.items()}
    since: dict[str, Any] = {}
    claims, excess = 0, []
    for at, _, what, name, value in sorted(events, key=lambda event: event[:2]):
        if what == "limit":
            kept = allowed.get(name, []) if since.get(name) == at else allowed.get(name, [])[-1:]
            allowed[name], since[name] = [*kept, int(value)], at
            continue
        running[name] += 1 if what == "claim" else -1
        if what == "end":
            continue
        claims += 1
        for one, live in ((name, running[name]), (CONNECTION, sum(running.values()))):
            most = max(allowed[one]) if since.get(one) == at else allowed[one][-1]
            if live > most:
                excess.append(f"{at}: {live} runs of {one}, whose limit is {most}")
    return claims, excess

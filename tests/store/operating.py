"""What the tests of operators' verbs share: a chain of jobs, whole runs, and runs of some hours ago."""

import datetime
from typing import Any

from world import World, job

from opendataflow.domain.runs.run import Ending
from opendataflow.store import operations
from opendataflow.store.operations import Key

CHAIN = (job("load", ["orders"], ["totals"]), job("report", ["totals"], ["pages"]), job("send", ["pages"], ["mails"]))
ALL = {"status": None, "since": None, "before": operations.NEWEST, "limit": 100}


def ran(world: World, jobid: str, dataid: str, ending: Ending = Ending.COMPLETE) -> int:
    """One run of the dataid from claim to end; its number."""
    claim = world.must_claim(jobid, dataid)
    world.finish(claim, ending)
    return claim.runid


def shift(world: World, runid: int, hours: float, *times: str) -> None:
    """Let the run have been so many hours earlier, or one of its times."""
    times = times or ("claimed_at", "ended_at")
    if world.is_sqlite:
        moved = ", ".join(f"{name} = strftime('%Y-%m-%dT%H:%M:%fZ', {name}, '{-hours} hours')" for name in times)
    else:
        moved = ", ".join(f"{name} = {name} - interval '{hours} hours'" for name in times)
    world.sql(f"UPDATE run SET {moved} WHERE runid = {runid}")


def ago(hours: float) -> str:
    at = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=hours)
    return at.strftime("%Y-%m-%dT%H:%M:%S.000Z")


def keys(jobid: str, *dataids: str) -> list[Key]:
    return [Key("p", jobid, dataid) for dataid in dataids]


def told(done: list[dict[str, Any]]) -> list[tuple[str, str, str, str]]:
    return [(one["jobid"], one["dataid"], one["before"], one["status"]) for one in done]

"""Published data that is older than what it should be made from: how much, which, and by what."""

from typing import NamedTuple

from opendataflow.store.claims import LoopStore
from opendataflow.store.operations import Key
from opendataflow.store.rows import Row
from opendataflow.store.stale import FILE

INPUTS = 20  # that are named of one stale dataid
NAMED = 1_000


class Stale(NamedTuple):
    """A published dataid of a job that is older than what it should be made from, and by what."""

    project: str
    jobid: str
    dataid: str
    by_input: bool
    by_code: bool
    by_check: bool
    upstream: bool  # what makes one of its inputs is stale
    since: str
    runid: int  # that made it
    git_commit: str | None

    @property
    def direct(self) -> bool:
        return self.by_input or self.by_code or self.by_check


class Count(NamedTuple):
    """How many published dataids of a job are stale: by themselves, and because of what they read."""

    direct: int
    upstream: int


def count_stale(store: LoopStore, *, project: str | None, jobid: str | None = None) -> dict[tuple[str, str], Count]:
    """By project and job; jobs without any are left out."""
    rows = store.read("count_stale", {"project": project, "jobid": jobid}, file=FILE)
    return {(row[0], row[1]): Count(int(row[2]), int(row[3]) - int(row[2])) for row in rows}


def list_stale(store: LoopStore, *, project: str | None, jobid: str | None = None, limit: int = NAMED) -> list[Stale]:
    """Published dataids that are stale, in order."""
    rows = store.read("list_stale", {"project": project, "jobid": jobid, "limit": limit}, file=FILE)
    return [_stale(row) for row in rows]


def find_stale(store: LoopStore, key: Key) -> Stale | None:
    """What makes this dataid stale; None when nothing does."""
    rows = store.read("find_stale", key._asdict(), file=FILE)
    return _stale([*key, *rows[0]]) if rows else None


def _stale(row: Row) -> Stale:
    return Stale(*row[:3], *(bool(flag) for flag in row[3:7]), *row[7:])


def describe_stale(store: LoopStore, one: Stale) -> list[str]:
    """What makes it stale, a reason each, the nearest first."""
    found = []
    if one.by_input or one.upstream:
        rows = store.read("changed_inputs", {**Key(*one[:3])._asdict(), "limit": INPUTS}, file=FILE)
        for _, datasetid, dataid, _, version, is_other, _ in rows:
            if is_other:
                made = f" (version {version})" if version is not None else ""
                found.append(f"{datasetid}/{dataid} has other content now{made} than it was made from")
    if one.by_code:
        found.append(f"the code or definition of {one.jobid} has changed")
    if one.by_check:
        found.append("the checks of its output have changed")
    if one.upstream:
        found += [f"{row[1]}/{row[2]}, which it reads, is stale itself" for row in rows if row[6] is not None]
    return found


def find_stale_roots(store: LoopStore, *, project: str, jobid: str | None, made_by: str | None) -> list[Key]:
    """What to make again so that nothing is stale: the rest follows from it. `made_by`: a commit, or its start."""
    wanted = {"project": project, "jobid": jobid, "made_by": made_by}
    return [Key(*row) for row in store.read("to_heal", wanted, file=FILE)]


def readers_behind(
    store: LoopStore, project: str, datasetid: str, dataid: str, *, all_readers: bool = False
) -> list[Key]:
    """Published dataids that were made from another version of this chunk; with `all_readers`, from any."""
    chunk = {"project": project, "datasetid": datasetid, "dataid": dataid}
    rows = store.read("readers_behind", {**chunk, "all": int(all_readers), "limit": NAMED}, file=FILE)
    return [Key(*row) for row in rows]

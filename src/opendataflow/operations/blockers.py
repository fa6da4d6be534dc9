"""Everything that failed or is blocked, by what is at the root of it: one cause, one command, many dataids."""

from collections import defaultdict
from typing import Any, NamedTuple

from opendataflow.domain.runs.refusals import find_refusal
from opendataflow.operations.verify import describe_finding
from opendataflow.operations.verify import next_step as fix_of
from opendataflow.store.claims import LoopStore
from opendataflow.store.records.workers import find_pause_of_all
from opendataflow.store.reports.stuck import Closed, list_closed
from opendataflow.store.reports.verify import Damage, list_damage
from opendataflow.store.rows import Row

LIMIT = 100_000  # rows that are looked at; that there are more is told
Key = tuple[str, str, str]  # project, job or dataset, dataid
EVERYTHING = ("", "everything", "all")


class Root(NamedTuple):
    """What must be mended: `name` is a job or a dataset."""

    kind: str  # FAILED, HOLD, PAUSED, LIMIT, RUNNING, NOT_RUN, REJECTED, MISSING, or a refusal's code
    project: str
    name: str


class Blockers(NamedTuple):
    roots: list[dict[str, Any]]
    is_all: bool  # False: more failed, or is blocked, than was looked at


def blockers(store: LoopStore, *, project: str | None, limit: int = LIMIT) -> list[dict[str, Any]]:
    """The roots, as `find_blockers` has them."""
    return find_blockers(store, project=project, limit=limit).roots


def find_blockers(store: LoopStore, *, project: str | None, limit: int = LIMIT) -> Blockers:
    """The roots, the one that blocks most first: what it is, its dataids, what it blocks, the next step.

    At most so many failed and so many blocked dataids are looked at.
    """
    facts = _Facts(store, project, limit)
    at_root: dict[Root, dict[Key, str]] = defaultdict(dict)
    blocked: dict[Root, dict[Key, None]] = defaultdict(dict)
    for key in facts.rows:
        root, where, reason = facts.root(key, frozenset())
        at_root[root][where] = reason
        if where != key:
            blocked[root][key] = None
    whole: dict[Root, dict[tuple[str, str], int]] = defaultdict(dict)  # jobs whose every dataid is blocked: how many
    for root, where, reason, number, job in facts.shared():
        at_root[root].setdefault(where, reason)
        whole[root] |= {job: number} if number else {}
    told = [_tell(root, causes, list(blocked[root]), whole[root], facts) for root, causes in at_root.items()]
    told += _damaged(store, project)
    return Blockers(sorted(told, key=lambda one: (-one["blocks"], -len(one["dataids"]), one["name"])), facts.is_all)


def _damaged(store: LoopStore, project: str | None) -> list[dict[str, Any]]:
    """Published data that is gone or changed, of each dataset once."""
    found: dict[tuple[str, str, str], list[Damage]] = defaultdict(list)
    for one in list_damage(store, project=project):
        found[one.key.project, one.key.datasetid, one.finding].append(one)
    return [
        {
            "cause": finding.upper(), "project": owner, "name": name, "dataids": [one.key.dataid for one in wrong],
            "reason": describe_finding(wrong[0].key, finding), "blocks": 0, "jobs": [], "fix": fix_of(wrong[0]),
        }
        for (owner, name, finding), wrong in found.items()
    ]  # fmt: skip


def _tell(
    root: Root, causes: dict[Key, str], blocked: list[Key], whole: dict[tuple[str, str], int], facts: "_Facts"
) -> dict[str, Any]:
    dataids = [key[2] for key in causes]
    return {
        "cause": root.kind,
        "project": root.project,
        "name": root.name,
        "dataids": dataids,
        "reason": next(iter(causes.values())),
        "blocks": len(blocked) + sum(whole.values()),
        "jobs": sorted({key[1] for key in (*blocked, *whole)}),
        "fix": next_step(root, dataids, root.name in facts.scanned),
    }


def next_step(root: Root, dataids: list[str], can_scan: bool = False) -> str:
    """The command that helps."""
    first = dataids[0]
    match root.kind:
        case "FAILED" if len(dataids) > 1:
            return f"mend the cause (`dataflow why {root.name} {first}`), then `dataflow resubmit {root.name} --failed`"
        case "FAILED":
            return f"mend the cause (`dataflow why {root.name} {first}`), then `dataflow resubmit {root.name} {first}`"
        case "HOLD":
            return f"`dataflow release {root.name} {' '.join(dataids[:5])}{' …' if len(dataids) > 5 else ''}`"
        case "PAUSED" if not root.project:
            return "`dataflow resume all`"
        case "PAUSED":
            return f"`dataflow release {root.name}`"
        case "LIMIT":
            return f"`dataflow scale {root.name} N`"
        case "RUNNING":
            return f"wait for it: `dataflow runs {root.name} --status RUNNING`"
        case "NOT_RUN":
            return f"`dataflow run {root.name} --drain`"
        case "MISSING" if can_scan:
            return f"when it has arrived: `dataflow scan {root.name}`"
        case "MISSING":
            return f"when it has arrived: `dataflow ready {root.name} {first}`"
        case "REJECTED":
            return f"put the right data there, then `dataflow scan {root.name}`"
    return f"`dataflow why {root.name} {first}`"


class _Facts:
    """What the store says about everything that is not done, read in a few statements."""

    def __init__(self, store: LoopStore, project: str | None, limit: int) -> None:
        self._store, self._project = store, project
        self.rows: dict[Key, Row] = {}
        self.is_all = True
        for name in ("failed_rows", "blocked_rows"):
            found = self._read(name, limit=limit)
            self.is_all &= len(found) < limit
            for row in found:
                self.rows[row[0], row[1], row[2]] = row
        self._running = {(row[0], row[1], row[2]): row for row in self._read("running_rows", now=store.time())}
        self._missing: dict[Key, list[Row]] = defaultdict(list)
        for row in self._read("missing_inputs", limit=limit):
            self._missing[row[0], row[1], row[2]].append(row)
        self._paused = {(row[0], row[1]): row for row in self._read("paused_jobs")}
        self._closed = {(one.project, one.jobid): one for one in list_closed(store, project=project)}
        self._all_paused = find_pause_of_all(store)
        self._made_by: dict[tuple[str, str], str] = {}
        self.scanned: set[str] = set()
        for owner, datasetid, _, _, producer in self._read("datasets"):
            if producer is not None:
                self._made_by[owner, datasetid] = producer
            else:
                self.scanned.add(datasetid)

    def _read(self, name: str, **params: Any) -> list[Row]:
        return self._store.read(name, {"project": self._project, **params}, file="overview")

    def root(self, key: Key, trail: frozenset[Key]) -> tuple[Root, Key, str]:
        """The root of what holds this dataid up, where it is, and in which words."""
        project, jobid, dataid = key
        row = self.rows.get(key)
        if row is None:
            return self._not_blocked(key)
        if row[3] == "FAILED":
            return Root("FAILED", project, jobid), key, row[7] or "it failed"
        if row[3] == "HOLD":
            return Root("HOLD", project, jobid), key, f"{jobid}/{dataid} is on HOLD"
        if row[4] > 0 and self._missing[key] and key not in trail:
            _, _, _, owner, datasetid, of_dataid, status, problem = self._missing[key][0]
            producer = self._made_by.get((owner, datasetid))
            if producer is not None:
                return self.root((owner, producer, of_dataid), trail | {key})
            where = (owner, datasetid, of_dataid)
            if problem:
                return Root("REJECTED", owner, datasetid), where, f"{datasetid}/{of_dataid} was rejected: {problem}"
            return Root("MISSING", owner, datasetid), where, f"{datasetid}/{of_dataid} is {status or 'not there yet'}"
        code, evidence = find_refusal(row[6]) or ("", "")
        if row[5] is not None:
            return Root(code or "PARKED", project, jobid), key, f"{evidence}; parked until {row[5]}"
        return Root(code or "PENDING", project, jobid), key, evidence or "its inputs are being counted"

    def _not_blocked(self, key: Key) -> tuple[Root, Key, str]:
        project, jobid, dataid = key
        running = self._running.get(key)
        if running is not None:
            return Root("RUNNING", project, jobid), key, f"{jobid}/{dataid} is RUNNING by {running[3]}"
        paused = self._paused.get((project, jobid))
        if paused is not None:
            return Root("PAUSED", project, jobid), (project, jobid, "all"), _held(paused)
        if self._all_paused[0] is not None:
            return self._everything()
        closed = self._closed.get((project, jobid))
        if closed is not None:
            return _closed(closed)
        return Root("NOT_RUN", project, jobid), key, f"{jobid}/{dataid} has not run yet"

    def _everything(self) -> tuple[Root, Key, str]:
        by, until = self._all_paused
        reason = f"nothing is started: paused by {by}, until {until or 'somebody resumes it'}"
        return Root("PAUSED", "", "everything"), EVERYTHING, reason

    def shared(self) -> list[tuple[Root, Key, str, int, tuple[str, str]]]:
        """What holds up whole jobs, and how many dataids of which: chunks `full` that are not READY, people, limits."""
        found = []
        for project, jobid, owner, datasetid, status, problem, number in self._read("missing_shared"):
            producer = self._made_by.get((owner, datasetid))
            if producer is not None:
                root, where, reason = self.root((owner, producer, "full"), frozenset())
            else:
                kind, text = (
                    ("REJECTED", f"was rejected: {problem}")
                    if problem
                    else ("MISSING", f"is {status or 'not there yet'}")
                )
                root, where = Root(kind, owner, datasetid), (owner, datasetid, "full")
                reason = f"{datasetid}/full {text}, and every dataid of {jobid} reads it"
            found.append((root, where, reason, number, (project, jobid)))
        for (project, jobid), row in self._paused.items():
            root = Root("PAUSED", project, jobid)
            found.append((root, (project, jobid, "all"), _held(row), row[3], (project, jobid)))
        found += [(*_closed(one), one.ready, job) for job, one in self._closed.items() if one.ready]
        if self._all_paused[0] is not None:
            ready = [((row[0], row[1]), row[2]) for row in self._read("ready_jobs")]
            found += [(*self._everything(), number, job) for job, number in ready or [(EVERYTHING[:2], 0)]]
        return found


def _held(row: Row) -> str:
    return f"{row[1]} is held by {row[2]}" + (f" until {row[4]}" if row[4] else "")


def _closed(one: Closed) -> tuple[Root, Key, str]:
    project = "" if one.connection else one.project
    reason = f"nothing is started: the limit of {one.limit_of} is 0"
    return Root("LIMIT", project, one.limit_of), (project, one.limit_of, "all"), reason

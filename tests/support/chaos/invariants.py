"""What must hold after a storm, judged from the store's history and the scripts' own journal; a line each."""

import json
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from support.chaos.fleet import Hit
from support.chaos.plan import GUARD, SCRIPT, Size
from support.chaos.work import FAILED_WITH, JOBS, Note, failures_expected, still_alive
from support.projects import Project


class Invariant(NamedTuple):
    """Something that must hold; `wrong` says where it does not."""

    name: str
    fact: str
    wrong: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        found = f"; {len(self.wrong)} wrong: {' | '.join(self.wrong[:5])}" if self.wrong else ""
        return f"{'OK  ' if not self.wrong else 'FAIL'} {self.name}: {self.fact}{found}"


class Run(NamedTuple):
    runid: int
    job: str
    dataid: str
    status: str
    owner: str
    pid: int
    guard_pid: int
    claimed_at: float
    ended_at: float | None
    exit_code: int | None


class Change(NamedTuple):
    """A row of the history of jobs on dataids."""

    id: int
    at: float
    job: str
    dataid: str
    old: str | None
    new: str | None
    runid: int | None


class Facts:
    """Everything that was written down, read once."""

    def __init__(self, project: Project, notes: list[Note], hits: list[Hit], size: Size, seed: int) -> None:
        self.project, self.notes, self.hits, self.size, self.seed = project, notes, hits, size, seed
        rows = project.sql(
            "SELECT runid, jobid, dataid, status, owner, pid, guard_pid, claimed_at, ended_at, exit_code FROM run"
            " ORDER BY runid"
        )
        self.runs = [_run(*row) for row in rows]
        found = project.sql(
            "SELECT id, at, name, dataid, old_status, new_status, runid FROM history WHERE kind = 'job' ORDER BY id"
        )
        self.changes = [Change(int(row[0]), moment(row[1]), *row[2:]) for row in found]

    @property
    def dataids(self) -> list[str]:
        return [str(number) for number in range(1, self.size.chunks + 1)]


def moment(value: Any) -> float:
    found = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    return found.timestamp()


def _run(*row: Any) -> Run:
    runid, job, dataid, status, owner, pid, guard, claimed_at, ended_at, code = row
    ended = moment(ended_at) if ended_at else None
    return Run(int(runid), job, dataid, status, owner, pid, guard, moment(claimed_at), ended, code)


def judge(facts: Facts) -> list[Invariant]:
    return [
        all_complete(facts),
        published_once(facts),
        made_by_the_published_run(facts),
        one_live_owner(facts),
        one_live_script(facts),
        within_limits(facts),
        failures_as_drawn(facts),
        nobody_helped(facts),
        counters_agree(facts),
    ]


# The work -------------------------------------------------------------------------------------------------------------
def all_complete(facts: Facts) -> Invariant:
    rows = facts.project.sql("SELECT jobid, status, count(*) FROM job_status GROUP BY jobid, status")
    found = {(job, status): int(n) for job, status, n in rows}
    wrong = [f"{n} of {job} are {status}" for (job, status), n in found.items() if status != "COMPLETE"]
    wrong += [f"{job} has {n} COMPLETE" for job in JOBS if (n := found.get((job, "COMPLETE"), 0)) != facts.size.chunks]
    ran = len(facts.runs)
    return Invariant("all COMPLETE", f"{facts.size.chunks} chunks × {len(JOBS)} jobs in {ran} runs", tuple(wrong))


def published_once(facts: Facts) -> Invariant:
    """By the history of the chunks, by the manifests, and by the runs."""
    rows = facts.project.sql(
        "SELECT name, dataid, count(*) FROM history WHERE kind = 'chunk' AND new_status = 'READY' GROUP BY name, dataid"
    )
    opened = {(name, dataid): int(n) for name, dataid, n in rows}
    manifests = Counter(facts.project.sql("SELECT datasetid, dataid FROM data_manifest"))
    complete = Counter((JOBS[run.job], run.dataid) for run in facts.runs if run.status == "COMPLETE")
    wrong = []
    for dataset in JOBS.values():
        for dataid in facts.dataids:
            key = (dataset, dataid)
            counts = opened.get(key, 0), manifests[key], complete[key]
            if counts != (1, 1, 1):
                wrong.append(f"{dataset}/{dataid}: {counts[0]} times READY, {counts[1]} manifests, {counts[2]} runs")
    return Invariant(
        "every chunk published exactly once", f"{sum(opened.values())} publishes of {len(opened)} chunks", tuple(wrong)
    )


def made_by_the_published_run(facts: Facts) -> Invariant:
    """What is in the file is what the published run wrote, from the input that it had read; that script ran once."""
    root = facts.project.folder / "data"
    version = {
        (name, dataid): int(found)
        for name, dataid, found in facts.project.sql(
            "SELECT datasetid, dataid, version FROM datastatus WHERE locktype = 'OUT'"
        )
    }
    ends = Counter(note.runid for note in facts.notes if note.what == "end")
    starts = Counter(note.runid for note in facts.notes if note.what == "start")
    wrong = [f"run {runid} was started {n} times" for runid, n in starts.items() if n > 1]
    wrong += [f"load/{note.dataid} read half a file" for note in facts.notes if note.what == "torn"]
    for (name, dataid), runid in version.items():
        if ends[runid] != 1:
            wrong.append(f"{name}/{dataid} is published by run {runid}, whose script ended {ends[runid]} times")
        by = (dataid, str(runid), *([str(version["raw", dataid])] if name == "loaded" else []))
        if (text := _words(root / name / f"{dataid}.txt")) != by:
            wrong.append(f"{name}/{dataid} holds {' '.join(text)}, not {' '.join(by)}")
    return Invariant("what is published is what its run made", f"{len(version)} files read", tuple(wrong))


def _words(path: Path) -> tuple[str, ...]:
    return tuple(path.read_text().split()) if path.exists() else ()


# Owners ---------------------------------------------------------------------------------------------------------------
def one_live_owner(facts: Facts) -> Invariant:
    """Claims of a chunk by the history: each begins after the one before it has ended, with a greater token."""
    live: dict[tuple[str, str], Change] = {}
    last: dict[tuple[str, str], int] = defaultdict(int)
    wrong, claims = [], 0
    for change in facts.changes:
        key = change.job, change.dataid
        if change.new == "RUNNING":
            claims += 1
            if key in live:
                wrong.append(f"{'/'.join(key)} claimed by run {change.runid} while run {live[key].runid} held it")
            if change.runid is None or change.runid <= last[key]:
                wrong.append(f"{'/'.join(key)}: token {change.runid} after {last[key]}")
            live[key], last[key] = change, change.runid or 0
        elif change.old == "RUNNING":
            began = live.pop(key, None)
            if began is None or began.runid != change.runid or began.at > change.at:
                wrong.append(f"{'/'.join(key)}: run {change.runid} ended, but {began and began.runid} held it")
    wrong += [f"{'/'.join(key)} is still held" for key in live]
    wrong += [f"run {run.runid} has no end" for run in facts.runs if run.ended_at is None]
    return Invariant("never two live owners of a chunk", f"{claims} claims", tuple(wrong))


def one_live_script(facts: Facts) -> Invariant:
    """Scripts by their own journal: none begins while one of an earlier run lives, none writes after a later one began.

    Where worker and guard were both hit, nobody was left to end the script; then only its publish is refused.
    """
    unguarded = _unguarded(facts)
    newest: dict[tuple[str, str], int] = defaultdict(int)
    wrong, spared = [], 0
    for note in still_alive(facts.notes):
        if int(note.more[0]) in unguarded:
            spared += 1
        else:
            wrong.append(f"{note.job}/{note.dataid}: run {note.runid} began while {' '.join(note.more)} lived")
    for note in facts.notes:
        key = note.job, note.dataid
        if note.what == "start":
            newest[key] = max(newest[key], note.runid)
        elif note.what in ("end", "fail") and note.runid < newest[key]:
            if note.runid in unguarded:
                spared += 1
            else:
                wrong.append(f"{note.job}/{note.dataid}: run {note.runid} wrote after run {newest[key]} began")
    outlived = f", {spared} outlived worker and guard that were both hit and were refused" if spared else ""
    fact = f"{len(facts.notes)} lines of the journal{outlived}"
    return Invariant("never two live scripts of a chunk", fact, tuple(wrong))


def _unguarded(facts: Facts) -> set[int]:
    """Runs whose worker and guard were both killed or stopped while they ran."""
    found = set()
    for run in facts.runs:
        hits = [hit for hit in facts.hits if _was_live(run, hit.at)]
        worker = any(run.pid in hit.pids for hit in hits)
        guard = any(run.guard_pid in hit.pids for hit in hits)
        if worker and guard:
            found.add(run.runid)
    return found


def _was_live(run: Run, at: float) -> bool:
    return run.claimed_at <= at and (run.ended_at is None or run.ended_at >= at)


# Limits ---------------------------------------------------------------------------------------------------------------
def within_limits(facts: Facts) -> Invariant:
    """At every claim: no more live runs of the job than the limit of that moment, by the history of both.

    Where the clock does not tell a change from a claim (SQLite writes milliseconds), the wider limit counts.
    """
    limits = _limits(facts.project)
    wrong, widest, checked = [], Counter[str](), 0
    for job in JOBS:
        live = 0
        for change in sorted((one for one in facts.changes if one.job == job), key=lambda one: (one.at, one.id)):
            if change.old == "RUNNING":
                live -= 1
            if change.new != "RUNNING":
                continue
            live += 1
            checked += 1
            widest[job] = max(widest[job], live)
            if live > (limit := _limit_at(limits[job], change.at)):
                wrong.append(f"{live} runs of {job} at {change.at:.3f} with a limit of {limit} (run {change.runid})")
    steps = sum(len(one) - 1 for one in limits.values())
    return Invariant(
        "no limit exceeded", f"{checked} claims under {steps} changes, at most {dict(widest)} at once", tuple(wrong)
    )


def _limits(project: Project) -> dict[str, list[tuple[float, int]]]:
    """By job: from when on which limit, from the table of changes; the last one must be what is in force."""
    declared = {job: (int(n), now) for job, n, now in project.sql("SELECT jobid, concurrency, max_runs FROM job")}
    found = {job: [(0.0, n)] for job, (n, _) in declared.items()}
    for at, job, becomes in project.sql(
        "SELECT at, jobid, becomes FROM limit_history WHERE what = 'scale' ORDER BY id"
    ):
        found[job].append((moment(at), int(becomes) if becomes is not None else declared[job][0]))
    for job, steps in found.items():
        assert steps[-1][1] == declared[job][1], f"limit_history of {job} ends with {steps[-1]}, not {declared[job]}"
    return found


def _limit_at(steps: list[tuple[float, int]], at: float) -> int:
    before = [limit for since, limit in steps if since < at]
    return max([before[-1], *(limit for since, limit in steps if since == at)])


# The rest -------------------------------------------------------------------------------------------------------------
def failures_as_drawn(facts: Facts) -> Invariant:
    """The runs that failed are those whose scripts decided to; deaths are at most those that were dealt out."""
    failed = [run for run in facts.runs if run.status == "FAILED"]
    wrong = [f"run {run.runid} of {run.job}/{run.dataid} FAILED with {run.exit_code}" for run in failed
             if run.exit_code != FAILED_WITH]  # fmt: skip
    expected = failures_expected(facts.size, facts.seed)
    if len(failed) != expected:
        wrong.append(f"{len(failed)} runs failed, the seed says {expected}")
    dealt = sum(len(hit.pids) for hit in facts.hits if hit.kind == "kill" and hit.whom in (GUARD, SCRIPT))
    died = [run for run in facts.runs if run.status == "RESUBMIT" and (run.exit_code or 0) > 128]
    if len(died) > dealt:
        wrong.append(f"{len(died)} scripts died, {dealt} were killed: {[run.runid for run in died][:8]}")
    return Invariant(
        "only what was to fail failed", f"{len(failed)} failures, all tried again; {len(died)} deaths", tuple(wrong)
    )


def nobody_helped(facts: Facts) -> Invariant:
    """Every change of a status was a worker's."""
    rows = facts.project.sql("SELECT actor, count(*) FROM history WHERE new_status <> 'PENDING' GROUP BY actor")
    owners = {run.owner for run in facts.runs}
    wrong = [f"{n} changes by {actor}" for actor, n in rows if actor not in owners and not _is_worker(actor, owners)]
    return Invariant("no manual step", f"{sum(int(n) for _, n in rows)} changes by {len(rows)} workers", tuple(wrong))


def _is_worker(actor: str, owners: Iterable[str]) -> bool:
    """One that took nothing before it was killed, but gave back what another had lost."""
    users = {owner.partition("@")[0] for owner in owners}
    return actor.partition("@")[0] in users and actor.rpartition(":")[2].isdigit()


def counters_agree(facts: Facts) -> Invariant:
    done = facts.project.dataflow("db", "check", "--json")
    problems = json.loads(done.stdout)["problems"] if done.stdout else [done.stderr]
    return Invariant("counters agree", "dataflow db check", tuple(map(str, problems)))


# Times ----------------------------------------------------------------------------------------------------------------
def recovery(facts: Facts) -> dict[str, list[float]]:
    """By kind of hit: seconds from it to the next claim of each chunk that it had taken from its owner."""
    claims: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in facts.runs:
        claims[run.job, run.dataid].append(run)
    found: dict[str, list[float]] = defaultdict(list)
    script_runs = {note.pid: note.runid for note in facts.notes if note.what == "start"}
    for hit in facts.hits:
        scripts = {script_runs[pid] for pid in hit.pids if pid in script_runs} if hit.whom == SCRIPT else set()
        for run in facts.runs:
            is_theirs = run.pid in hit.pids or run.guard_pid in hit.pids or run.runid in scripts
            if not is_theirs or run.status not in ("LOST", "RESUBMIT") or not _was_live(run, hit.at):
                continue
            later = [one.claimed_at for one in claims[run.job, run.dataid] if one.runid > run.runid]
            if later:
                found[f"{hit.kind} of {hit.whom}"].append(max(0.0, min(later) - hit.at))
    return found


def told(times: dict[str, list[float]]) -> list[str]:
    lines = []
    for name, values in sorted(times.items()):
        middle = statistics.median(values)
        lines.append(f"     {name}: {len(values)} chunks, median {middle:.2f} s, longest {max(values):.2f} s")
    return lines or ["     nothing was taken from anybody"]

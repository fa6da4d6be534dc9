"""What a person does to a running system: look at runs, resubmit, hold, force, and remove old records."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

from opendataflow.domain.job import Job, JobStatus
from opendataflow.domain.registration import Registration
from opendataflow.domain.runs.questions import CODES, Question
from opendataflow.domain.runs.transitions import JobEvent, next_job_status
from opendataflow.errors import Refused, UsageError
from opendataflow.store.claims import LoopStore
from opendataflow.store.rows import Params, Row, utc_text
from opendataflow.store.status_counts import fold_tally

FILE = "operations"
PAGE = 1_000  # runs that a look reads at first, four times as many each time after
LOOK_AT = 50_000  # runs of other jobs that it passes over before it says so
BATCH = 2_000  # rows that one transaction of `history clean` looks at: some tens of milliseconds
LONGEST_RUN_DAYS = 7  # a run that began longer before a window is not looked for in it
NEARLY = 1_000  # changes of the same moment whose numbers may not be in the order of their times
NEWEST = 2**62
_CASCADED = frozenset({JobStatus.COMPLETE, JobStatus.FAILED, JobStatus.RUNNING})
_RUN = (
    "runid", "project", "jobid", "dataid", "attempt", "forced", "status", "owner", "claimed_at", "ended_at",
    "exit_code", "message", "log_path",
)  # fmt: skip
_WATCHED = ("status", "log_path", "log_tail", "exit_code", "message", "lease_until", "expired")
_T = TypeVar("_T")
Read = Callable[[str, Params], list[Row]]


class Key(NamedTuple):
    """A job on a dataid."""

    project: str
    jobid: str
    dataid: str


def get_project(store: LoopStore, project: str | None) -> str:
    """The project that is meant: the one given, or the only one of the store."""
    if project is not None:
        return project
    found = [row[0] for row in store.read("projects", {}, file=FILE)]
    if len(found) == 1:
        return str(found[0])
    raise UsageError(f"this store has the projects {', '.join(found) or '(none)'}; set DATAFLOW_PROJECT to one of them")


# Runs -----------------------------------------------------------------------------------------------------------------
def list_runs(
    store: LoopStore, *, project: str | None, jobid: str | None, status: str | None, since: str | None, before: int,
    limit: int, until: str | None = None, dataid: str | None = None,
) -> tuple[list[dict[str, Any]], int | None]:  # fmt: skip
    """The newest runs first; and, when it stopped before the oldest, the number from where to go on."""
    if until is not None:
        before = min(before, first_run_since(store, until))
    lowest = first_run_since(store, since) if since is not None else 0
    found: list[Row] = []
    page, seen = PAGE, 0
    while len(found) < limit and seen < LOOK_AT:
        low, number = store.read("run_page", {"before": before, "lowest": lowest, "limit": page}, file=FILE)[0]
        if not number:
            return _as_runs(found), None
        wanted = {
            "project": project, "jobid": jobid, "dataid": dataid, "status": status, "since": since,
            "limit": limit - len(found),
        }  # fmt: skip
        found += store.read("list_runs", {**wanted, "before": before, "lowest": low}, file=FILE)
        before, seen, page = low, seen + number, page * 4
    return _as_runs(found), None if len(found) >= limit else before


def runs_of_dataid(
    store: LoopStore, key: Key, *, status: str | None, since: str | None, before: int, limit: int
) -> list[dict[str, Any]]:
    """The runs of one dataid, the newest first."""
    wanted = {**key._asdict(), "status": status, "since": since, "before": before, "limit": limit}
    return _as_runs(store.read("runs_of_dataid", wanted, file=FILE))


def _as_runs(rows: list[Row]) -> list[dict[str, Any]]:
    return [dict(zip(_RUN, row, strict=True)) | {"forced": bool(row[5])} for row in rows]


def first_run_since(store: LoopStore, moment: str) -> int:
    """The number from which on runs began at that moment or later. Both grow together, so a few seeks find it."""
    return first_since(store, "run", moment)


def first_since(store: LoopStore, table: str, moment: str) -> int:
    """The same for `run` or `history`."""
    low, high = store.read(f"{table}_bounds", {}, file=FILE)[0]
    if low is None:
        return 0
    high += 1
    while low < high:
        middle = (low + high) // 2
        rows = store.read(f"{table}_from", {"number": middle, "moment": moment}, file=FILE)
        if rows and rows[0][1]:
            low = rows[0][0] + 1
        else:
            high = middle
    return int(low)


def watch_run(store: LoopStore, runid: int) -> dict[str, Any]:
    """How a run stands: status, log, and whether its lease has run out."""
    rows = store.read("watch_run", {"runid": runid, "now": store.time()}, file=FILE)
    if not rows:
        raise UsageError(f"there is no run {runid}; see `dataflow runs`")
    return dict(zip(_WATCHED, rows[0], strict=True))


# Resubmitting ---------------------------------------------------------------------------------------------------------
def find_failed(
    store: LoopStore, *, project: str, jobid: str | None, since: str | None = None, until: str | None = None
) -> list[Key]:
    """Dataids that are FAILED now; with a window, those of which a run failed or was lost in it."""
    wanted = {"project": project, "jobid": jobid, "since": since, "until": until}
    return [Key(*row) for row in store.read("failed_rows", wanted, file=FILE)]


def find_ran(store: LoopStore, *, project: str, jobid: str | None, since: float, until: float) -> list[Key]:
    """Every dataid of which a run was under way in the window (seconds since the epoch)."""
    wanted = {
        "project": project, "jobid": jobid, "since": utc_text(since), "until": utc_text(until),
        "lowest": first_run_since(store, utc_text(since - LONGEST_RUN_DAYS * 86_400)),
        "before": first_run_since(store, utc_text(until + 0.001)),
    }  # fmt: skip
    return [Key(*row) for row in store.read("ran_between", wanted, file=FILE)]


def resubmit(
    store: LoopStore, keys: Iterable[Key], *, only: frozenset[JobStatus] | None = None, cascade: bool = False,
    downstream: bool = False, dry_run: bool = False, reason: str = "",
) -> list[dict[str, Any]]:  # fmt: skip
    """Set RESUBMIT on the dataids, all or none; returns what became of each.

    With `only`, those that are in another status by now are left. With `cascade`, what read their outputs follows when
    they are published, if they came out different from what was read, and so on; a dry run lists who that could be.
    With `downstream`, everything that read them, and so on, is set to RESUBMIT at once.
    """
    roots = list(keys)
    if dry_run:
        read = reader(store)
        return list(_spread(read, None, roots, only, cascade=cascade, downstream=downstream))

    def change() -> list[dict[str, Any]]:
        with store.transaction(file=FILE, actor=signed(store, reason) if reason else None) as tx:

            def write(key: Key) -> None:
                tx.run("resubmit", {**key._asdict(), "now": store.time()})
                if cascade:
                    tx.run("have_readers_follow", key._asdict())

            # The readers of a quiet cascade are not looked at before there is something to compare.
            return list(_spread(tx.rows, write, roots, only, cascade=False, downstream=downstream))

    return store.again(change)


def reader(store: LoopStore) -> Read:
    """Reads this file's statements outside any transaction."""
    return lambda name, params: store.read(name, params, file=FILE)


def _spread(
    rows: Read, write: Callable[[Key], None] | None, roots: list[Key], only: frozenset[JobStatus] | None, *,
    cascade: bool, downstream: bool,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """A dataid is closed before its readers are looked at: whoever claims later finds it closed."""
    queue = deque(roots)
    seen, first = set(roots), set(roots)
    links: dict[tuple[str, str], list[Row]] = {}
    while queue:
        key = queue.popleft()
        is_root = key in first
        before = rows("row_of", key._asdict())
        if not before:
            if is_root:
                raise UsageError(f"{key.jobid} has no dataid {key.dataid!r}; see `dataflow status {key.jobid}`")
            continue
        status = JobStatus(before[0][0])
        allowed = only if is_root else _CASCADED
        if allowed is None or status in allowed:
            again = status is JobStatus.RUNNING or bool(before[0][1])
            after = str(next_job_status(status, JobEvent.RESUBMIT))
            if write is not None:
                write(key)
                after, again = (row := rows("row_of", key._asdict())[0])[0], bool(row[1])
            if_changed = not is_root and not downstream
            yield {
                **key._asdict(), "before": str(status), "status": after, "again": again, "cascade": not is_root,
                "if_changed": if_changed,
            }  # fmt: skip
        elif is_root:
            continue  # it moved on meanwhile
        if cascade or downstream:
            for one in find_readers(rows, key, links):
                if one not in seen:
                    seen.add(one)
                    queue.append(one)


def find_readers(rows: Read, key: Key, links: dict[tuple[str, str], list[Row]]) -> Iterator[Key]:
    """The dataids that read the outputs of this one, whichever way their inputs are mapped.

    `links` keeps what was found of a job's readers from call to call.
    """
    of_job = (key.project, key.jobid)
    if of_job not in links:
        links[of_job] = rows("readers_of_job", {"project": key.project, "jobid": key.jobid})
    for project, jobid, map_, dataset_project, datasetid in links[of_job]:
        reader = {"project": project, "jobid": jobid}
        if map_ == "same":
            yield Key(project, jobid, key.dataid)
        elif map_ == "full":
            if key.dataid == "full":
                yield from (Key(project, jobid, row[0]) for row in rows("begun_rows", reader))
        else:
            chunk = {"dataset_project": dataset_project, "datasetid": datasetid, "dataid": key.dataid}
            yield from (Key(project, jobid, row[0]) for row in rows("mapped_readers", {**reader, **chunk}))


# Holding --------------------------------------------------------------------------------------------------------------
_STEPS = {
    (JobEvent.HOLD, JobStatus.RUNNING): "wait until it has ended, or hold the whole job so that nothing more starts",
    (JobEvent.HOLD, JobStatus.COMPLETE): "it is done; to have it done again later, resubmit it and then hold it",
}


def hold(store: LoopStore, job: Job, dataids: Iterable[str], *, reason: str = "") -> list[dict[str, Any]]:
    """Put dataids on HOLD, all or none; the history says who and why."""
    return _change(store, job, dataids, JobEvent.HOLD, JobStatus.HOLD, reason)


def release(store: LoopStore, job: Job, dataids: Iterable[str]) -> list[dict[str, Any]]:
    """Take dataids off HOLD, all or none: they are PENDING."""
    return _change(store, job, dataids, JobEvent.RELEASE, JobStatus.PENDING, "")


def _change(
    store: LoopStore, job: Job, dataids: Iterable[str], event: JobEvent, wanted: JobStatus, reason: str
) -> list[dict[str, Any]]:
    done = []
    with store.transaction(file=FILE, actor=signed(store, reason)) as tx:
        for dataid in dataids:
            key = {"project": job.project, "jobid": job.jobid, "dataid": dataid}
            rows = tx.rows("row_of", key)
            if not rows:
                raise UsageError(f"{job.jobid} has no dataid {dataid!r}; see `dataflow status {job.jobid}`")
            before = JobStatus(rows[0][0])
            if before is not wanted:
                try:
                    after = next_job_status(before, event)
                except UsageError as error:
                    step = _STEPS.get((event, before), f"see `dataflow why {job.jobid} {dataid}`")
                    raise UsageError(f"{job.jobid}/{dataid}: {error}; nothing was changed; {step}") from None
                if not tx.run("set_status", {**key, "status": after, "before": before, "now": store.time()}):
                    raise UsageError(f"{job.jobid}/{dataid} has just changed; nothing was done; try again")
            done.append({"jobid": job.jobid, "dataid": dataid, "before": str(before), "status": str(wanted)})
    return done


def signed(store: LoopStore, reason: str) -> str:
    """Who, and why if it was said."""
    return f"{store.actor}: {reason}" if reason else store.actor


def hold_job(store: LoopStore, job: Job, *, reason: str = "") -> tuple[bool, str]:
    """Hold the whole job: what runs goes on, nothing more is claimed. False when it is held already; and by whom."""
    of_job = {"project": job.project, "jobid": job.jobid}
    with store.transaction(file=FILE) as tx:
        done = tx.run("pause_job", {**of_job, "paused_by": signed(store, reason), "now": store.time()})
        return bool(done), str(tx.rows("pause_of", of_job)[0][0])


def release_job(store: LoopStore, job: Job) -> tuple[bool, int]:
    """Let the job be claimed again. False when it was not held; and how many dataids are on HOLD of their own."""
    of_job = {"project": job.project, "jobid": job.jobid}
    with store.transaction(file=FILE) as tx:
        return bool(tx.run("unpause_job", of_job)), int(tx.rows("count_held", of_job)[0][0])


# Forcing --------------------------------------------------------------------------------------------------------------
def make_claimable(store: LoopStore, job: Job, dataid: str) -> None:
    """Before a forced claim: RESUBMIT what is done or failed, release what is held; refused while it is in use."""
    key = {"project": job.project, "jobid": job.jobid, "dataid": dataid}

    def change() -> None:
        with store.transaction(file=FILE, actor=f"{store.actor} force") as tx:
            status, _, owner = tx.rows("row_of", key)[0]
            if status == JobStatus.RUNNING:
                raise locked(f"{job.jobid}/{dataid} is RUNNING by {owner}")
            if readers := tx.rows("live_readers", key):
                who = ", ".join(f"{datasetid} by {reader} (run {run})" for datasetid, reader, run in readers)
                raise locked(f"{job.jobid}/{dataid}: its output is being read: {who}")
            if status in (JobStatus.COMPLETE, JobStatus.FAILED):
                tx.run("resubmit", {**key, "now": store.time()})
            elif status == JobStatus.HOLD:
                after = next_job_status(JobStatus.HOLD, JobEvent.RELEASE)
                tx.run("set_status", {**key, "status": after, "before": status, "now": store.time()})

    store.again(change)


def locked(what: str) -> Refused:
    return Refused(f"{what}; not even force goes on; try again when that has ended", exit_code=CODES[Question.SAFE][1])


# Removing records -----------------------------------------------------------------------------------------------------
def delete_run(store: LoopStore, runid: int) -> dict[str, Any]:
    """Remove the record of one ended run, and its manifests where no chunk points at them; nothing else."""
    from opendataflow.store.stale import expand

    expand(store)
    with store.transaction(file=FILE) as tx:
        rows = tx.rows("run_record", {"runid": runid})
        if not rows:
            raise UsageError(f"there is no run {runid}; see `dataflow runs`")
        _, project, jobid, dataid, status, owner, log_path = rows[0]
        if not tx.run("delete_run", {"runid": runid}):
            raise Refused(
                f"run {runid} of {jobid}/{dataid} is RUNNING by {owner}; its record can go when it has ended",
                exit_code=CODES[Question.SAFE][1],
            )
        manifests = tx.run("delete_manifests", {"runid": runid, "dataid": dataid})
    of_run = {"runid": runid, "project": project, "jobid": jobid, "dataid": dataid, "status": status}
    return {**of_run, "manifests": manifests, "log_path": log_path}


class Cleaned(NamedTuple):
    runs: int
    history: int


def clean_history(
    store: LoopStore, project: str, *, jobid: str | None, before: str | None, dry_run: bool = False
) -> Iterator[Cleaned]:
    """Delete finished runs and history, batch by batch, each a transaction; with `dry_run`, count them.

    Job and chunk state, manifests, live runs and the last run of every FAILED dataid stay, with their history.
    """
    from opendataflow.store.stale import expand

    what = {"project": project, "jobid": jobid, "before": before}
    seen = store.read("newest_history", {}, file=FILE)[0][0]
    if not dry_run:
        expand(store)  # what runs read is in their records until it is worked in, and what was published in the history
    newest_run = store.read("newest_run", {}, file=FILE)[0][0]
    if dry_run:
        newest = store.read("newest_history", {}, file=FILE)[0][0]
    else:
        with store.transaction(file=FILE) as tx:
            fold_tally(tx)  # the counts live on what is deleted here
            newest = min(tx.rows("folded_history", {})[0][0], seen)
    if before is not None:  # what is younger has higher numbers, and is not even looked at
        newest_run = min(newest_run, first_run_since(store, before))
        newest = min(newest, first_since(store, "history", before) + NEARLY)
    for deleted in _clean(store, "run", "runs", what, newest_run, dry_run):
        yield Cleaned(deleted, 0)
    # The newest change stays: SQLite would give its number again, and the tally would miss what comes next.
    for deleted in _clean(store, "history", "history", what, newest - 1, dry_run):
        yield Cleaned(0, deleted)


def _clean(store: LoopStore, table: str, rows: str, what: Params, newest: int, dry_run: bool) -> Iterator[int]:
    after = 0
    while True:
        bounds = {"after": after, "upto": newest, "limit": BATCH}
        upto = store.read(f"{table}_batch", bounds, file=FILE)[0][0]
        if upto is None:
            return
        batch = {**what, "after": after, "upto": upto}
        if dry_run:
            yield int(store.read(f"count_old_{rows}", batch, file=FILE)[0][0])
        else:
            with store.transaction(file=FILE, actor=f"history clean by {store.actor}") as tx:
                deleted = tx.run(f"delete_old_{rows}", batch)
            yield deleted
        after = upto


# Health ---------------------------------------------------------------------------------------------------------------
def clock_ahead_seconds(store: LoopStore) -> float:
    """By how much the database's clock is ahead of ours, as seen half-way through the question."""
    asked = store.clock()
    theirs = float(store.read("clock_seconds", {}, file=FILE)[0][0])
    return theirs - (asked + store.clock()) / 2


def expired_leases(store: LoopStore, *, project: str | None, limit: int = 100) -> list[dict[str, Any]]:
    rows = store.read("expired_leases", {"project": project, "now": store.time(), "limit": limit}, file=FILE)
    return [dict(zip(("jobid", "dataid", "owner", "lease_until"), row, strict=True)) for row in rows]


def not_applied(store: LoopStore, wanted: Registration) -> list[str]:
    """Datasets and jobs that the store has otherwise than the project declares them. Takes no lock."""
    of = {"project": wanted.project}

    def read(name: str) -> list[Row]:
        return store.read(name, of, file="registry")

    datasets = {str(row[1]): tuple(row) for row in read("datasets_of")}
    declared = {one.datasetid: tuple(one) for one in wanted.datasets}
    jobs = {str(row[1]): [tuple(row[2:])] for row in read("jobs_of")}
    for jobid, *link in read("job_links_of"):
        jobs.setdefault(jobid, []).append(tuple(link))
    specs = {}
    for one in wanted.jobs:
        fields = one._asdict()
        links = sorted(fields.pop("links"), key=lambda link: str(link.itemtype))
        specs[one.jobid] = [tuple(fields.values())[1:], *(tuple(link) for link in links)]
    found = [f"dataset {name}" for name in sorted({*datasets, *declared}) if datasets.get(name) != declared.get(name)]
    return found + [f"job {name}" for name in sorted({*jobs, *specs}) if jobs.get(name) != specs.get(name)]

"""Registration and the operators' verbs: what a project declares, chunks that arrive, RESUBMIT, and reports."""

import datetime
import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from opendataflow.domain.chunk import ChunkStatus, Manifest
from opendataflow.domain.dataset import Dataset
from opendataflow.domain.partitions.scheme import check_dataid
from opendataflow.domain.registration import Registration
from opendataflow.domain.runs.questions import CODES, Question
from opendataflow.domain.runs.transitions import ChunkEvent, next_chunk_status
from opendataflow.errors import ConfigurationError, Refused, UsageError
from opendataflow.store.claims import LoopStore, Transaction, recount_in
from opendataflow.store.job_rows import apply_job, expect_dataids
from opendataflow.store.places import home_below
from opendataflow.store.rows import Params, Row, manifest_params
from opendataflow.store.schedules import with_schedules


def _rows(names: str, rows: list[Row]) -> list[dict[str, Any]]:
    columns = names.split()
    return [dict(zip(columns, row, strict=True)) for row in rows]


# Registration ---------------------------------------------------------------------------------------------------------
def apply(
    store: LoopStore,
    wanted: Registration,
    *,
    now: datetime.datetime,
    dry_run: bool = False,
    also: Iterable[tuple[str, Params]] = (),
    then: Callable[[Transaction], None] | None = None,
) -> list[str]:
    """Make the store hold exactly what the project declares; returns what changed, one line each.

    `also` are statements of the registry that come before it, `then` is done after it: all is done, or nothing.
    """
    statements = list(also)
    changes = store.again(lambda: _apply(store, wanted, now, dry_run, statements, then))
    for job in wanted.jobs:
        if any(link.map not in ("same", "full") for link in job.links):
            store.map_new(store.get_job(job.jobid, project=wanted.project))
    return changes


def _apply(
    store: LoopStore, wanted: Registration, now: datetime.datetime, dry_run: bool,
    also: Iterable[tuple[str, Params]], then: Callable[[Transaction], None] | None,
) -> list[str]:  # fmt: skip
    changes: list[str] = []
    with store.transaction(file="registry") as tx:
        tx.run("stamp_environment", {"environment": wanted.environment})
        stamp = store.time()
        of = {"project": wanted.project}
        _refuse_other_bindings(tx, wanted)
        wanted = with_schedules(store, tx, wanted)
        for name, params in also:
            tx.run(name, params)
        _apply_datasets(tx, wanted, changes, stamp)
        other_data = bool(changes)
        _refuse_other_producers(tx, wanted)
        known_jobs = {row[1]: tuple(row[2:]) for row in tx.rows("jobs_of", of)}
        known_links = defaultdict(list)
        for jobid, *link in tx.rows("job_links_of", of):
            known_links[jobid].append(tuple(link))
        _put_project(tx, store, wanted, stamp)
        for job in wanted.jobs:
            apply_job(tx, wanted.project, job, known_jobs.get(job.jobid), known_links[job.jobid], changes, stamp)
        for jobid in sorted(known_jobs.keys() - {job.jobid for job in wanted.jobs}):
            tx.run("delete_links", {**of, "jobid": jobid})
            tx.run("delete_job", {**of, "jobid": jobid})
            changes.append(f"- job {jobid} (its history stays)")
        for job in wanted.jobs:
            expect_dataids(tx, wanted.project, job, now)
            mapped = any(link.map not in ("same", "full") for link in job.links)
            other_scheme = job.jobid in known_jobs and known_jobs[job.jobid][3] != job.partitions
            if other_scheme or (mapped and other_data):
                # A dataid that left the scheme and is back has inputs that were READY before it.
                tx.run("freeze_chunks", {})
                if mapped:
                    tx.run("forget_inputs", {**of, "jobid": job.jobid, "dataid": None})
                    tx.run("unmap", {**of, "jobid": job.jobid})
                recount_in(tx, {**of, "jobid": job.jobid}, None)
        _apply_limits(tx, wanted, changes)
        if then is not None:
            then(tx)
        if dry_run:
            raise _DryRun(changes)
    return changes


def _put_project(tx: Transaction, store: LoopStore, wanted: Registration, now: Any) -> None:
    moves = wanted.root_moves and "://" not in wanted.root
    place = {
        "root": wanted.root, "home": wanted.home,
        "root_below_home": os.path.relpath(wanted.root, wanted.home) if moves else None,
        "home_below_store": home_below(store.folder, wanted.home),
    }  # fmt: skip
    tx.run("put_project", {"project": wanted.project, "name": wanted.name, "now": now, **place})


def check_name(store: LoopStore, wanted: Registration) -> None:
    """Raise ConfigurationError when the project's folder is registered under another name, and not under this one.

    A changed `name:` would begin a second project over the same files, with nothing of what is known of the first.
    """
    places = store.list_places()
    if any(place.project == wanted.project for place in places):
        return
    others = [place.project for place in places if place.home == wanted.home]
    if others:
        raise ConfigurationError(
            f"this folder is project {others[0]!r} in the store, and project.yml names it {wanted.project!r}, of which "
            "nothing is known; give `name:` as it was, or run `dataflow apply --new-project` to begin a second project "
            "over the same files"
        )


def _apply_limits(tx: Transaction, wanted: Registration, changes: list[str]) -> None:
    known = {name: (declared, project) for name, declared, project in tx.rows("declared_limits", {})}
    for name, limit in wanted.limits:
        declared, project = known.get(name, (None, wanted.project))
        if project != wanted.project:
            raise ConfigurationError(
                f"limits.{name}: project {project} has declared {declared} for this connection; let one of them say it"
            )
        if declared != limit:
            tx.run("declare_limit", {"name": name, "declared": limit, "project": wanted.project})
            changes.append(f"{'+' if declared is None else '~'} limit {name}")
    for name, (_, project) in sorted(known.items()):
        if project == wanted.project and name not in dict(wanted.limits):
            tx.run("undeclare_limit", {"name": name})
            tx.run("forget_limit", {"name": name})
            changes.append(f"- limit {name}")


class _DryRun(Exception):
    def __init__(self, changes: list[str]) -> None:
        super().__init__("dry run")
        self.changes = changes


def plan(store: LoopStore, wanted: Registration, *, now: datetime.datetime) -> list[str]:
    """What `apply` would change; nothing is."""
    try:
        return apply(store, wanted, now=now, dry_run=True)
    except _DryRun as dry:
        return dry.changes


def forget_project(store: LoopStore, empty: Registration) -> None:
    """Take a project out of the registry, with what is kept of its repository; chunks, runs and history stay."""
    of = {"project": empty.project}

    def forget(tx: Transaction) -> None:
        for name in ("delete_project", "delete_git_project", "delete_git_versions"):
            tx.run(name, of)

    apply(store, empty, now=datetime.datetime.now(datetime.UTC), then=forget)


def _apply_datasets(tx: Transaction, wanted: Registration, changes: list[str], now: Any) -> None:
    of = {"project": wanted.project}
    known = {row[1]: Dataset(*row) for row in tx.rows("datasets_of", of)}
    written = []
    for dataset in wanted.datasets:
        old = known.pop(dataset.datasetid, None)
        if old != dataset:
            written.append({**dataset._asdict(), "now": now})
            changes.append(f"{'+' if old is None else '~'} dataset {dataset.datasetid}")
    tx.run_many("put_dataset", written)
    for datasetid in sorted(known):
        tx.run("delete_dataset", {**of, "datasetid": datasetid})
        changes.append(f"- dataset {datasetid} (its chunks stay)")


def _refuse_other_bindings(tx: Transaction, wanted: Registration) -> None:
    """What was bound while project.yml was read would be lost until the next time."""
    if wanted.bound is None:
        return
    found: dict[str, dict[str, Any]] = {}
    for datasetid, field, value in tx.rows("bound_values", {"project": wanted.project}):
        found.setdefault(datasetid, {})[field] = json.loads(value)
    if found != {datasetid: dict(fields) for datasetid, fields in wanted.bound.items()}:
        raise ConfigurationError("sources were bound in this store meanwhile; nothing was changed, try again")


def _refuse_other_producers(tx: Transaction, wanted: Registration) -> None:
    """All that other projects have against it, a line each."""
    elsewhere = {(row[0], row[1]): f"{row[2]}.{row[3]}" for row in tx.rows("producers", {}) if row[2] != wanted.project}
    wrong = []
    for job in wanted.jobs:
        for link in job.links:
            other = elsewhere.get((link.dataset_project, link.datasetid))
            if link.itemtype == "OUT" and other:
                wrong.append(f"job {job.jobid}: dataset {link.datasetid} is already produced by {other}")
            elif link.dataset_project != wanted.project and not tx.rows(
                "find_dataset", {"project": link.dataset_project, "datasetid": link.datasetid}
            ):
                wrong.append(
                    f"job {job.jobid}: this store has no dataset {link.dataset_project}.{link.datasetid}; "
                    "apply that project first"
                )
    if wrong:
        raise ConfigurationError("\n".join(wrong))


# Operators' verbs -----------------------------------------------------------------------------------------------------
def get_dataset(store: LoopStore, datasetid: str, *, project: str | None) -> tuple[Dataset, str]:
    """The dataset and its project's root, or raise UsageError."""
    rows = store.read("find_dataset", {"datasetid": datasetid, "project": project}, file="registry")
    if not rows:
        near = store.suggestion(datasetid, "datasets_of", project)
        hint = store.as_job(datasetid, project) or f"{near}add it to project.yml and run `dataflow apply`"
        raise UsageError(f"dataset {datasetid!r} is not registered; {hint}")
    if len(rows) > 1:
        raise UsageError(f"several projects have a dataset {datasetid!r}; set DATAFLOW_PROJECT to one of them")
    dataset = Dataset(*rows[0])
    return dataset, store.get_place(dataset.project).root


def assert_ready(store: LoopStore, dataset: Dataset, dataid: str, manifest: Manifest) -> str:
    """Declare a chunk READY from outside; refused while a run produces or reads it."""
    return store.again(lambda: _assert_ready(store, dataset, dataid, manifest))


def _assert_ready(store: LoopStore, dataset: Dataset, dataid: str, manifest: Manifest) -> str:
    check_dataid(dataset.datasetid, dataset.partitions, dataid)
    key = {"project": dataset.project, "datasetid": dataset.datasetid, "dataid": dataid}
    now = store.time()
    manifest = manifest._replace(location=store.stored_location(dataset.project, manifest.location))
    with store.transaction(file="registry") as tx:
        rows = tx.rows("get_chunk_status", key)
        before = ChunkStatus(rows[0][0]) if rows else ChunkStatus.PENDING
        readers = tx.rows("readers_of", key)
        if before is ChunkStatus.RUNNING or readers:
            who = ", ".join(f"{job} (run {run})" for job, run in readers) or "its producer"
            raise Refused(
                f"{dataset.datasetid}/{dataid} is in use by {who}; try again when it has ended",
                exit_code=CODES[Question.SAFE][1],
            )
        next_chunk_status(before, ChunkEvent.ASSERT)
        version = tx.next_token()
        written = {**key, **manifest_params(manifest, now), "version": version, "now": now}
        tx.run("assert_chunk", written)
        tx.run("insert_manifest", written)
        tx.run("try_readers_now", key)
    return before


# Reports --------------------------------------------------------------------------------------------------------------
_JOB_ROW = "project jobid dataid status waiting attempts runid owner lease_until parked_until modified"
_RUN = (
    "runid project jobid dataid attempt forced status owner claimed_at ended_at exit_code message answers inputs "
    "log_path log_tail"
)


def job_rows(
    store: LoopStore, *, project: str | None, jobid: str | None, status: str | None, limit: int
) -> list[dict[str, Any]]:
    params = {"project": project, "jobid": jobid, "status": status, "limit": limit}
    return _rows(_JOB_ROW, store.read("job_rows", params, file="registry"))


def find_job_row(store: LoopStore, project: str, jobid: str, dataid: str) -> dict[str, Any] | None:
    params = {"project": project, "jobid": jobid, "dataid": dataid}
    found = _rows(_JOB_ROW + " refusal again deaths", store.read("get_job_row", params, file="registry"))
    return found[0] if found else None


def get_run(store: LoopStore, runid: int) -> dict[str, Any]:
    found = _rows(_RUN, store.read("get_run", {"runid": runid}, file="registry"))
    if not found:
        raise UsageError(f"there is no run {runid}; see `dataflow why JOB DATAID` for the runs of a dataid")
    return found[0]


def runs_of(store: LoopStore, project: str, jobid: str, dataid: str, *, limit: int = 20) -> list[dict[str, Any]]:
    params = {"project": project, "jobid": jobid, "dataid": dataid, "limit": limit}
    return _rows(_RUN, store.read("runs_of", params, file="registry"))


def history_of(store: LoopStore, project: str, kind: str, name: str, dataid: str) -> list[dict[str, Any]]:
    params = {"project": project, "kind": kind, "name": name, "dataid": dataid}
    names = "at kind name dataid old_status new_status runid actor"
    return _rows(names, store.read("history_of", params, file="registry"))


RECOUNT_ALL = ("freeze_history", "empty_tally", "count_all", "tally_upto")


# Checking -------------------------------------------------------------------------------------------------------------
def check(store: LoopStore, *, repair: bool) -> list[str]:
    """What is wrong with the store, one line each; with `repair`, counters and stray locks are set right.

    Looking takes no lock: each query sees counters and chunks as of one moment.
    """
    found = [f"database: {problem}" for problem in store.integrity()]
    if not repair:
        return found + [problem for problem, _ in _problems(lambda name: store.read(name, {}, file="registry"))]
    return found + store.again(lambda: _repair(store))


def _repair(store: LoopStore) -> list[str]:
    found = []
    with store.transaction(file="registry", actor=f"{store.actor} db check") as tx:
        tx.run("freeze_chunks", {})
        for problem, fix in _problems(lambda name: tx.rows(name, {})):
            found.append(problem)
            for name, params in fix:
                tx.run(name, params)
    return found


def _problems(rows: Callable[[str], list[Row]]) -> Iterator[tuple[str, list[tuple[str, Params]]]]:
    for project, jobid, shared, counted in rows("wrong_shared_counters"):
        yield (
            f"job {jobid} waits for {shared} shared inputs by its counter, {counted} by its chunks",
            [("recount_shared", {"project": project, "jobid": jobid})],
        )
    for project, jobid, dataid in rows("missing_rows"):
        of = {"project": project, "jobid": jobid}
        yield f"{jobid}/{dataid} has an input but no row", [("adopt_ready", of), ("recount", {**of, "dataid": dataid})]
    for project, jobid, dataid, waiting, counted in rows("wrong_counters"):
        yield (
            f"{jobid}/{dataid} waits for {waiting} inputs by its counter, {counted} by its chunks",
            [("recount", {"project": project, "jobid": jobid, "dataid": dataid})],
        )
    for kind, _, name, status, told, counted in rows("wrong_tally"):
        yield (
            f"{kind} {name} has {told} {status} by the tally, {counted} when counted",
            [(name, {}) for name in RECOUNT_ALL],
        )
    for project, datasetid, dataid, reader in rows("orphan_locks"):
        key = {"project": project, "datasetid": datasetid, "dataid": dataid, "reader": reader}
        yield f"{datasetid}/{dataid} is locked by run {reader}, which has ended", [("release_orphan", key)]

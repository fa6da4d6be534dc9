"""Runs: the list of them, everything about one, its log, and what it made."""

import codecs
import datetime
import json
import os
from typing import Any, NamedTuple

from opendataflow.domain.dataset import path_segment
from opendataflow.domain.streams import find_settings
from opendataflow.errors import UsageError
from opendataflow.operations.explain import explain, find_sharing
from opendataflow.operations.time_parsing import moment
from opendataflow.project.address import Address
from opendataflow.server.downloads import Download, File, download, files_of
from opendataflow.server.problems import NotThere
from opendataflow.storage.files import is_inside
from opendataflow.store.claims import LoopStore
from opendataflow.store.operations import NEWEST, Key, list_runs, runs_of_dataid, watch_run
from opendataflow.store.records.git import commits_of
from opendataflow.store.records.requests import find_abort
from opendataflow.store.registry import get_dataset, get_run, history_of
from opendataflow.store.reports.check_results import find_findings
from opendataflow.store.reports.live import made_by
from opendataflow.store.reports.pipelines import find_run
from opendataflow.store.rows import utc_text

LOG_BYTES = 256 * 1024  # of a log that one answer brings
TAIL_BYTES = 64 * 1024  # of a log that the page begins with
HISTORY = 50
DATE_LENGTH = len("2025-11-12")


class RunsAsked(NamedTuple):
    """Which runs; None: all."""

    project: str | None = None
    job: str | None = None
    dataid: str | None = None
    status: str | None = None
    since: str | None = None  # a time, a date, or 2h
    until: str | None = None
    before: int | None = None  # the cursor: runs with a lower number
    limit: int = 50


def find_runs(store: LoopStore, asked: RunsAsked) -> dict[str, Any]:
    """The newest first; `next` is the cursor of those after them, None at the end."""
    since = None if asked.since is None else utc_text(moment(asked.since))
    until = None if asked.until is None else utc_text(moment(asked.until, end=True))
    before = NEWEST if asked.before is None else asked.before
    go_on: int | None = None
    if asked.job is not None and asked.dataid is not None and until is None:
        project = asked.project or store.get_job(asked.job).project
        key = Key(project, asked.job, asked.dataid)
        rows = runs_of_dataid(store, key, status=asked.status, since=since, before=before, limit=asked.limit)
    else:
        rows, go_on = list_runs(
            store, project=asked.project, jobid=asked.job, dataid=asked.dataid, status=asked.status, since=since,
            until=until, before=before, limit=asked.limit,
        )  # fmt: skip
    if len(rows) == asked.limit:
        go_on = int(rows[-1]["runid"])
    now = store.clock()
    return {"runs": [_shown(row, now) for row in rows], "next": go_on}


def _shown(run: dict[str, Any], now: float) -> dict[str, Any]:
    kept = {name: run[name] for name in run if name not in ("log_path", "answers", "inputs", "log_tail")}
    return {**kept, "forced": bool(run["forced"]), "seconds": seconds_of(run, now)}


def seconds_of(run: dict[str, Any], now: float) -> float | None:
    """How long it took; of one that runs, until now."""
    start = datetime.datetime.fromisoformat(run["claimed_at"]).timestamp()
    end = now if run["ended_at"] is None else datetime.datetime.fromisoformat(run["ended_at"]).timestamp()
    return round(max(end - start, 0.0), 3)


# One run --------------------------------------------------------------------------------------------------------------
def get_shown(store: LoopStore, runid: int) -> dict[str, Any]:
    """A run's row, or NotThere."""
    try:
        return get_run(store, runid)
    except UsageError:
        raise NotThere(f"there is no run {runid}; see the list of runs") from None


def one_run(store: LoopStore, address: Address, runid: int) -> dict[str, Any]:
    """Everything that is known of a run."""
    row = get_shown(store, runid)
    watched = watch_run(store, runid)
    is_live = row["status"] == "RUNNING"
    asked = find_abort(store, runid) if is_live else None
    pipeline = find_run(store, runid)
    outputs = made_by(store, row)
    inputs = [
        {"project": one[0], "dataset": one[1], "dataid": one[2], "version": one[3]} for one in json.loads(row["inputs"])
    ]
    place = find_log(address, row)
    return {
        **_shown(row, store.clock()),
        "lease_until": watched["lease_until"] if is_live else None,
        "expired": bool(is_live and watched["expired"]),
        "abort_asked_by": asked[0] if asked else None,
        "answers": json.loads(row["answers"]),
        "inputs": inputs,
        "outputs": outputs,
        "checks": _checks(store, row, outputs),
        "commit": _commit(pipeline) or commits_of(store, [runid]).get(runid),
        "engine": pipeline["engine"] if pipeline else None,
        "application": pipeline["application"] if pipeline else None,
        "transformations": pipeline["transformations"] if pipeline else [],
        "sharing": _sharing(store, row) if pipeline else "",
        "history": history_of(store, row["project"], "job", row["jobid"], row["dataid"])[-HISTORY:],
        "log_bytes": os.path.getsize(place) if place else None,
        "can_abort": is_live and not _is_stream(store, row),
    }  # fmt: skip


def _is_stream(store: LoopStore, row: dict[str, Any]) -> bool:
    if not store.has_job(row["jobid"], project=row["project"]):
        return False
    return find_settings(store.get_job(row["jobid"], project=row["project"])) is not None


def _sharing(store: LoopStore, row: dict[str, Any]) -> str:
    if not store.has_job(row["jobid"], project=row["project"]):
        return ""
    return find_sharing(store, store.get_job(row["jobid"], project=row["project"]))


def _commit(pipeline: dict[str, Any] | None) -> str | None:
    if pipeline is None or not pipeline["git_commit"]:
        return None
    return f"{pipeline['git_commit']}{' and changes that are not committed' if pipeline['dirty'] else ''}"


def _checks(store: LoopStore, row: dict[str, Any], outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What was found of the chunks of this run, unless a later run's findings are in their place."""
    datasets = {(one["project"], one["dataset"]) for one in outputs}
    if not datasets and store.has_job(row["jobid"], project=row["project"]):
        job = store.get_job(row["jobid"], project=row["project"])
        datasets = {(link.dataset.project, link.dataset.datasetid) for link in job.outputs}
    found = []
    for project, datasetid in sorted(datasets):
        dataset, _ = get_dataset(store, datasetid, project=project)
        for one in find_findings(store, dataset, row["dataid"]):
            if one["runid"] == row["runid"]:
                found.append({"dataset": datasetid, **{name: one[name] for name in ("check", "result", "detail")}})
    return found


# Its log --------------------------------------------------------------------------------------------------------------
def find_log(address: Address, row: dict[str, Any]) -> str | None:
    """The log's file, where it is on this host and below the folder that runs write to."""
    logs = os.path.join(address.work, "logs")
    usual = os.path.join(logs, path_segment(row["jobid"]), f"{row['runid']}.log")
    for path in (row["log_path"], usual):
        if path and os.path.isfile(path) and is_inside(path, logs):
            return str(path)
    return None


def read_log(place: str | None, row: dict[str, Any], *, start: int, is_over: bool) -> dict[str, Any]:
    """A log's text from a byte on, and where the next begins; without its file, the tail that the store has, whole.

    What ends within a character is left for the next time.
    """
    if place is None:
        return {"text": row["log_tail"], "next": 0, "whole": False, "replaces": True, "more": False}
    size = os.path.getsize(place)
    start = max(size + start, 0) if start < 0 else min(start, size)
    with open(place, "rb") as file:
        file.seek(start)
        data = file.read(LOG_BYTES)
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    is_last = is_over and start + len(data) >= size
    text = decoder.decode(data, final=is_last)
    end = start + len(data) - len(decoder.getstate()[0])
    return {"text": text, "next": end, "whole": True, "replaces": False, "more": end < size}


# What it made ---------------------------------------------------------------------------------------------------------
class Made(NamedTuple):
    run: dict[str, Any]
    outputs: list[dict[str, Any]]
    roots: dict[str, str]  # project → the environment's root


def find_made(store: LoopStore, runid: int) -> Made:
    """What a run published; raises UsageError when that was nothing."""
    run = get_shown(store, runid)
    outputs = [one for one in made_by(store, run) if one["location"]]
    if not outputs:
        raise UsageError(f"run {runid} of {run['jobid']}/{run['dataid']} is {run['status']} and published no files")
    roots = {one["project"]: get_dataset(store, one["dataset"], project=one["project"])[1] for one in outputs}
    return Made(run, outputs, roots)


def download_of(made: Made) -> Download:
    """The only file as it is, else a zip with a folder for each dataset."""
    files: list[File] = []
    for one in made.outputs:
        dataset, location = one["dataset"], one["location"]
        try:
            found = files_of(location, root=made.roots[one["project"]], told=dataset)
        except OSError as error:
            raise NotThere(f"{dataset}: {location}: {error.strerror or error}; it may be superseded") from error
        files += [file._replace(name=f"{dataset}/{file.name}") for file in found]
    if not files:
        raise NotThere(f"run {made.run['runid']} published no files")
    return download(f"{made.run['jobid']}_{made.run['dataid']}_run_{made.run['runid']}", files)


# A job on a dataid ----------------------------------------------------------------------------------------------------
def why(store: LoopStore, project: str, jobid: str, dataid: str) -> dict[str, Any]:
    """What `dataflow why JOB DATAID` says, or NotThere."""
    if not store.has_job(jobid, project=project):
        raise NotThere(f"there is no job {jobid} in project {project}")
    job = store.get_job(jobid, project=project)
    try:
        told = explain(store, job, dataid)
    except UsageError as error:
        raise NotThere(str(error)) from None
    runs = [{**run, "forced": bool(run["forced"])} for run in told["runs"]]
    outputs = [{"project": link.dataset.project, "dataset": link.dataset.datasetid} for link in job.outputs]
    inputs = [{"project": link.dataset.project, "dataset": link.dataset.datasetid} for link in job.inputs]
    return {
        **told, "project": project, "runs": runs, "history": told["history"][-HISTORY:], "kind": job.kind,
        "is_stream": find_settings(job) is not None, "inputs": inputs, "outputs": outputs,
    }  # fmt: skip

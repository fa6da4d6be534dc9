"""A pipeline as a job's work: the Spark child, what it is told for each run, and what it says it wrote.

The child stays for all runs of this runner, because Spark takes seconds to start and a chunk may take less.
"""

import contextlib
import errno
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from opendataflow.domain.chunk import Manifest
from opendataflow.domain.dataset import Dataset, variable_prefix
from opendataflow.domain.job import Job, Link
from opendataflow.domain.run import Claim
from opendataflow.errors import ConfigurationError
from opendataflow.runner.runjob import Locations, Work
from opendataflow.runner.script import audit_output
from opendataflow.store.loop import LoopStore

CHILD = "opendataflow.spark.child"
LEFTOVER_SECONDS = 86_400.0  # files of runs that nobody ended here are older than any live one by then


def pipeline_work(job: Job, work_folder: str, *, store: LoopStore, say: Callable[[str], None]) -> Work:
    """Run the pipeline's transformations on Spark, each run in a directory of its own."""
    folder = os.path.join(work_folder, "runs")
    for link in job.links:
        if link.dataset.location is None:
            raise ConfigurationError(
                f"pipeline {job.jobid} uses dataset {link.dataset.datasetid}, which has no path; "
                "pipelines read and write files"
            )
    (output,) = job.outputs

    def argv(_claim: Claim, _locations: Locations) -> list[str]:
        # -P: what lies in the caller's folder must not stand in for a library of the same name.
        return [sys.executable, "-P", "-m", CHILD]

    def task(claim: Claim, locations: Locations) -> str:
        os.makedirs(folder, exist_ok=True)
        _remove_leftovers(folder)
        spec, result = _paths(folder, claim)
        _write_private(spec, chunk_spec(job, claim, locations))
        return json.dumps({"spec": spec, "result": result})

    def manifests(claim: Claim, locations: Locations) -> tuple[tuple[str, str, Manifest], ...]:
        paths = _paths(folder, claim)
        try:
            said = _read_result(paths[1])
        finally:
            for path in paths:
                _remove(path)
        manifest = _manifest(run_directory(output, claim, locations), said)
        manifest = audit_output(output.dataset, claim, manifest, root=job.root, store=store, say=say)
        return ((output.dataset.project, output.dataset.datasetid, manifest),)

    def published(claim: Claim, locations: Locations) -> None:
        show_current(run_directory(output, claim, locations), claim.runid)

    def reason(claim: Claim) -> str:
        result = _paths(folder, claim)[1]
        try:
            return str(_read_result(result).get("error", ""))
        except OSError:
            return ""
        finally:
            _remove(result)

    return Work(argv, manifests, task, reason, published)


def chunk_spec(job: Job, claim: Claim, locations: Locations) -> dict[str, Any]:
    """Everything the child needs to produce this chunk; opendataflow.spark.spec reads it."""
    (output,) = job.outputs
    return {
        "home": job.home,
        "slug": job.jobid,
        "transformations": job.definition.get("transformations") or [],
        "dataid": claim.dataid,
        "runid": claim.runid,
        "spark": job.definition.get("spark") or {},
        "environment": _environment(job, claim, locations),
        "sources": [_place(link.dataset, locations[link.dataset[:2]]) for link in job.inputs],
        "destination": _place(output.dataset, run_directory(output, claim, locations)),
    }


def run_directory(output: Link, claim: Claim, locations: Locations) -> str:
    """Where this run writes. A pipeline never writes over what is published, also where the dataset's path is fixed."""
    place = locations[output.dataset[:2]] or ""
    return place if output.dataset.has_own_runs else f"{place}/_runs/{claim.runid}"


def show_current(location: str, runid: int) -> None:
    """Let `current` beside `_runs/` lead to this run, for people; never back to an older one."""
    folder = os.path.dirname(os.path.dirname(location))
    link = os.path.join(folder, "current")
    if "://" in location or os.path.lexists(link) != os.path.islink(link):
        return  # no symlinks there, or somebody's own file
    shown = os.path.basename(os.readlink(link)) if os.path.islink(link) else "0"
    if shown.isdigit() and int(shown) >= runid:
        return
    with contextlib.suppress(OSError):  # a file system without symlinks
        os.symlink(f"_runs/{runid}", f"{link}.{runid}")
        os.replace(f"{link}.{runid}", link)


def _environment(job: Job, claim: Claim, locations: Locations) -> dict[str, str]:
    """What of the child's environment changes from run to run."""
    env = {
        "dataid": claim.dataid,
        "DATAFLOW_RUN_ID": str(claim.runid),
        "DATAFLOW_ATTEMPT": str(claim.attempt),
        "DATAFLOW_TOKEN": str(claim.runid),
    }
    for link in job.links:
        prefix = variable_prefix(link.dataset.datasetid)
        is_output = link.itemtype == "OUT"
        place = run_directory(link, claim, locations) if is_output else locations[link.dataset[:2]] or ""
        env |= {f"{prefix}_location": place, f"{prefix}_LOCATION": place}
    return env


def _place(dataset: Dataset, location: str | None) -> dict[str, Any]:
    declared = json.loads(dataset.definition or "{}")
    return {
        "datasetid": dataset.datasetid,
        "location": location,
        "format": dataset.format,
        "options": declared.get("options") or {},
        "schema": declared.get("schema"),
    }


def _manifest(location: str, said: dict[str, Any]) -> Manifest:
    """What lies there, seen by the runner itself; rows and schema as the child read them from the files' footers."""
    from opendataflow.runner.files import is_local, manifest_of

    seen = manifest_of(location) if is_local(location) else Manifest(location=location)
    return seen._replace(rows=said["rows"], schema=said["schema"])


# The two files between runner and child ---------------------------------------------------------------------------
def _paths(folder: str, claim: Claim) -> tuple[str, str]:
    return os.path.join(folder, f"{claim.runid}.json"), os.path.join(folder, f"{claim.runid}.result.json")


def _write_private(path: str, value: dict[str, Any]) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(handle, "w", encoding="utf-8") as file:
        json.dump(value, file)


def _read_result(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            return dict(json.load(file))
    except (FileNotFoundError, ValueError) as error:
        raise FileNotFoundError(errno.ENOENT, "the Spark child ended without saying what it wrote", path) from error


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _remove_leftovers(folder: str) -> None:
    old = time.time() - LEFTOVER_SECONDS
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        with contextlib.suppress(FileNotFoundError):
            if os.stat(path).st_mtime < old:
                os.unlink(path)

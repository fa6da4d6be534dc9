"""A pipeline as a job's work: the Spark child, what it is told, and what it says it wrote."""

import errno
import json
import os
import sys
import time
from typing import Any

from opendataflow.domain.chunk import Manifest
from opendataflow.domain.dataset import Dataset
from opendataflow.domain.job import Job, Link
from opendataflow.domain.run import Claim
from opendataflow.errors import ConfigurationError
from opendataflow.runner.runjob import Work

Locations = dict[tuple[str, str], str | None]

CHILD = "opendataflow.spark.child"
LEFTOVER_SECONDS = 86_400.0  # files of runs that nobody ended here are older than any live one by then


def pipeline_work(job: Job, work_folder: str) -> Work:
    """Run the pipeline's transformations on Spark, each run in a directory of its own."""
    folder = os.path.join(work_folder, "runs")
    for link in job.links:
        if link.dataset.location is None:
            raise ConfigurationError(
                f"pipeline {job.jobid} uses dataset {link.dataset.datasetid}, which has no path; "
                "pipelines read and write files"
            )
    (output,) = job.outputs

    def argv(claim: Claim, locations: Locations) -> list[str]:
        os.makedirs(folder, exist_ok=True)
        _remove_leftovers(folder)
        spec, result = _paths(folder, claim)
        _write_private(spec, chunk_spec(job, claim, locations))
        # -P: what lies in the caller's folder must not stand in for a library of the same name.
        return [sys.executable, "-P", "-m", CHILD, spec, result]

    def manifests(claim: Claim, locations: Locations) -> tuple[tuple[str, str, Manifest], ...]:
        paths = _paths(folder, claim)
        try:
            said = _read_result(paths[1])
        finally:
            for path in paths:
                _remove(path)
        manifest = _manifest(run_directory(output, claim, locations), said)
        return ((output.dataset.project, output.dataset.datasetid, manifest),)

    return Work(argv, manifests)


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
        "sources": [_place(link.dataset, locations[link.dataset[:2]]) for link in job.inputs],
        "destination": _place(output.dataset, run_directory(output, claim, locations)),
    }


def run_directory(output: Link, claim: Claim, locations: Locations) -> str:
    """Where this run writes. A pipeline never writes over what is published, also where the dataset's path is fixed."""
    place = locations[output.dataset[:2]] or ""
    return place if output.dataset.has_own_runs else f"{place}/_runs/{claim.runid}"


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
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def _remove_leftovers(folder: str) -> None:
    old = time.time() - LEFTOVER_SECONDS
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        try:
            if os.stat(path).st_mtime < old:
                os.unlink(path)
        except FileNotFoundError:
            pass

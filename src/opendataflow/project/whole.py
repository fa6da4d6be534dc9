"""What must hold between the jobs and datasets of a project: producers, order, schemes and places."""

import json
import os
from collections.abc import Callable

from opendataflow.domain.dataset import Dataset, is_below
from opendataflow.domain.maps import check_map
from opendataflow.domain.partitions import kind
from opendataflow.domain.places import find_overlap
from opendataflow.domain.registration import JobSpec, LinkSpec
from opendataflow.errors import UsageError
from opendataflow.project.source import Path, Source


def producers(source: Source, jobs: list[JobSpec]) -> dict[str, JobSpec]:
    producer: dict[str, JobSpec] = {}
    for job in jobs:
        for link in job.links:
            if link.itemtype == "OUT" and (other := producer.setdefault(link.datasetid, job)) is not job:
                raise source.error(("datasets", link.datasetid), f"is produced by both {other.jobid} and {job.jobid}")
    return producer


def in_order(
    source: Source, me: str, jobs: list[JobSpec], producer: dict[str, JobSpec], places: dict[str, Path]
) -> list[JobSpec]:
    """The jobs, each after those whose outputs it reads; jobs that wait for each other are an error."""
    reads = {
        job.jobid: [
            producer[link.datasetid]
            for link in job.links
            if link.itemtype == "IN" and link.dataset_project == me and link.datasetid in producer
        ]
        for job in jobs
    }
    ordered: dict[str, JobSpec] = {}
    for first in jobs:
        trail = {first.jobid: (first, iter(reads[first.jobid]))} if first.jobid not in ordered else {}
        while trail:
            jobid, (job, rest) = next(reversed(trail.items()))
            before = next((one for one in rest if one.jobid not in ordered), None)
            if before is None:
                ordered[jobid] = job
                del trail[jobid]
            elif before.jobid in trail:
                names = list(trail)
                circle = [*names[names.index(before.jobid) :], before.jobid]
                raise source.error(places[before.jobid], f"jobs wait for each other: {' → '.join(circle)}")
            else:
                trail[before.jobid] = (before, iter(reads[before.jobid]))
    return list(ordered.values())


def with_schemes(
    source: Source,
    me: str,
    jobs: list[JobSpec],
    ordered: list[JobSpec],
    datasets: dict[str, Dataset],
    places: dict[str, Path],
) -> tuple[JobSpec, ...]:
    """Each job with the scheme its dataids come from: its output's, or that of the first input that has one.

    Datasets that a job makes get its scheme, unless they declare one.
    """
    made: dict[str, str | None] = {}  # the scheme of each dataset that a job makes

    def of_dataset(link: LinkSpec) -> str | None:
        if link.dataset_project != me:
            return None
        declared = datasets[link.datasetid].partitions
        return made.get(link.datasetid) if declared is None else declared

    schemes: dict[str, str | None] = {}
    for job in ordered:
        schemes[job.jobid] = _scheme_of(source, job, me, datasets, of_dataset, places)
        made |= {link.datasetid: schemes[job.jobid] for link in job.links if link.itemtype == "OUT"}
    whole = tuple(job._replace(partitions=schemes[job.jobid]) for job in jobs)
    for job in whole:
        _check_maps(source, job, of_dataset, places[job.jobid])
    for datasetid, found in made.items():
        if datasets[datasetid].partitions is None and found not in (None, '"none"'):
            datasets[datasetid] = datasets[datasetid]._replace(partitions=found)
    return whole


def _scheme_of(
    source: Source,
    job: JobSpec,
    me: str,
    datasets: dict[str, Dataset],
    of_dataset: Callable[[LinkSpec], str | None],
    places: dict[str, Path],
) -> str | None:
    inputs = [link for link in job.links if link.itemtype == "IN"]
    clocks = [link for link in inputs if link.dataset_project == me and datasets[link.datasetid].clock]
    if len(clocks) > 1:
        names = " and ".join(repr(link.datasetid) for link in clocks)
        raise source.error((*places[job.jobid], "inputs"), f"a job goes by one clock; it reads {names}")
    if clocks:
        return None  # its clock says when
    declared = [datasets[link.datasetid].partitions for link in job.links if link.itemtype == "OUT"]
    kinds = dict.fromkeys(kind(json.loads(one)) for one in declared if one is not None)
    if len(kinds) > 1:
        raise source.error(
            (*places[job.jobid], "outputs"), f"its outputs are partitioned differently: {', '.join(kinds)}"
        )
    same = [of_dataset(link) for link in inputs if link.map == "same"]
    near = [of_dataset(link) for link in inputs if link.map.startswith(("offset", "window"))]
    for found in (*declared, *same, *near):
        if found is not None:
            return found
    # Nothing is mapped dataid by dataid: the whole is one chunk.
    return None if same or near or any(link.map == "rollup" for link in inputs) else '"none"'


def _check_maps(source: Source, job: JobSpec, of_dataset: Callable[[LinkSpec], str | None], at: Path) -> None:
    inputs = [link for link in job.links if link.itemtype == "IN"]
    for index, link in enumerate(inputs):
        place = (*at, "inputs" if job.kind == "script" else "sources", index)
        theirs = of_dataset(link)
        if link.map == "rollup" and job.partitions is None:
            raise source.error(
                place, f"{link.datasetid}: map: rollup needs the output's `partitions`: into days or months?"
            )
        try:
            check_map(
                link.map, scheme=json.loads(job.partitions) if job.partitions else None,
                input_scheme=json.loads(theirs) if theirs else None,
            )  # fmt: skip
        except UsageError as error:
            raise source.error(place, f"{link.datasetid}: {error}") from None


def check_places(source: Source, datasets: dict[str, Dataset], producer: dict[str, JobSpec], root: str) -> None:
    for datasetid, dataset in datasets.items():
        if dataset.location is None:
            continue
        at: Path = ("datasets", datasetid, "path")
        if not is_below(os.path.join(root, dataset.location), root):
            raise source.error(at, "leads out of the environment's root")
        if dataset.has_own_runs and datasetid not in producer and dataset.partitions is not None:
            raise source.error(at, "is partitioned, so its path needs a {dataid}")
        if "{dataid}" in dataset.location and '"values"' in (dataset.partitions or ""):
            values = json.loads(dataset.partitions or "")["values"]
            wrong = next((one for one in values if "/" in one or one in (".", "..")), None)
            if wrong is not None:
                raise source.error(at, f"the dataid {wrong!r} cannot be part of a file's name")
    clash = find_overlap(
        (key, one.location, one.partitions) for key, one in datasets.items() if one.location is not None
    )
    if clash is not None:
        one, other = clash
        theirs, place = datasets[one].location, datasets[other].location
        raise source.error(
            ("datasets", other, "path"),
            f"{place!r} is the same place as that of {one!r}, or one lies in the other: {theirs!r}",
        )

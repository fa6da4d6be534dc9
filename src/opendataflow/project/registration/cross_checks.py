"""What must hold between the jobs and datasets of a project: producers, order, schemes and places."""

import json
import os
from collections.abc import Callable, Mapping

from opendataflow.domain.dataset import Dataset, is_below
from opendataflow.domain.partitions.maps import check_map
from opendataflow.domain.partitions.path_template import why_no_template
from opendataflow.domain.partitions.places import find_overlap
from opendataflow.domain.partitions.scheme import kind, kind_of
from opendataflow.domain.registration import JobSpec, LinkSpec
from opendataflow.errors import UsageError
from opendataflow.project.problems import Problems
from opendataflow.project.source import Path, Source

WHOLE = '"none"'  # the scheme of one chunk


def producers(
    source: Source, jobs: list[JobSpec], written_at: Mapping[str, Path], problems: Problems
) -> dict[str, JobSpec]:
    """Which job makes each dataset; `written_at` says where a dataset stands in the file."""
    producer: dict[str, JobSpec] = {}
    for job in jobs:
        for link in job.links:
            if link.itemtype == "OUT" and (other := producer.setdefault(link.datasetid, job)) is not job:
                at = written_at[link.datasetid]
                name = "" if at[0] == "datasets" else f"{link.datasetid!r} "
                told = f"{name}is produced by both {other.jobid} and {job.jobid}"
                problems.add(str(source.error(at, told)))
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
    problems: Problems,
) -> tuple[JobSpec, ...]:
    """Each job with the scheme its dataids come from: its output's, or that of the first input that has one.

    Datasets that a job makes get its scheme, unless they declare one; of one that is a single chunk it is read by all.
    """
    made: dict[str, str | None] = {}  # the scheme of each dataset that a job makes

    def of_dataset(link: LinkSpec) -> str | None:
        if link.dataset_project != me:
            return None
        declared = datasets[link.datasetid].partitions
        return made.get(link.datasetid) if declared is None else declared

    made_jobs: dict[str, JobSpec] = {}
    for job in ordered:
        scheme = None
        with problems.kept():
            scheme = _scheme_of(source, job, me, datasets, of_dataset, places)
        links = job.links if scheme == WHOLE else tuple(_read_whole(link, of_dataset) for link in job.links)
        made_jobs[job.jobid] = job._replace(partitions=scheme, links=links)
        made |= {link.datasetid: scheme for link in job.links if link.itemtype == "OUT"}
    whole = tuple(made_jobs[job.jobid] for job in jobs)
    if problems:
        return whole
    for job in whole:
        _check_maps(source, job, of_dataset, places[job.jobid], problems)
    for datasetid, found in made.items():
        if datasets[datasetid].partitions is None and found not in (None, WHOLE):
            datasets[datasetid] = datasets[datasetid]._replace(partitions=found)
    return whole


def _read_whole(link: LinkSpec, of_dataset: Callable[[LinkSpec], str | None]) -> LinkSpec:
    """An input that its producer makes as one chunk is read as the whole that it is."""
    is_whole = link.itemtype == "IN" and link.map in ("same", "all") and of_dataset(link) == WHOLE
    return link._replace(map="full") if is_whole else link


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
        key = "inputs" if job.kind == "script" else "sources"
        raise source.error((*places[job.jobid], key), f"a job goes by one clock; it reads {names}")
    if clocks:
        return None  # its clock says when
    declared = [datasets[link.datasetid].partitions for link in job.links if link.itemtype == "OUT"]
    kinds = dict.fromkeys(kind(json.loads(one)) for one in declared if one is not None)
    if len(kinds) > 1:
        raise source.error(
            (*places[job.jobid], "outputs"), f"its outputs are partitioned differently: {', '.join(kinds)}"
        )
    if "stream" in json.loads(job.definition):  # what it makes is sealed slot by slot, as items come
        return declared[0] if declared else None
    same = [of_dataset(link) for link in inputs if link.map == "same" and of_dataset(link) != WHOLE]
    near = [of_dataset(link) for link in inputs if link.map.startswith(("offset", "window"))]
    for found in (*declared, *same, *near):
        if found is not None:
            return found
    # Nothing is mapped dataid by dataid: the whole is one chunk.
    return None if same or near or any(link.map == "rollup" for link in inputs) else WHOLE


def _check_maps(
    source: Source, job: JobSpec, of_dataset: Callable[[LinkSpec], str | None], at: Path, problems: Problems
) -> None:
    inputs = [link for link in job.links if link.itemtype == "IN"]
    for index, link in enumerate(inputs):
        place = (*at, "inputs" if job.kind == "script" else "sources", index)
        theirs = of_dataset(link)
        if link.map == "rollup" and job.partitions is None:
            told = f"{link.datasetid}: map: rollup needs the output's `partitions`: into days or months?"
            problems.add(str(source.error(place, told)))
            continue
        try:
            check_map(
                link.map, scheme=json.loads(job.partitions) if job.partitions else None,
                input_scheme=json.loads(theirs) if theirs else None,
            )  # fmt: skip
        except UsageError as error:
            problems.add(str(source.error(place, f"{link.datasetid}: {error}")))


def check_places(
    source: Source,
    datasets: dict[str, Dataset],
    producer: dict[str, JobSpec] | None,
    root: str,
    undeclared: Mapping[str, Path],
    problems: Problems,
) -> None:
    """Every path below the root and for itself; without `producer` it is not known who makes what."""

    def place_of(datasetid: str) -> Path:
        return undeclared.get(datasetid, ("datasets", datasetid, "path"))

    for datasetid, dataset in datasets.items():
        problem = _why_no_place(datasetid, dataset, producer, root)
        if problem:
            problems.add(str(source.error(place_of(datasetid), problem)))
    clash = find_overlap(
        (key, one.location, one.partitions) for key, one in datasets.items() if one.location is not None
    )
    if clash is not None:
        one, other = clash
        theirs, place = datasets[one].location, datasets[other].location
        told = f"{place!r} is the same place as that of {one!r}, or one lies in the other: {theirs!r}"
        problems.add(str(source.error(place_of(other), told)))


def _other_templates(dataset: Dataset) -> list[str]:
    """Of the files beside the data: the marker that they are complete, and their checksums."""
    declared = json.loads(dataset.definition or "{}")
    files = [one["options"].get("file") for one in declared.get("checks") or () if one["kind"] == "checksum"]
    return [str(one) for one in ((declared.get("arrival") or {}).get("done"), *files) if one]


def _why_no_place(datasetid: str, dataset: Dataset, producer: dict[str, JobSpec] | None, root: str) -> str:
    if dataset.location is None:
        return ""
    if not is_below(os.path.join(root, dataset.location), root):
        return "leads out of the environment's root"
    for template in (dataset.location, *_other_templates(dataset)):
        if problem := why_no_template(template, dataset.partitions):
            return problem
    # A pipeline's destination needs none: each run has files of its own, and a single file is made of all of them.
    is_source = producer is not None and datasetid not in producer
    if is_source and dataset.has_own_runs and dataset.partitions is not None:
        return "is partitioned, so its path needs a {dataid}"
    if "{dataid}" in dataset.location and dataset.partitions is not None and kind_of(dataset.partitions) == "values":
        values = json.loads(dataset.partitions or "")["values"]
        wrong = next((one for one in values if "/" in one or one in (".", "..")), None)
        if wrong is not None:
            return f"the dataid {wrong!r} cannot be part of a file's name"
    return ""

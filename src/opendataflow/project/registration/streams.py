"""What a stream pipeline registers beside itself: the live dataset of its batches, and the job that seals its slots."""

import json
from typing import Any

from opendataflow.domain.dataset import Dataset
from opendataflow.domain.partitions.scheme import kind
from opendataflow.domain.registration import JobSpec, LinkSpec
from opendataflow.domain.streams import DATASET, ITEMS, LIVE, SEAL
from opendataflow.domain.tables import APPEND, find_table
from opendataflow.errors import ConfigurationError
from opendataflow.project.problems import Problems
from opendataflow.project.schema.streams import StreamEntry
from opendataflow.project.source import Path, Source

LIVE_OF = "live_of"  # in the definition of a live dataset: its destination
_TEXT_ENDS = (".csv", ".json", ".jsonl", ".ndjson", ".txt")


def stream_definition(entry: StreamEntry, destination: Dataset, engine: str | None) -> dict[str, Any]:
    """The part of the job's definition that is about its stream; `engine` is what its code is written for.

    Raises ValueError when what it is to return does not go with that.
    """
    name, in_table = destination.datasetid, find_table(destination) is not None
    returns = entry.returns or (DATASET if engine == "pandas" and not in_table else ITEMS)
    if returns == DATASET and engine != "pandas":
        raise ValueError(
            "`returns: dataset` is for transformations on pandas; on Spark they return the rows to add: `returns: "
            "items`. If they are written for pandas, say `engine: pandas`"
        )
    if returns == DATASET and in_table:
        raise ValueError(
            "`returns: dataset` makes files, and the destination is a table; let the transformations return the rows "
            "to add, `returns: items`, or give the destination a `path`"
        )
    names = {"destination": name, "live": f"{name}{LIVE}"}
    return {**entry.definition(), **names, "in_table": in_table, "returns": returns}


def live_of(dataset: Dataset) -> str | None:
    """The destination whose batches are this dataset's chunks; None for any other dataset."""
    if dataset.definition is None or LIVE_OF not in dataset.definition:
        return None
    found = json.loads(dataset.definition).get(LIVE_OF)
    return str(found) if found else None


def with_streams(
    source: Source,
    jobs: tuple[JobSpec, ...],
    datasets: dict[str, Dataset],
    places: dict[str, Path],
    written_at: dict[str, Path],
    problems: Problems,
) -> tuple[JobSpec, ...]:
    """The jobs, each stream with the seal of its slots after it, and `datasets` with the live ones."""
    found: list[JobSpec] = []
    for job in jobs:
        stream = json.loads(job.definition).get("stream")
        if stream is None:
            found.append(job)
            continue
        with problems.kept():
            found += _with_seal(source, job, stream, datasets, places, written_at)
    return tuple(found)


def _with_seal(
    source: Source,
    job: JobSpec,
    stream: dict[str, Any],
    datasets: dict[str, Dataset],
    places: dict[str, Path],
    written_at: dict[str, Path],
) -> tuple[JobSpec, JobSpec]:
    at, me = places[job.jobid], job.links[-1].dataset_project
    name, live, seal = stream["destination"], stream["live"], f"{job.jobid}{SEAL}"
    for taken, known, what in ((live, datasets, "dataset"), (seal, places, "job")):
        if taken in known:
            whose = "the batches of this stream" if what == "dataset" else "what seals this stream"
            raise source.error((*at, "slug"), f"{taken!r} is the {what} of {whose}; call the declared one otherwise")
    destination = datasets[name]
    is_whole = stream["returns"] == DATASET
    if is_whole:
        _check_whole(source, at, destination)
    else:
        _check_destination(source, at, stream["seal"], destination)
    datasets[live] = _live(destination, live, is_whole=is_whole)
    places[seal], written_at[live] = at, (*at, "destination")
    sources = tuple(link for link in job.links if link.itemtype == "IN")
    sealing = {
        "transformations": [], "spark": json.loads(job.definition)["spark"],
        "seal": {"stream": job.jobid, "every": stream["seal"], "records": stream["in_table"] or is_whole},
    }  # fmt: skip
    read = () if is_whole else (LinkSpec("IN", me, live, "rollup"),)
    return (
        job._replace(partitions=None, concurrency=1, links=(*sources, LinkSpec("OUT", me, live))),
        job._replace(
            jobid=seal, definition=json.dumps(sealing, sort_keys=True), partitions=None, timeout_seconds=None,
            concurrency=1, links=(*read, LinkSpec("OUT", me, name)),
        ),
    )  # fmt: skip


def _check_destination(source: Source, at: Path, seal: str, destination: Dataset) -> None:
    """Raise ConfigurationError where the slots of a stream could not be its chunks."""
    if destination.partitions is not None:
        scheme = json.loads(destination.partitions)
        if kind(scheme) != seal:
            raise _wrong(
                source, at, f"is partitioned ({kind(scheme)}), and the stream is sealed {seal}; let them agree"
            )
    table = find_table(destination)
    if table is not None and table.write not in (None, APPEND):
        raise _wrong(source, at, f"has `write: {table.write}`, and a stream appends; leave it out")
    if table is None and destination.location is None:
        raise _wrong(source, at, "has neither a `path` nor a `table` that a stream could write")


def _check_whole(source: Source, at: Path, destination: Dataset) -> None:
    """Raise ConfigurationError where a dataset that is one chunk could not be the destination."""
    scheme = None if destination.partitions is None else kind(json.loads(destination.partitions))
    if scheme != "none":
        raise _wrong(
            source,
            at,
            f"is partitioned ({scheme}), and with `returns: dataset` it is one chunk; leave out `partitions`",
        )
    if destination.location is None:
        raise _wrong(source, at, "has no `path` that a stream could write")


def _wrong(source: Source, at: Path, told: str) -> ConfigurationError:
    return source.error((*at, "destination"), f"the destination {told}")


def _live(destination: Dataset, live: str, *, is_whole: bool) -> Dataset:
    """Where the batches go: files of their own beside the destination's, or the same table.

    Of a whole dataset each batch is a version, in the destination's own format.
    """
    declared = json.loads(destination.definition or "{}")
    if find_table(destination) is not None:
        definition = {**declared, "write": APPEND, LIVE_OF: destination.datasetid}
        return destination._replace(datasetid=live, partitions=None, definition=json.dumps(definition))
    kept = {key: declared[key] for key in ("schema", "checks", *(("options",) if is_whole else ())) if key in declared}
    place, _, _ = (destination.location or "").partition("{dataid}")
    place = place.rstrip("/").removesuffix(".gz")
    ending = next((one for one in _TEXT_ENDS if place.endswith(one)), "")
    location = f"{place.removesuffix(ending).rstrip('/.=-_') or destination.datasetid}{LIVE}"
    return Dataset(
        destination.project, live, location=location, format=destination.format if is_whole else "parquet",
        definition=json.dumps({**kept, LIVE_OF: destination.datasetid}),
    )  # fmt: skip

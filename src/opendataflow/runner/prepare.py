"""Before a claim: look at the places of a candidate's chunks and ask the five questions."""

import os

from opendataflow.domain.chunk import ChunkStatus, Input
from opendataflow.domain.dataset import Dataset, chunk_location, is_below, run_location
from opendataflow.domain.job import Candidate, Job
from opendataflow.domain.questions import Sight, Verdict, ask


def prepare(job: Job, candidate: Candidate) -> Verdict:
    """The five answers for this dataid as things are now. Reads files, changes nothing."""
    sights = tuple(
        look_at_input(chunk, link.dataset, root=job.root)
        for chunk, link in zip(candidate.inputs, job.inputs, strict=True)
    )
    places = tuple(look_at_output(link.dataset, candidate.dataid, root=job.root) for link in job.outputs)
    return ask(candidate, sights=sights, places=places, concurrency=job.concurrency)


def input_location(chunk: Input, dataset: Dataset, *, root: str) -> str | None:
    """Where this very chunk is: as it was published, or as the template says."""
    return chunk.location or chunk_location(dataset, chunk.key.dataid, root=root)


def look_at_input(chunk: Input, dataset: Dataset, *, root: str) -> Sight:
    """See whether the chunk is where it should be, readable and unchanged."""
    location = input_location(chunk, dataset, root=root)
    if location is None or chunk.status is not ChunkStatus.READY:
        return Sight(location)
    if not is_below(location, root):
        return Sight(location, f"{location} is not below {root}, the root of this environment")
    from opendataflow.runner.files import find_files, is_local, is_same

    if not is_local(location):
        return Sight(location)
    try:
        found = find_files(location)
    except OSError as error:
        return Sight(location, f"{location}: {error.strerror}")
    if not os.access(location, os.R_OK):
        return Sight(location, f"{location} cannot be read by this user")
    if chunk.fingerprint is None:
        return Sight(location)
    try:
        same = is_same(location, found, chunk.fingerprint)
    except OSError as error:
        return Sight(location, f"{location}: {error.strerror}")
    return Sight(location, "", chunk.fingerprint if same else "changed")


def look_at_output(dataset: Dataset, dataid: str, *, root: str) -> Sight:
    """See whether a run could write there: the nearest folder that exists must be writable."""
    location = run_location(dataset, dataid, root=root, runid=0)
    if location is None or "://" in location:
        return Sight(location)
    if not is_below(location, root):
        return Sight(location, f"{location} is not below {root}, the root of this environment")
    folder = os.path.dirname(location)
    while not os.path.exists(folder) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK | os.X_OK):
        return Sight(location, f"{folder} cannot be written by this user")
    return Sight(os.path.dirname(location) if dataset.has_own_runs else location)

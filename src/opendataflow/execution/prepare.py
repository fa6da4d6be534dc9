"""Before a claim: look at the places of a candidate's chunks and ask the five questions."""

import os
from collections.abc import Iterable

from opendataflow.domain.chunk import ChunkStatus, Input
from opendataflow.domain.dataset import Dataset, chunk_location, is_below, output_location, why_no_place
from opendataflow.domain.job import Candidate, Job
from opendataflow.domain.partitions.scheme import why_no_dataid
from opendataflow.domain.runs.questions import CODES, Items, Question, Sight, Verdict, ask
from opendataflow.domain.tables import Table, find_table, sqlite_file, table_location
from opendataflow.errors import JobChanged, Refused
from opendataflow.execution.root_marker import why_wrong_root


def prepare(job: Job, candidate: Candidate, items: Items | None = None) -> Verdict:
    """The five answers for this dataid as things are now. Reads files, changes nothing.

    Raises JobChanged when the dataid was read with a newer definition of the job: nothing is claimed with an old one.
    """
    datasets = job.datasets_read
    if not job.fits(candidate):
        raise JobChanged(f"job {job.jobid} was registered anew while its work was looked for; try again")
    if foreign := why_foreign(job, candidate):  # nothing is looked at
        sights: tuple[Sight, ...] = (Sight(None),) * len(candidate.inputs)
        places: tuple[Sight, ...] = (Sight(None),) * len(job.outputs)
    else:
        sights = tuple(look_at_input(chunk, datasets[chunk.key[:2]], root=job.root) for chunk in candidate.inputs)
        places = tuple(look_at_output(job.kind, link.dataset, candidate.dataid, root=job.root) for link in job.outputs)
    unmapped: tuple[str, ...] = ()
    if job.mapped:
        known = {chunk.key[:2] for chunk in candidate.inputs}
        unmapped = tuple(link.dataset.datasetid for link in job.mapped if link.dataset[:2] not in known)
    return ask(
        candidate, sights=sights, places=places, concurrency=job.concurrency, unmapped=unmapped, items=items,
        foreign=foreign,
    )  # fmt: skip


def why_foreign(job: Job, candidate: Candidate) -> str:
    """Why no run of it may begin, not even a forced one: a dataid that its data cannot have; empty when all are theirs.

    A row inserted by hand can have any dataid, and scripts make paths of the variables that hold them. So it is with a
    root that is not this store's: paths below it are somebody else's data.
    """
    if problem := why_wrong_root(job):
        return problem
    if problem := why_no_dataid(job.jobid, job.partitions, candidate.dataid):
        return problem
    for chunk in candidate.inputs:
        dataset = job.datasets_read[chunk.key[:2]]
        if problem := why_no_dataid(dataset.datasetid, dataset.partitions, chunk.key.dataid):
            return problem
    return next((problem for link in job.outputs if (problem := why_no_place(link.dataset, candidate.dataid))), "")


def check_foreign(job: Job, candidate: Candidate) -> None:
    """Raise Refused (INVALID_PATH) for what must not run, not even forced."""
    if foreign := why_foreign(job, candidate):
        code, exit_code = CODES[Question.LOCATION]
        raise Refused(f"{code}: {foreign}", exit_code=exit_code)


def input_location(chunk: Input, dataset: Dataset, *, root: str) -> str | None:
    """Where this very chunk is: as it was published, or as the template or the address of its table says."""
    place = table_location(dataset, chunk.key.dataid, root=root) if dataset.location is None else None
    return place or chunk.location or chunk_location(dataset, chunk.key.dataid, root=root)


def look_at_input(chunk: Input, dataset: Dataset, *, root: str) -> Sight:
    """See whether the chunk is where it should be, readable and unchanged."""
    location = input_location(chunk, dataset, root=root)
    if location is None or chunk.status is not ChunkStatus.READY:
        return Sight(location)
    has_checks = dataset.definition is not None and '"checks"' in dataset.definition
    table = find_table(dataset)
    sight = _look(chunk, location, root=root) if table is None else _look_at_table(chunk, dataset, table, root=root)
    return sight._replace(has_checks=has_checks)


def find_changed(job: Job, inputs: Iterable[Input]) -> list[Input]:
    """Of the chunks that a run has read, those whose files are no longer what was claimed. Contents are read only where
    sizes or times differ.

    Files that are gone are not among them: some scripts remove what they have read. A table is read as of one moment.
    """
    from opendataflow.storage.files import find_files, is_reachable, is_same

    found = []
    for chunk in inputs:
        if chunk.status is not ChunkStatus.READY or chunk.fingerprint is None:
            continue
        location = input_location(chunk, job.datasets_read[chunk.key[:2]], root=job.root)
        if location is None or not is_reachable(location):
            continue
        try:
            if not is_same(location, find_files(location), chunk.fingerprint):
                found.append(chunk)
        except OSError:
            continue
    return found


def _look_at_table(chunk: Input, dataset: Dataset, table: Table, *, root: str) -> Sight:
    """The table's address is this environment's own; whether it can be read is found out by reading it."""
    location = table_location(dataset, chunk.key.dataid, root=root)
    if chunk.location is not None and chunk.producer and chunk.location != location:
        return Sight(location, f"it was published as {chunk.location}, and the dataset is now {location}")
    file = sqlite_file(table.url, root)
    if file is not None and not os.path.isfile(file):
        return Sight(location, f"{file} is not there")
    if file is not None and not os.access(file, os.R_OK):
        return Sight(location, f"{file} cannot be read by this user")
    return Sight(location, _why_no_address(table))


def _why_no_address(table: Table) -> str:
    is_missing = table.url_env is not None and not os.environ.get(table.url_env)
    return f"the environment variable {table.url_env}, which holds its address, is not set" if is_missing else ""


def _look(chunk: Input, location: str, *, root: str) -> Sight:
    if not is_below(location, root):
        return Sight(location, f"{location} is not below {root}, the root of this environment")
    from opendataflow.storage.files import find_inside, is_local, is_reachable, is_same, why_stale

    if not is_reachable(location):
        return Sight(location)
    try:
        found = find_inside(location, root=root, told=f"{chunk.key.datasetid}/{chunk.key.dataid}")
    except Refused as error:  # a link leads out
        return Sight(location, str(error))
    except OSError as error:
        return Sight(location, f"{location}: {error.strerror}")
    if is_local(location) and not os.access(location, os.R_OK):
        return Sight(location, f"{location} cannot be read by this user")
    stale = "" if chunk.producer else why_stale(found, chunk.key.dataid)
    if chunk.fingerprint is None:
        return Sight(location, stale=stale)
    try:
        same = is_same(location, found, chunk.fingerprint)
    except OSError as error:
        return Sight(location, f"{location}: {error.strerror}")
    return Sight(location, "", chunk.fingerprint if same else "changed", stale)


def look_at_output(kind: str, dataset: Dataset, dataid: str, *, root: str) -> Sight:
    """See whether a run could write there: the nearest folder that exists must be writable."""
    location = output_location(kind, dataset, dataid, root=root, runid=0)
    if location is None and kind == "pipeline" and (table := find_table(dataset)) is not None:
        return Sight(table_location(dataset, dataid, root=root), _why_no_target(table, root))
    if location is None or "://" in location:
        return Sight(location)
    if not is_below(location, root):
        return Sight(location, f"{location} is not below {root}, the root of this environment")
    if problem := _why_no_folder(location):
        return Sight(location, problem)
    runs = location.rfind("/_runs/0")  # its number is not known before it is claimed
    return Sight(
        location[: runs + len("/_runs")] if runs >= 0 and (dataset.has_own_runs or kind == "pipeline") else location
    )


def _why_no_target(table: Table, root: str) -> str:
    file = sqlite_file(table.url, root)
    if file is None:
        return _why_no_address(table)
    if os.path.exists(file) and not os.access(file, os.W_OK):
        return f"{file} cannot be written by this user"
    return _why_no_folder(file)


def _why_no_folder(path: str) -> str:
    folder = os.path.dirname(path)
    while not os.path.exists(folder) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
    is_writable = os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)
    return "" if is_writable else f"{folder} cannot be written by this user"

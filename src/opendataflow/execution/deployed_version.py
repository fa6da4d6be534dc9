"""The folders that jobs run from: which commit each is, and whether it is still the one in place."""

import functools
import os

from opendataflow.domain.job import Job
from opendataflow.store.claims import LoopStore

_MARKER = os.path.join(".dataflow", "version.json")


@functools.lru_cache(maxsize=256)
def commit_of(home: str) -> str | None:
    """The commit of a folder that holds a version of a git project; such a folder never changes."""
    if not os.path.exists(os.path.join(home, _MARKER)):
        return None
    from opendataflow.project.version import find_managed

    managed = find_managed(home)
    return None if managed is None else managed.commit


def is_left(store: LoopStore, job: Job) -> bool:
    """True when another version of the job's git project is in place by now."""
    if commit_of(job.home) is None:
        return False
    places = store.list_places(job.project)
    return bool(places) and places[0].home != job.home


def keep_commit(store: LoopStore, job: Job, runid: int) -> None:
    """Record what a script's run is run from; only git projects pay for it."""
    commit = commit_of(job.home)
    if commit is None:
        return
    from opendataflow.errors import StoreUnavailable
    from opendataflow.store.records.git import record_commit

    try:
        record_commit(store, runid, commit)
    except StoreUnavailable:
        pass  # the run itself is worth more than this record

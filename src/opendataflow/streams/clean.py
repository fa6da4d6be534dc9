"""Housekeeping of streams: batches that were sealed, and segments of the log that are past their retention."""

import os
from typing import Any, NamedTuple

from opendataflow.domain.streams import get_settings, slot_of_moment
from opendataflow.operations.clear import Made, RunFolder, remove, run_folders
from opendataflow.project.address import Address, stream_folder
from opendataflow.store.claims import LoopStore
from opendataflow.store.records.streams import first_kept, forget_batches, list_forgettable, list_streams
from opendataflow.store.registry import get_dataset
from opendataflow.store.rows import utc_text

HOUR_SECONDS = 3600.0  # a reader that asked the store before a slot was sealed has that much time


class Sealed(NamedTuple):
    """Batches of a stream whose items are in sealed slots."""

    project: str
    stream: str
    before: str  # slots before this one
    dataids: list[str]
    made: Made | None  # None: in a table, where nothing is removed
    folders: list[RunFolder]

    @property
    def bytes(self) -> int:
        return sum(folder.bytes for folder in self.folders)


def find_sealed(store: LoopStore, *, project: str, now: float) -> list[Sealed]:
    """What batches nobody needs any more, by stream: of slots that are sealed, and past the stream's retention.

    Until then the log could make them again, and `stream replay --since` counts on them.
    """
    found = []
    for row in list_streams(store, project=project):
        settings = row.settings
        job = store.get_job(row.jobid, project=row.project)
        age = max(settings.retention_seconds, HOUR_SECONDS)
        before = slot_of_moment(utc_text(now - age), settings.seal)
        dataids = list_forgettable(store, job, before=before)
        made, folders = None, []
        if dataids and not settings.in_table:
            dataset, root = get_dataset(store, settings.live, project=row.project)
            made = Made(dataset, job, root)
            folders = list(run_folders(store, made, dataids))
        found.append(Sealed(row.project, row.jobid, before, dataids, made, folders))
    return found


def remove_sealed(store: LoopStore, sealed: list[Sealed]) -> None:
    """The store first, the files after it: killed in between, this leaves files that nothing points at."""
    for one in sealed:
        if one.dataids:
            forget_batches(store, store.get_job(one.stream, project=one.project), before=one.before)
        if one.made is not None:
            for folder in one.folders:
                remove(one.made, folder, taken_back=True)


def drop_segments(store: LoopStore, address: Address, *, project: str, now: float) -> int:
    """Remove segments of the logs on this machine that are published and past their retention; how many went."""
    from opendataflow.intake.log import IntakeLog

    gone = 0
    for row in list_streams(store, project=project):
        folder = stream_folder(address, row.project, row.jobid)
        if not os.path.isdir(os.path.join(folder, "log")):
            continue
        job = store.get_job(row.jobid, project=row.project)
        committed = first_kept(store, job)
        log = IntakeLog(folder, begin=committed)
        try:
            gone += log.drop(committed=committed, before=now - get_settings(job).retention_seconds)
        finally:
            log.close()
    return gone


def as_json(sealed: list[Sealed], segments: int | None) -> dict[str, Any]:
    told = [{"stream": one.stream, "batches": len(one.dataids), "bytes": one.bytes} for one in sealed if one.dataids]
    return {"sealed_batches": told, "log_segments": segments}

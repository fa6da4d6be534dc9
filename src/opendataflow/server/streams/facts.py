"""Streams: how all of them stand, and one with its rate over time, its batches and the items that were set aside."""

import datetime
import json
import os
from typing import Any

from opendataflow.domain.job import Job
from opendataflow.domain.streams import INTAKE, Field, event_id, get_settings
from opendataflow.domain.types.datatype import ARRAY, MAP, STRUCT
from opendataflow.domain.types.spark import family, spark_type
from opendataflow.domain.types.values import BOOLEAN, DATE, INTEGER, NUMERIC, TIMESTAMP
from opendataflow.project.address import Address, stream_folder
from opendataflow.server.problems import NotThere
from opendataflow.store.claims import LoopStore
from opendataflow.store.records.streams import StreamRow, find_stream, list_failed
from opendataflow.streams.state import all_streams, describe, describe_source, stream_status

FILE = "jobs"
BAR_SECONDS = 15
BARS = 60  # a quarter of an hour
MOST_BATCHES = 4_000  # that the plot looks at
_BATCH = ("dataid", "start", "end", "at", "slot", "status", "runid", "published_at")
_EXAMPLES: dict[str, Any] = {
    INTEGER: 1, NUMERIC: 1.5, BOOLEAN: True, DATE: "2026-11-17", TIMESTAMP: "2026-11-17T02:30:00Z", ARRAY: [], MAP: {},
    STRUCT: {},
}  # fmt: skip


def list_stands(store: LoopStore, address: Address, *, project: str | None) -> list[dict[str, Any]]:
    """Every stream, as `dataflow stream status` tells it."""
    return [{**one._asdict(), "told": describe(one)} for one in all_streams(store, address, project=project)]


def get_row(store: LoopStore, project: str, slug: str) -> StreamRow:
    """The stream, or NotThere."""
    found = find_stream(store, slug, project=project)
    if found is None:
        raise NotThere(f"there is no stream {slug} in project {project}; see the list of streams")
    return found


def has_log(address: Address, job: Job | StreamRow) -> bool:
    """Whether the items that the stream took in are on the server's machine."""
    return os.path.isdir(os.path.join(stream_folder(address, job.project, job.jobid), "log"))


def one_stream(store: LoopStore, address: Address, project: str, slug: str) -> dict[str, Any]:
    """Everything that is known of a stream but its batches and items."""
    row = get_row(store, project, slug)
    job = store.get_job(slug, project=project)
    settings = row.settings
    status = stream_status(store, address, row)
    return {
        **status._asdict(), "told": describe(status), "source": describe_source(settings),
        "takes_posts": settings.origin == INTAKE, "log_is_here": has_log(address, row),
        "schema": [{"name": one.name, "type": one.type, "required": one.required} for one in settings.schema],
        "example": {one.name: example(one) for one in settings.schema},
        "destination": settings.destination, "seal": settings.seal, "seal_job": settings.seal_job,
        "max_batch": settings.max_batch, "every_seconds": settings.every_seconds,
        "retention_seconds": settings.retention_seconds, "backlog": settings.backlog, "on_error": settings.on_error,
        "rates": rates(store, job),
    }  # fmt: skip


def example(field: Field) -> Any:
    """A value that would be accepted."""
    type_ = spark_type(field.type)
    return _EXAMPLES.get(type_.name if type_.is_nested else family(type_), "x")


def rates(store: LoopStore, job: Job) -> list[dict[str, Any]]:
    """Items a second in each of the last quarter of an hour's steps, the oldest first, by when they were published."""
    now = store.clock() // BAR_SECONDS * BAR_SECONDS + BAR_SECONDS
    begin = now - BARS * BAR_SECONDS
    of = {"project": job.project, "jobid": job.jobid, "since": store.time(begin - store.clock()), "limit": MOST_BATCHES}
    bars = [0] * BARS
    for items, at in store.read("newest_batches", of, file="streams"):
        moment = datetime.datetime.fromisoformat(str(at)).timestamp()
        bars[max(0, min(BARS - 1, int((moment - begin) // BAR_SECONDS)))] += int(items)
    return [
        {"at": _at(begin + number * BAR_SECONDS), "rate": round(items / BAR_SECONDS, 3)}
        for number, items in enumerate(bars)
    ]


def _at(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat()


def batches_of(store: LoopStore, project: str, slug: str, *, limit: int, offset: int) -> dict[str, Any]:
    """A page of its batches, the newest first."""
    get_row(store, project, slug)
    of = {"project": project, "jobid": slug, "limit": limit + 1, "offset": offset}
    rows = [dict(zip(_BATCH, row, strict=True)) for row in store.read("batches_of", of, file=FILE)]
    shown = [{**row, "items": row["end"] - row["start"]} for row in rows[:limit]]
    return {"items": shown, "limit": limit, "offset": offset, "more": len(rows) > limit}


def failed_of(
    store: LoopStore, address: Address, project: str, slug: str, *, first: int, limit: int, replayed: bool
) -> dict[str, Any]:
    """Items that were set aside, from an offset on, each with its error; `next` is where to go on, None at the end."""
    get_row(store, project, slug)
    job = store.get_job(slug, project=project)
    found = list_failed(store, job, replayed=replayed, limit=limit + 1, first=first)
    items = [
        {"id": event_id(slug, one.offset), **one._asdict(), "item": _read(one.item)} for one in found[:limit]
    ]  # fmt: skip
    go_on = found[limit].offset if len(found) > limit else None
    return {"items": items, "next": go_on, "rejected": _rejected(address, job, limit) if first == 0 else []}


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _rejected(address: Address, job: Job, limit: int) -> list[dict[str, Any]]:
    """Rows of watched files and records of a topic that did not fit; as far as they are on this machine."""
    if get_settings(job).origin == INTAKE:
        return []
    from opendataflow.intake.rejected import list_rejected

    names = ("file", "line", "at", "error", "row")
    folder = stream_folder(address, job.project, job.jobid)
    return [{name: one[name] for name in names} for one in list_rejected(folder, limit=limit)]

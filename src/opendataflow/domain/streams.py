"""Streams: what a stream pipeline declares, and the names of its batches and slots.

An item's offset is its place in the stream's log. A batch is a range of offsets and a chunk of the stream's live
dataset; a slot is the hour or day in which items were accepted, and a chunk of its destination.
"""

import datetime
from typing import Any, NamedTuple

from opendataflow.domain.job import Job
from opendataflow.errors import UsageError

LIVE, SEAL = "_live", "_seal"  # after the name of the destination, of the pipeline
HOURLY, DAILY = "hourly", "daily"
ITEMS, DATASET = "items", "dataset"  # what the transformations return
STATE_BYTES = 256 * 2**20
SET_ASIDE, FAIL = "set_aside", "fail"  # what becomes of an item that a transformation fails on
INTAKE, FOLDER, KAFKA = "intake", "folder", "kafka"
DIGITS = 12  # of an offset in a dataid, so that text order is the order of items
MOST_OFFSET = 10**DIGITS
_FORMS = {HOURLY: ("%Y-%m-%dT%H", datetime.timedelta(hours=1)), DAILY: ("%Y-%m-%d", datetime.timedelta(days=1))}


class Field(NamedTuple):
    """A field of an item; its type in Spark's plain names: string, int, bigint, double, decimal(10,2), date …"""

    name: str
    type: str
    required: bool


class TopicPart(NamedTuple):
    """Of a partition of a topic, the offsets from `start` up to but without `end`."""

    partition: int
    start: int
    end: int


class Settings(NamedTuple):
    """What project.yml says of a stream."""

    schema: tuple[Field, ...]
    max_batch: int
    seal: str
    every_seconds: float
    retention_seconds: float
    backlog: int
    body_bytes: int
    on_error: str
    source: dict[str, Any]  # {"intake": True}, {"folder": …, "format": …} or {"kafka": {"servers": …, "topic": …}}
    destination: str
    live: str  # the dataset whose chunks are the batches
    seal_job: str
    in_table: bool  # batches are appended to a table; the seal only records its rows
    returns: str = ITEMS  # or dataset: every batch is the next version of all of it
    state_bytes: int = STATE_BYTES  # of such a dataset, at most

    @property
    def origin(self) -> str:
        """Where items come from: intake, folder or kafka."""
        return next(one for one in (INTAKE, FOLDER, KAFKA) if one in self.source)


def find_settings(job: Job) -> Settings | None:
    """What the pipeline says of its stream; None for a job that is none."""
    return read_settings(job.jobid, job.definition)


def read_settings(jobid: str, definition: dict[str, Any]) -> Settings | None:
    """The same from the definition of a job."""
    found: Any = definition.get("stream")
    if not found:
        return None
    return Settings(
        tuple(Field(name, type_, bool(required)) for name, type_, required in found["schema"]), found["max_batch"],
        found["seal"], found["every"], found["retention"], found["backlog"], found["body"], found["on_error"],
        found["from"], found["destination"], found["live"], f"{jobid}{SEAL}", found["in_table"],
        found.get("returns", ITEMS), found.get("max_size", STATE_BYTES),
    )  # fmt: skip


def get_settings(job: Job) -> Settings:
    found = find_settings(job)
    if found is None:
        raise not_a_stream(job.jobid)
    return found


def not_a_stream(jobid: str) -> UsageError:
    return UsageError(
        f"{jobid!r} is not a stream pipeline; give it `mode: stream` and `stream: {{schema: …}}` in project.yml "
        "and run `dataflow apply`"
    )


def find_sealed_stream(job: Job) -> str | None:
    """The stream whose slots this job seals; None for any other job."""
    found: Any = job.definition.get("seal")
    return str(found["stream"]) if found else None


def only_records(job: Job) -> bool:
    """True for the seal of a stream that needs no Spark: into a table, which has the rows, or of a whole dataset."""
    found: Any = job.definition.get("seal")
    return bool(found and found["records"])


# Names ----------------------------------------------------------------------------------------------------------------
def batch_id(start: int, end: int) -> str:
    """The dataid of the items from `start` up to but without `end`; its last item is part of the name."""
    if not 0 <= start < end <= MOST_OFFSET:
        raise ValueError(f"{start} to {end} is not a range of offsets")
    return f"{start:0{DIGITS}d}-{end - 1:0{DIGITS}d}"


def batch_range(dataid: str) -> tuple[int, int]:
    """Back to the first offset and the one after the last."""
    first, dash, last = dataid.partition("-")
    if not (dash and first.isdecimal() and last.isdecimal() and len(first) == len(last) == DIGITS):
        raise ValueError(f"{dataid!r} is not the dataid of a batch")
    return int(first), int(last) + 1


def event_id(slug: str, offset: int) -> str:
    """How a caller knows an item: leads-17."""
    return f"{slug}-{offset}"


def slot_of_moment(at: str, seal: str) -> str:
    """The slot in which an item was accepted: 2026-11-16T13, or 2026-11-16. `at` is UTC as logs and stores write it."""
    return at[:13] if seal == HOURLY else at[:10]


def slot_end(slot: str) -> str:
    """The moment when a slot is over, in the same form as `at`."""
    form, length = _FORMS[HOURLY if "T" in slot else DAILY]
    end = datetime.datetime.strptime(slot, form).replace(tzinfo=datetime.UTC) + length
    return end.strftime("%Y-%m-%dT%H:%M:%S.000Z")

"""A chunk: one dataset at one dataid."""

from enum import StrEnum
from typing import NamedTuple


class ChunkStatus(StrEnum):
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    READY = "READY"
    FAILED = "FAILED"
    RESUBMIT = "RESUBMIT"
    HOLD = "HOLD"


class ChunkKey(NamedTuple):
    project: str
    datasetid: str
    dataid: str

    def __str__(self) -> str:
        return f"{self.datasetid}/{self.dataid}"


class Manifest(NamedTuple):
    """What a version of a chunk consists of, as seen when it was published."""

    location: str | None = None
    files: int | None = None
    bytes: int | None = None
    rows: int | None = None
    schema: str | None = None  # JSON
    fingerprint: str | None = None
    validated: bool = False  # every declared check passed on this fingerprint


class Input(NamedTuple):
    """What the store knows of one input chunk of a job's dataid; `status` is None when there is no row."""

    key: ChunkKey
    status: ChunkStatus | None
    version: int | None
    location: str | None
    fingerprint: str | None
    validated_at: str | None
    problem: str | None  # why what arrived was rejected
    producer: str
    modified: str | None


class Output(NamedTuple):
    """What the store knows of one output chunk: `readers` are the live runs that read it now."""

    key: ChunkKey
    status: ChunkStatus | None
    readers: str  # "job/dataid, …", empty when nobody reads it

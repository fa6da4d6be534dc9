"""Streams in the store: tokens, batches as ranges of offsets, slots to seal, items set aside, and how each one stands.

How far a stream is published is never written down by itself: it is the end of its highest COMPLETE batch.
"""

import functools
import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from opendataflow.domain.job import Job, JobStatus
from opendataflow.domain.runs.questions import CODES, Question
from opendataflow.domain.streams import (
    Settings,
    TopicPart,
    batch_id,
    batch_range,
    get_settings,
    not_a_stream,
    read_settings,
)
from opendataflow.errors import Refused, UsageError
from opendataflow.store.claims import LoopStore, Transaction
from opendataflow.store.rows import Params, Row

FILE = "streams"
RUNNING, STOPPED, FAILED, NEW = "RUNNING", "STOPPED", "FAILED", "NEW"
RATE_SECONDS = 60.0
MOST_BATCHES = 2_000  # that the rate looks at
MOST_TEXT = 4_000  # of an error
FORGOTTEN_AT_ONCE = 500
ALL = 1_000_000_000
KEPT_VERSIONS = 100


class StreamRow(NamedTuple):
    """A stream pipeline and what the store knows of it."""

    project: str
    jobid: str
    settings: Settings
    paused_by: str | None
    paused_until: str | None
    token_hash: str | None
    state: str  # NEW: nobody has run it yet
    reason: str
    accepted: int  # the end of its log, as its runner last saw it
    oldest_at: str | None  # when the oldest item was accepted that is not published yet
    seen_at: str | None
    owner: str | None
    sealed_to: str | None  # the slots before this one are sealed


class Failure(NamedTuple):
    """An item on which a transformation failed."""

    offset: int
    at: str  # when it was accepted
    error: str
    item: str  # JSON


class FailedItem(NamedTuple):
    """An item that was set aside."""

    offset: int
    at: str
    runid: int | None
    error: str
    item: str
    replayed_at: str | None
    replayed_as: str | None


class Counters(NamedTuple):
    committed: int  # items that are dealt with: published or set aside
    failed: int  # set aside, and not sent again yet
    replayed: int
    rate: float  # items a second, over the last minute


# Which streams there are ----------------------------------------------------------------------------------------------
def list_streams(store: LoopStore, *, project: str | None) -> list[StreamRow]:
    return _streams(store, project, None)


def find_stream(store: LoopStore, slug: str, *, project: str | None) -> StreamRow | None:
    """The stream pipeline of that name, or None; UsageError when several projects have one."""
    found = _streams(store, project, slug)
    if len(found) > 1:
        owners = ", ".join(row.project for row in found)
        raise UsageError(f"several projects have a stream {slug!r}: {owners}; say which")
    return found[0] if found else None


def get_stream(store: LoopStore, slug: str, *, project: str | None) -> StreamRow:
    found = find_stream(store, slug, project=project)
    if found is None:
        if store.has_job(slug, project=project):
            raise not_a_stream(slug)
        known = ", ".join(row.jobid for row in list_streams(store, project=project))
        raise UsageError(f"there is no stream {slug!r}; known are {known or 'none'}; see `dataflow apply`")
    return found


def _streams(store: LoopStore, project: str | None, jobid: str | None) -> list[StreamRow]:
    found = []
    for owner, name, definition, *rest in store.read(
        "streams", {"project": project, "jobid": jobid, "now": store.time()}, file=FILE
    ):
        settings = read_settings(name, json.loads(definition))
        if settings is not None:
            found.append(StreamRow(owner, name, settings, *rest))
    return found


# Tokens ---------------------------------------------------------------------------------------------------------------
def new_token(store: LoopStore, job: Job) -> str:
    """A new token for senders, instead of any before; the store keeps its hash only."""
    get_settings(job)
    token = secrets.token_urlsafe(32)
    _write(store, "set_token", {**_of(job), "token_hash": hash_token(token), "now": store.time()})
    return token


def revoke_token(store: LoopStore, job: Job) -> bool:
    """From now on nobody may send over HTTP; False when nobody might."""
    return bool(_write(store, "revoke_token", _of(job)))


@functools.lru_cache(maxsize=256)  # senders come again and again with the same one
def hash_token(token: str) -> str:
    # A token is 256 random bits: nothing is gained by a slow hash.
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def is_token(row: StreamRow, token: str) -> bool:
    """Whether a sender's token is the stream's, in a time that tells nothing; False where it has none."""
    return hmac.compare_digest(hash_token(token), row.token_hash or "-")


# Batches --------------------------------------------------------------------------------------------------------------
def committed_end(store: LoopStore, job: Job) -> int:
    """The offset after the last item that is dealt with: the end of the highest COMPLETE batch."""
    return _end_of(store.read("highest_complete", _of(job), file=FILE))


def _end_of(rows: Sequence[Row]) -> int:
    return batch_range(rows[0][0])[1] if rows else 0


def find_complete(store: LoopStore, job: Job, *, end: int) -> str | None:
    """The batch that is COMPLETE and ends before this offset."""
    rows = store.read("complete_until", {**_of(job), "end": end}, file=FILE)
    return str(rows[0][0]) if rows else None


def find_newest(store: LoopStore, job: Job) -> str | None:
    """The highest batch that is COMPLETE."""
    rows = store.read("highest_complete", _of(job), file=FILE)
    return str(rows[0][0]) if rows else None


def find_begun(store: LoopStore, job: Job) -> tuple[int, int] | None:
    """The lowest range from the committed end on that was claimed once and is not COMPLETE: it keeps its boundaries."""
    end = committed_end(store, job)
    begun = (batch_range(dataid) for dataid, _, runid in _open(store, job) if runid is not None)
    return next((one for one in begun if one[0] >= end), None)


def list_again(store: LoopStore, job: Job, *, limit: int = 100) -> list[str]:
    """Batches before the committed end that are to be made again."""
    end = committed_end(store, job)
    again = (JobStatus.PENDING, JobStatus.RESUBMIT)
    return [dataid for dataid, status, _ in _open(store, job) if status in again and batch_range(dataid)[1] <= end][
        :limit
    ]


def list_failed_batches(store: LoopStore, job: Job) -> list[str]:
    """Batches that are FAILED."""
    return [dataid for dataid, status, _ in _open(store, job) if status == JobStatus.FAILED]


def first_kept(store: LoopStore, job: Job) -> int:
    """The offset from which on the log is still needed: of the lowest batch that is not COMPLETE."""
    opened = [batch_range(dataid)[0] for dataid, _, _ in _open(store, job)]
    return min([*opened, committed_end(store, job)])


def _open(store: LoopStore, job: Job) -> list[Row]:
    return store.read("open_batches", _of(job), file=FILE)


def expect_batch(
    store: LoopStore, job: Job, start: int, end: int, *, at: str, slot: str, follows: bool = False,
    parts: Sequence[TopicPart] = (),
) -> str:  # fmt: skip
    """Give the items from `start` up to `end` a row to be claimed, and return its dataid.

    With `follows`, they must begin where the stream stands: Refused, if that has moved. `parts` are what these items
    are in a topic, one for every partition.

    Ranges that overlap it and were never claimed are forgotten. One that was claimed keeps its items: Refused, as a
    destination may have it already. UsageError when a part is published.
    """
    dataid = batch_id(start, end)
    row = {**_of(job), "dataid": dataid, "start": start, "end": end}

    def change() -> None:
        with store.transaction(file=FILE) as tx:
            tx.run("hold_stream", _of(job))
            if follows and start != _end_of(tx.rows("highest_complete", _of(job))):
                raise Refused(f"{job.jobid} does not stand at item {start} any more", exit_code=14)
            for other, status, runid, owner in tx.rows("overlapping", row):
                _make_room(tx, job, dataid, other, status, runid, owner)
            tx.run("expect_batch", row)
            tx.run("put_batch", {**row, "at": at, "slot": slot})
            if parts and not tx.rows("topic_parts", row):  # one that was claimed keeps its parts
                tx.run_many("put_topic_part", [{**row, **part._asdict()} for part in parts])

    store.again(change)
    return dataid


def _make_room(
    tx: Transaction, job: Job, dataid: str, other: str, status: str, runid: int | None, owner: str | None
) -> None:
    if status == JobStatus.COMPLETE:
        raise UsageError(f"{job.jobid}/{dataid} overlaps {other}, which is published")
    if runid is not None or not tx.run("delete_batch_row", {**_of(job), "dataid": other}):
        by = f" by {owner}" if owner else ""
        raise Refused(
            f"{job.jobid}/{dataid} overlaps {other}, which is {status}{by}; that one is done first",
            exit_code=CODES[Question.SAFE][1],
        )
    for name in ("delete_batch", "delete_topic_parts"):
        tx.run(name, {**_of(job), "dataid": other})


def topic_parts(store: LoopStore, job: Job, dataid: str) -> list[TopicPart]:
    """What a batch holds of the stream's topic; nothing for streams from elsewhere."""
    return [TopicPart(*row) for row in store.read("topic_parts", {**_of(job), "dataid": dataid}, file=FILE)]


def topic_parts_before(store: LoopStore, job: Job, end: int) -> list[TopicPart]:
    """The same of the batch whose items end there."""
    return [TopicPart(*row) for row in store.read("topic_parts_before", {**_of(job), "end": end}, file=FILE)]


def find_batch_of(store: LoopStore, job: Job, offset: int) -> str | None:
    """The batch that holds this item."""
    rows = store.read("batch_of_item", {**_of(job), "offset": offset}, file=FILE)
    return rows[0][0] if rows and batch_range(rows[0][0])[0] <= offset else None


def first_offset_since(store: LoopStore, job: Job, since: str) -> int | None:
    """The first item of the first batch that was taken then or later."""
    rows = store.read("first_offset_since", {**_of(job), "since": since}, file=FILE)
    return None if rows[0][0] is None else int(rows[0][0])


def batches_since(store: LoopStore, job: Job, offset: int) -> list[tuple[str, str]]:
    """Dataids and slots of the batches with items from this offset on."""
    rows = store.read("batches_since", {**_of(job), "offset": offset}, file=FILE)
    return [(str(dataid), str(slot)) for dataid, slot in rows]


def resubmit_since(store: LoopStore, job: Job, offset: int, *, dry_run: bool = False) -> list[dict[str, Any]]:
    """Have every batch with items from this offset on made again, and the slots that they are sealed in.

    What becomes of each, as `operations.resubmit` tells it. They are made again in their order, before anything new.
    """
    from opendataflow.store.operations import Key, resubmit

    batches = batches_since(store, job, offset)
    if not batches:
        return []
    keys = [Key(job.project, job.jobid, dataid) for dataid, _ in batches]
    seal = get_settings(job).seal_job
    of_seal = {"project": job.project, "jobid": seal, "slot": min(slot for _, slot in batches)}
    keys += [Key(job.project, seal, str(row[0])) for row in store.read("known_rows", of_seal, file=FILE)]
    done = frozenset({JobStatus.COMPLETE, JobStatus.FAILED, JobStatus.RUNNING})
    return resubmit(store, keys, only=done, dry_run=dry_run)


# Seals ----------------------------------------------------------------------------------------------------------------
def due_slots(store: LoopStore, job: Job, *, upto: str) -> list[str]:
    """Slots before `upto` of which every batch is COMPLETE and that nobody has begun to seal, in order."""
    of = {**_of(job), "upto": upto, "seal": get_settings(job).seal_job}
    return [str(row[0]) for row in store.read("due_slots", of, file=FILE)]


def expect_seal(store: LoopStore, seal_job: Job, slot: str) -> None:
    """Give the slot its row; what it reads are the batches of the slot."""
    store.expect_one(seal_job, slot)


def slots_begun(store: LoopStore, seal_job: Job, slot: str) -> list[str]:
    """Slots from this one on that are sealed, or that somebody has begun to seal, in order."""
    of_seal = {"project": seal_job.project, "jobid": seal_job.jobid, "slot": slot}
    return [str(row[0]) for row in store.read("known_rows", of_seal, file=FILE)]


def set_sealed_to(store: LoopStore, job: Job, slot: str) -> None:
    """Slots before this one are sealed, or have no items."""
    _write(store, "set_sealed_to", {**_of(job), "slot": slot})


def sealed_rows(store: LoopStore, job: Job, slot: str) -> int:
    """How many rows the published batches of a slot have."""
    of = {**_of(job), "live": get_settings(job).live, "slot": slot}
    return int(store.read("rows_of_slot", of, file=FILE)[0][0] or 0)


def list_forgettable(store: LoopStore, job: Job, *, before: str, limit: int = ALL) -> list[str]:
    """Batches that are published, of slots before this one that are sealed, and that nobody reads.

    Never those of the newest slot: by the highest of them the stream is known to be where it is.
    """
    rows = store.read("highest_complete", _of(job), file=FILE)
    settings = get_settings(job)
    if not rows:
        return []
    of = {**_of(job), "live": settings.live, "seal": settings.seal_job, "before": before, "highest": rows[0][0]}
    return [str(row[0]) for row in store.read("sealed_batches", {**of, "limit": limit}, file=FILE)]


def forget_batches(store: LoopStore, job: Job, *, before: str) -> int:
    """Forget those batches with their chunks: what they held is in the sealed ones. How many there were."""
    of, forgotten = {**_of(job), "live": get_settings(job).live}, 0
    while found := list_forgettable(store, job, before=before, limit=FORGOTTEN_AT_ONCE):
        store.again(functools.partial(_forget, store, of, found))
        forgotten += len(found)
    return forgotten


def list_superseded(store: LoopStore, job: Job, *, keep: int) -> list[str]:
    """Of a stream that returns a whole dataset: batches that are published, but for the highest ones."""
    of = {**_of(job), "live": get_settings(job).live, "keep": keep, "limit": FORGOTTEN_AT_ONCE}
    return [str(row[0]) for row in store.read("superseded_batches", of, file=FILE)]


def forget_superseded(store: LoopStore, job: Job, dataids: list[str]) -> None:
    """Forget these batches with their chunks: the versions after them hold what they held."""
    of = {**_of(job), "live": get_settings(job).live}
    store.again(functools.partial(_forget, store, of, dataids))


def begin_anew(store: LoopStore, job: Job) -> None:
    """Forget all batches: the stream stands before its first item. Refused while one of them is being made."""
    of = {**_of(job), "live": get_settings(job).live}

    def change() -> None:
        with store.transaction(file=FILE) as tx:
            tx.run("hold_stream", of)
            if tx.rows("running_batches", of):
                raise Refused(
                    f"a batch of {job.jobid} is being made; `dataflow stream pause {job.jobid}`, and try again when it "
                    "has ended",
                    exit_code=CODES[Question.SAFE][1],
                )
            for name in ("drop_rows", "drop_chunks", "drop_batches", "drop_topic_parts"):
                tx.run(name, of)

    store.again(change)


# Versions of a whole dataset ------------------------------------------------------------------------------------------
class Contained(NamedTuple):
    """What a version of a stream's destination contains."""

    end: int  # the items before this offset
    batch_runid: int  # the run that made it


def put_version(store: LoopStore, job: Job, runid: int, contained: Contained) -> None:
    """Note what the version contains that this run is about to publish; it counts once the version is there."""
    row = {**_of(job), "runid": runid, "end": contained.end, "batch_runid": contained.batch_runid}

    def change() -> None:
        with store.transaction(file=FILE) as tx:
            tx.run("put_version", row)
            tx.run("drop_versions", {**_of(job), "keep": KEPT_VERSIONS})

    store.again(change)


def find_contained(store: LoopStore, job: Job, version: int) -> Contained | None:
    """What this version contains; None for one that no stream made."""
    rows = store.read("version_of", {**_of(job), "runid": version}, file=FILE)
    return Contained(*rows[0]) if rows else None


def _forget(store: LoopStore, of: Params, dataids: list[str]) -> None:
    with store.transaction(file=FILE, actor=f"{store.actor} clean") as tx:
        tx.run("hold_stream", of)
        for dataid in dataids:
            one = {**of, "dataid": dataid}
            for name in ("forget_row", "forget_chunk", "forget_batch", "delete_topic_parts"):
                tx.run(name, one)


# Items set aside ------------------------------------------------------------------------------------------------------
def set_aside(
    store: LoopStore, job: Job, start: int, end: int, failures: Sequence[Failure], *, runid: int | None
) -> None:
    """Set these items of the range aside, instead of what was before; just before the batch is published.

    A batch that is made again says anew which of its items fail; those that were sent again stay as they are.
    """
    of = _of(job)

    def change() -> None:
        with store.transaction(file=FILE) as tx:
            tx.run("clear_aside", {**of, "start": start, "end": end})
            tx.run_many("put_aside", [{**of, **_as_row(one), "runid": runid} for one in failures])

    store.again(change)


def _as_row(failure: Failure) -> Params:
    error = failure.error.replace("\0", "\N{REPLACEMENT CHARACTER}")
    if len(error) > MOST_TEXT:
        error = f"{error[: MOST_TEXT // 4]}\n…\n{error[-MOST_TEXT // 2 :]}"
    item = failure.item.replace("\0", "\\u0000")
    return {"offset": failure.offset, "at": failure.at, "error": error, "item": item}


def list_failed(
    store: LoopStore, job: Job, *, offsets: Sequence[int] | None = None, replayed: bool = False,
    limit: int | None = None, first: int = 0,
) -> list[FailedItem]:  # fmt: skip
    """Items that were set aside, by offset; those that were sent again only if asked for, or named."""
    if offsets is not None:
        rows = [row for one in offsets for row in store.read("failed_item", {**_of(job), "offset": one}, file=FILE)]
    else:
        of = {**_of(job), "first": first, "replayed": int(replayed), "limit": limit or ALL}
        rows = store.read("failed_items", of, file=FILE)
    return [FailedItem(*row) for row in rows]


def mark_replayed(store: LoopStore, job: Job, replayed: Mapping[int, str]) -> None:
    """Note under which id each item was sent again."""
    now = store.time()
    rows = [{**_of(job), "offset": at, "replayed_as": name, "now": now} for at, name in replayed.items()]

    def change() -> None:
        with store.transaction(file=FILE) as tx:
            tx.run_many("mark_replayed", rows)

    store.again(change)


# How it stands --------------------------------------------------------------------------------------------------------
def report(
    store: LoopStore, job: Job, *, state: str, reason: str = "", accepted: int | None = None,
    oldest_at: str | None = None,
) -> None:  # fmt: skip
    """Say how the stream stands: RUNNING, STOPPED or FAILED with the reason; an unknown end of the log stays."""
    row = {
        **_of(job), "state": state, "reason": reason[:MOST_TEXT], "accepted": accepted, "oldest_at": oldest_at,
        "now": store.time(), "owner": store.actor,
    }  # fmt: skip
    _write(store, "report", row)


def counters(store: LoopStore, job: Job) -> Counters:
    end = committed_end(store, job)
    failed, replayed = store.read("count_failed", {**_of(job), "committed": end}, file=FILE)[0]
    newest = {**_of(job), "since": store.time(-RATE_SECONDS), "limit": MOST_BATCHES}
    items = sum(int(row[0]) for row in store.read("newest_batches", newest, file=FILE))
    return Counters(end, int(failed), int(replayed), items / RATE_SECONDS)


def _write(store: LoopStore, name: str, params: Params) -> int:
    def change() -> int:
        with store.transaction(file=FILE) as tx:
            return tx.run(name, params)

    return store.again(change)


def _of(job: Job | StreamRow) -> Params:
    return {"project": job.project, "jobid": job.jobid}

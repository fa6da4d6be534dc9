"""What the child of a stream is told: one batch of its items, or a slot that is sealed.

Both are chunks of a pipeline like any other; here is what they have beside it.
"""

import functools
import json
import os
from collections.abc import Callable
from typing import Any

from opendataflow.domain.chunk import Manifest
from opendataflow.domain.dataset import output_location
from opendataflow.domain.job import Job
from opendataflow.domain.partitions.scheme import FULL
from opendataflow.domain.runs.run import Claim
from opendataflow.domain.streams import DATASET, FAIL, batch_range, get_settings
from opendataflow.execution.pipeline import PROGRAM, _Pipeline
from opendataflow.execution.work import Locations, Work
from opendataflow.intake.entry import moment
from opendataflow.intake.reader import IntakeReader
from opendataflow.store.claims import LoopStore
from opendataflow.store.published import find_chunk
from opendataflow.store.records.streams import Failure, find_complete, set_aside, topic_parts
from opendataflow.store.registry import get_dataset
from opendataflow.streams.topic_log import TopicLog

STATE = "_state.parquet"  # in the folder of a batch: the whole dataset, as pandas had it
STAYING_PROGRAM = "opendataflow.spark.stream_child"


def program_of(job: Job) -> str:
    """What a child of the stream is: one that stays; with Spark Connect, which has no driver here, one for each run."""
    settings: Any = job.definition.get("spark") or {}
    return PROGRAM if str(settings.get("master") or "").startswith("sc://") else STAYING_PROGRAM


class _OnTheChild(_Pipeline):
    def work(self) -> Work:
        """Runs of the stream's child, one at a time."""
        work, program = super().work(), program_of(self._job)
        assert work.forked is not None  # noqa: S101  it always is
        return work._replace(
            forked=work.forked._replace(program=program, stays=program == STAYING_PROGRAM, sharing=None)
        )


class BatchWork(_OnTheChild):
    """Batches of a stream. Their items are read from the log in `stream_folder`."""

    def __init__(
        self, job: Job, work_folder: str, stream_folder: str, *, store: LoopStore, say: Callable[[str], None],
        secrets: tuple[str, ...], topic: TopicLog | None = None,
    ) -> None:  # fmt: skip
        """`topic` instead of the log, where the items are records of one."""
        super().__init__(job, os.path.join(work_folder, "runs"), store, say, {}, secrets)
        self._stream_folder, self._settings, self._topic = stream_folder, get_settings(job), topic
        self.never_run: set[str] = set()  # batches of which no run can have set anything aside before

    def _spec(self, claim: Claim, locations: Locations) -> dict[str, Any]:
        # Static sources are read anew when what the digest is of has changed.
        spec = {**super()._spec(claim, locations), **self._before(claim), "items": self._items(claim)}
        if self._settings.returns != DATASET:
            return spec
        folder = str(locations[self._output.dataset[:2]])
        file = self._file
        place = {**spec["destination"], "single_file": file is not None}
        place["location"] = folder if file is None else os.path.join(folder, file)
        return self._with_state({**spec, "destination": place}, claim, os.path.join(folder, STATE))

    def _with_state(self, spec: dict[str, Any], claim: Claim, to: str | None) -> dict[str, Any]:
        """For code that returns the whole dataset: where that is before the batch, and where it is kept after it."""
        before = self._find_state(batch_range(claim.dataid)[0])
        state = {"from": before, "to": to, "max_bytes": self._settings.state_bytes}
        # The first source is where the dataset begins, and nothing more.
        sources = spec["sources"] if before is None else spec["sources"][1:]
        return {**spec, "sources": sources, "items": {**spec["items"], "state": state}}

    def _find_state(self, start: int) -> str | None:
        """The dataset as it is before this item; None before the first one."""
        if start == 0:
            return None
        before = find_complete(self._store, self._job, end=start)
        dataset = self._output.dataset
        chunk = find_chunk(self._store, dataset, before) if before is not None else None
        folder = chunk.place(dataset, root=self._job.root) if chunk is not None else None
        return os.path.join(folder or f"{dataset.datasetid} up to item {start - 1}", STATE)

    @functools.cached_property
    def _file(self) -> str | None:
        """The name of the destination's file, where that is one file."""
        dataset, root = get_dataset(self._store, self._settings.destination, project=self._job.project)
        place = output_location("pipeline", dataset, FULL, root=root, runid=0)
        return os.path.basename(str(place)) if dataset.is_one_file else None

    def _items(self, claim: Claim) -> dict[str, Any]:
        start, end = batch_range(claim.dataid)
        return {
            "folder": self._stream_folder,
            "start": start,
            "end": end,
            "fields": [list(field) for field in self._settings.schema],
            "set_aside": self._settings.on_error != FAIL,
            "topic": self._topic_range(claim.dataid),
        }

    def _topic_range(self, dataid: str) -> dict[str, Any] | None:
        if self._topic is None:
            return None
        parts = topic_parts(self._store, self._job, dataid)
        found = self._settings.source["kafka"]
        kafka = {name: found[name] for name in ("servers", "topic", "options") if name in found}
        return {**kafka, "parts": [list(part) for part in parts]}

    def manifests(self, claim: Claim, locations: Locations) -> tuple[tuple[str, str, Manifest], ...]:
        """What was written; the items that were left out are set aside before anybody sees the others."""
        found = super().manifests(claim, locations)
        aside = self._find_result(claim).get("aside") or []
        if aside or claim.dataid not in self.never_run:
            start, end = batch_range(claim.dataid)
            set_aside(self._store, self._job, start, end, self._failures(aside), runid=claim.runid)
        return found

    def _failures(self, aside: list[list[Any]]) -> list[Failure]:
        found = failures_of(self._topic or IntakeReader(self._stream_folder), aside)
        return [one._replace(error=self._hidden(one.error), item=self._hidden(one.item)) for one in found]

    def dry_spec(self, claim: Claim, locations: Locations) -> dict[str, Any]:
        """As a batch, for a run that nobody claimed: to files, without checks that compare with earlier ones."""
        self._writes_table = False
        spec = {**super()._spec(claim, locations), "items": self._items(claim), "earlier_rows": []}
        place = {**spec["destination"], "format": "parquet", "options": {}, "single_file": False}
        spec = {**spec, "destination": place, "inputs_digest": "dry"}
        return spec if self._settings.returns != DATASET else self._with_state(spec, claim, None)


def failures_of(log: IntakeReader | TopicLog, aside: list[list[Any]]) -> list[Failure]:
    """The items at these offsets, each with its error."""
    found = []
    for offset, error in aside:
        (item,) = log.items(offset, offset + 1)
        found.append(Failure(offset, moment(item.at), error, json.dumps(item.item, ensure_ascii=False)))
    return found


class SealWork(_OnTheChild):
    """The batches of a slot as one chunk, their rows in the order in which the items came."""

    def __init__(
        self, job: Job, work_folder: str, *, store: LoopStore, say: Callable[[str], None], secrets: tuple[str, ...]
    ) -> None:
        super().__init__(job, os.path.join(work_folder, "runs"), store, say, {}, secrets)

    def _spec(self, claim: Claim, locations: Locations) -> dict[str, Any]:
        spec = super()._spec(claim, locations)
        (live,) = spec["sources"]
        places = [place for place in str(live["location"]).split("\n") if not _is_empty(place)]
        return {**spec, "sources": [{**live, "location": "\n".join(places)}], "in_order": True}


def _is_empty(place: str) -> bool:
    """True for the folder of a batch all of whose items were set aside, where nobody knows the columns."""
    return os.path.isdir(place) and not os.listdir(place)

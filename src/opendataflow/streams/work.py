"""What the Spark child is told of a stream: one batch of its items, or a slot that is sealed.

Both are chunks of a pipeline like any other; here is what they have beside it.
"""

import json
import os
import signal
from collections.abc import Callable
from typing import Any, NamedTuple

from opendataflow.domain.chunk import Manifest
from opendataflow.domain.job import Job
from opendataflow.domain.runs.run import Claim
from opendataflow.domain.streams import FAIL, batch_range, get_settings
from opendataflow.execution.pipeline import _Pipeline
from opendataflow.execution.session import Session
from opendataflow.execution.supervise import Stopped
from opendataflow.execution.warm_runs import WarmRuns
from opendataflow.execution.work import Locations, Outcome, Taken, Tasks, Work
from opendataflow.intake.entry import moment
from opendataflow.intake.reader import IntakeReader
from opendataflow.store.claims import LoopStore
from opendataflow.store.records.streams import Failure, set_aside


class OnTheChild(NamedTuple):
    """Runs on the child that serves the stream, one at a time."""

    session: Session
    cwd: str
    elsewhere: Callable[[dict[str, Any]], None]  # what the child says of no run

    def run(self, job: Job, work: Work, taken: Taken) -> Outcome:
        """The run, to its recorded end; handed back when somebody wants us to stop before it began."""
        session, given = self.session, [[taken]]
        # A new one each time: one that lost a lease takes nothing more.
        warm = WarmRuns(session.runner, job, work, cwd=self.cwd, passwords=session.passwords, elsewhere=self.elsewhere)
        for outcome in warm.run(lambda _limit, _anew: given.pop() if given else []):
            return outcome
        flight = session.runner.begin(job, work, taken, session.passwords)
        number = session.signals.asked or signal.SIGTERM
        return session.runner.conclude(job, work, flight, Stopped(number, had_started=False))


class BatchWork(_Pipeline):
    """Batches of a stream. Their items are read from the log in `stream_folder`."""

    def __init__(
        self, job: Job, work_folder: str, stream_folder: str, *, store: LoopStore, say: Callable[[str], None],
        secrets: tuple[str, ...],
    ) -> None:  # fmt: skip
        super().__init__(job, os.path.join(work_folder, "runs"), store, say, {}, secrets)
        self._stream_folder, self._settings = stream_folder, get_settings(job)
        self.never_run: set[str] = set()  # batches of which no run can have set anything aside before

    def work(self) -> Work:
        return Work(self.argv, self.manifests, self.reason, self.published, self.tasks())

    def tasks(self) -> Tasks:
        return super().tasks()._replace(per_task=1)  # in the order of their items

    def _spec(self, claim: Claim, locations: Locations) -> dict[str, Any]:
        # Static sources are read anew when what the digest is of has changed.
        return {**super()._spec(claim, locations), **self._before(claim), "items": self._items(claim)}

    def _items(self, claim: Claim) -> dict[str, Any]:
        start, end = batch_range(claim.dataid)
        return {
            "folder": self._stream_folder,
            "start": start,
            "end": end,
            "fields": [list(field) for field in self._settings.schema],
            "set_aside": self._settings.on_error != FAIL,
        }

    def manifests(self, claim: Claim, locations: Locations) -> tuple[tuple[str, str, Manifest], ...]:
        """What was written; the items that were left out are set aside before anybody sees the others."""
        found = super().manifests(claim, locations)
        aside = self._find_result(claim).get("aside") or []
        if aside or claim.dataid not in self.never_run:
            start, end = batch_range(claim.dataid)
            set_aside(self._store, self._job, start, end, self._failures(aside), runid=claim.runid)
        return found

    def _failures(self, aside: list[list[Any]]) -> list[Failure]:
        found = failures_of(IntakeReader(self._stream_folder), aside)
        return [one._replace(error=self._hidden(one.error), item=self._hidden(one.item)) for one in found]

    def dry_spec(self, claim: Claim, locations: Locations) -> dict[str, Any]:
        """As a batch, for a run that nobody claimed: to files, without checks that compare with earlier ones."""
        self._writes_table = False
        spec = {**super()._spec(claim, locations), "items": self._items(claim), "earlier_rows": []}
        place = {**spec["destination"], "format": "parquet", "options": {}, "single_file": False}
        return {**spec, "destination": place, "inputs_digest": "dry"}


def failures_of(log: IntakeReader, aside: list[list[Any]]) -> list[Failure]:
    """The items at these offsets, each with its error."""
    found = []
    for offset, error in aside:
        (item,) = log.items(offset, offset + 1)
        found.append(Failure(offset, moment(item.at), error, json.dumps(item.item, ensure_ascii=False)))
    return found


class SealWork(_Pipeline):
    """The batches of a slot as one chunk, their rows in the order in which the items came."""

    def __init__(
        self, job: Job, work_folder: str, *, store: LoopStore, say: Callable[[str], None], secrets: tuple[str, ...]
    ) -> None:
        super().__init__(job, os.path.join(work_folder, "runs"), store, say, {}, secrets)

    def work(self) -> Work:
        return Work(self.argv, self.manifests, self.reason, self.published, self.tasks())

    def _spec(self, claim: Claim, locations: Locations) -> dict[str, Any]:
        spec = super()._spec(claim, locations)
        (live,) = spec["sources"]
        places = [place for place in str(live["location"]).split("\n") if not _is_empty(place)]
        return {**spec, "sources": [{**live, "location": "\n".join(places)}], "in_order": True}


def _is_empty(place: str) -> bool:
    """True for the folder of a batch all of whose items were set aside, where nobody knows the columns."""
    return os.path.isdir(place) and not os.listdir(place)

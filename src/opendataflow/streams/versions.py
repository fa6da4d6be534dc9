"""Of a stream whose code returns the whole dataset: the newest batch becomes the version of its destination.

The batch has written the destination's files already; the runner links them into the directory of a run of its own,
publishes that, and notes up to which item the version contains them. While somebody reads the destination, that waits,
and the stream goes on: the next version then contains more.
"""

import contextlib
import os
import shutil
import time
from collections.abc import Iterator

from opendataflow.domain.dataset import output_location
from opendataflow.domain.job import Job, JobStatus
from opendataflow.domain.partitions.scheme import FULL
from opendataflow.domain.runs.run import Claim, Ending, Result
from opendataflow.domain.streams import batch_range, get_settings, slot_of_moment
from opendataflow.errors import ConfigurationError, LeaseLost
from opendataflow.execution.export import show
from opendataflow.execution.session import Session
from opendataflow.execution.work import Outcome, Taken
from opendataflow.operations.clear import Made, find_unneeded, remove, run_folders
from opendataflow.storage.files import manifest_of
from opendataflow.store.operations import Key, resubmit
from opendataflow.store.published import Published, find_chunk
from opendataflow.store.records import streams
from opendataflow.store.registry import get_dataset

KEPT = 2  # batches, the newest ones: the next one begins where the last of them ends
FORGOTTEN_FROM = 8  # beyond those, before they are forgotten
KEPT_SECONDS = 60.0  # a version, after the next one was published: somebody who asked before that may still read it
REMOVE_SECONDS = 30.0  # between two looks for versions that nobody needs


class Versions:
    """Publishes the versions of one stream's dataset."""

    def __init__(self, session: Session) -> None:
        self._session, self._job, self._store = session, session.job, session.store
        self._settings = get_settings(session.job)
        project = session.job.project
        self._seal: Job = session.store.get_job(self._settings.seal_job, project=project)
        self._dataset, self._root = get_dataset(session.store, self._settings.destination, project=project)
        self._batches, _ = get_dataset(session.store, self._settings.live, project=project)
        self._removed_at = float("-inf")
        place = output_location("pipeline", self._dataset, FULL, root=self._root, runid=0) or ""
        if "://" in place:
            raise ConfigurationError(
                f"{self._job.jobid} returns the whole dataset, which needs a file system; {self._dataset.datasetid} is "
                f"at {place.partition('/_runs/')[0]}. Return only the items, `returns: items`"
            )

    def slot_for(self, at: str) -> str:
        """The hour or day of a batch; nothing is sealed by it."""
        return slot_of_moment(at, self._settings.seal)

    def reopen(self, dataid: str) -> None:
        """A batch that is made again changes no version; the versions after it do not contain it."""

    def seal_what_is_over(self, _oldest: float | None) -> Iterator[Outcome]:
        """Publish what the newest batch made, if that is no version yet and nobody reads the one before."""
        newest = streams.find_newest(self._store, self._job)
        if newest is None:
            return
        batch = find_chunk(self._store, self._batches, newest)
        if batch is None or batch.version is None or not self._is_due(batch_range(newest)[1], batch.version):
            return
        taken = self._take()
        if taken is not None:
            with contextlib.suppress(LeaseLost):  # whoever has it now publishes it
                yield self._publish(taken.claim, batch, newest)
        self._forget()
        self._remove_old()

    def _is_due(self, end: int, batch_runid: int) -> bool:
        version = find_chunk(self._store, self._dataset, FULL)
        if version is None or str(version.status) != "READY" or version.version is None:
            return True
        contained = streams.find_contained(self._store, self._job, version.version)
        # While it is built from the beginning, readers keep the version that has all items.
        return contained is None or (contained.batch_runid != batch_runid and end >= contained.end)

    def _take(self) -> Taken | None:
        candidate = self._store.find_candidate(self._seal, FULL)
        if candidate is not None and any(output.readers for output in candidate.outputs):
            return None
        if candidate is None:
            self._store.expect_one(self._seal, FULL)
        elif candidate.status in (JobStatus.COMPLETE, JobStatus.FAILED):
            key = Key(self._seal.project, self._seal.jobid, FULL)
            resubmit(self._store, [key], only=frozenset({JobStatus.COMPLETE, JobStatus.FAILED}))
        taken = self._session.runner.take(self._seal, FULL)
        return taken if isinstance(taken, Taken) else None

    def _publish(self, claim: Claim, batch: Published, dataid: str) -> Outcome:
        begun = time.monotonic()
        place = output_location("pipeline", self._dataset, FULL, root=self._root, runid=claim.runid) or ""
        try:
            _link(batch.place(self._batches, root=self._root) or "", place, is_one_file=self._dataset.is_one_file)
            seen = manifest_of(place)._replace(rows=batch.rows, schema=batch.schema, validated=self._has_checks)
            result = Result(Ending.COMPLETE, 0, manifests=((*self._dataset[:2], seen),))
        except OSError as error:
            result = Result(Ending.FAILED, 1, f"{error.filename or place}: {error.strerror or error}")
        assert batch.version is not None  # noqa: S101  the caller looked
        contained = streams.Contained(batch_range(dataid)[1], batch.version)
        if result.ending is Ending.COMPLETE:
            streams.put_version(self._store, self._job, claim.runid, contained)
        finished = self._store.finish(claim, result)
        if finished.status == "COMPLETE":
            try:
                show(self._dataset, place, claim)
            except OSError as error:
                self._session.say(f"{claim.jobid}/{claim.dataid} is published, but not shown: {error}")
        code = 0 if result.ending is Ending.COMPLETE else 1
        seconds = time.monotonic() - begun
        return Outcome(code, str(finished.status), claim.jobid, claim.dataid, result.message, claim.runid, seconds)

    @property
    def _has_checks(self) -> bool:
        """The batch has passed them."""
        return '"checks"' in (self._dataset.definition or "")

    def _forget(self) -> None:
        """Batches before the newest ones, whose versions nobody can publish any more."""
        old = streams.list_superseded(self._store, self._job, keep=KEPT)
        if len(old) < FORGOTTEN_FROM:
            return
        made = Made(self._batches, self._job, self._root)
        folders = list(run_folders(self._store, made, old))
        streams.forget_superseded(self._store, self._job, old)  # first: killed in between, nothing points at the files
        for folder in folders:
            remove(made, folder, taken_back=True)

    def _remove_old(self) -> None:
        """Versions of the destination that were superseded a while ago: each has all the rows."""
        if time.monotonic() - self._removed_at < REMOVE_SECONDS:
            return
        self._removed_at = time.monotonic()
        made = Made(self._dataset, self._seal, self._root)
        for folder in find_unneeded(self._store, made, before=self._store.clock() - KEPT_SECONDS).folders:
            remove(made, folder)


def _link(source: str, place: str, *, is_one_file: bool) -> None:
    """Have the batch's files there too, as the same files where the file system can do that."""
    folder = os.path.dirname(place) if is_one_file else place
    os.makedirs(folder, exist_ok=True)
    names = [name for name in os.listdir(source) if not name.startswith(("_", "."))]
    for name in names:
        target = place if is_one_file else os.path.join(place, name)
        try:
            os.link(os.path.join(source, name), target)
        except OSError:
            shutil.copyfile(os.path.join(source, name), target)
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

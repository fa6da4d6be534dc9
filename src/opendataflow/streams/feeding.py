"""Where the items of a stream's log come from, if not from callers: a folder is read beside the runner."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from opendataflow.domain.job import Job
from opendataflow.domain.streams import FOLDER, get_settings
from opendataflow.errors import ConfigurationError, DataflowError
from opendataflow.intake.log import IntakeLog

if TYPE_CHECKING:
    from opendataflow.streams.watch_folder import FolderFeed

LOOK_SECONDS = 0.5
AGAIN_SECONDS = 5.0  # after an error


def open_feed(job: Job, folder: str, *, begin: int, say: Callable[[str], None]) -> "FolderFeed | None":
    """What feeds the stream's log from where project.yml says; None where its callers do, or where it has no log.

    `folder` is the stream's own, `begin` the committed end. Raises ConfigurationError when the source cannot be read.
    """
    if get_settings(job).origin != FOLDER:
        return None
    if "://" in job.root:
        raise ConfigurationError(f"{job.jobid}: {job.root} is not on this machine, and only a local folder is watched")
    from opendataflow.streams.watch_folder import FolderFeed

    return FolderFeed(job, folder, IntakeLog(folder, begin=begin), say=say)


class Feeding:
    """Feeds the stream in a thread of its own, while it is open; `committed` tells how far the stream is published."""

    def __init__(
        self, job: Job, folder: str, *, committed: Callable[[], int], say: Callable[[str], None],
        every_seconds: float = LOOK_SECONDS,
    ) -> None:  # fmt: skip
        self._job, self._folder, self._committed, self._say = job, folder, committed, say
        self._every_seconds = every_seconds
        self._feed: FolderFeed | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)

    def __enter__(self) -> "Feeding":
        self._feed = open_feed(self._job, self._folder, begin=self._committed(), say=self._say)
        if self._feed is not None:
            self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        if self._feed is not None:
            self._thread.join()
            self._feed.close()

    @property
    def is_settled(self) -> bool:
        return self._feed is None or self._feed.is_settled

    def _run(self) -> None:
        while self._feed is not None and not self._stop.is_set():
            try:
                self._feed.feed(committed=self._committed())
            except (OSError, DataflowError) as error:  # it may come back
                self._say(f"{self._job.jobid}: {self._feed.place} is not read: {error}; it is tried again")
                self._stop.wait(AGAIN_SECONDS)
            self._stop.wait(0.0 if self._feed.is_busy else self._every_seconds)

"""Versions of git projects on a host that has none of them yet: another host put them in place."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable

from opendataflow.domain.job import Job
from opendataflow.store.claims import LoopStore
from opendataflow.store.records.git import list_git_projects

SYNC_AGAIN_SECONDS = 60.0


class Homes:
    """Fetches what is missing, in a process of its own, again and again until it is there."""

    def __init__(self, store: LoopStore, say: Callable[[str], None]) -> None:
        self._store, self._say = store, say
        self._syncing: dict[str, subprocess.Popen[bytes]] = {}
        self._not_before: dict[str, float] = {}
        self.waits = False  # something is missing

    def here(self, jobs: Iterable[Job]) -> list[Job]:
        """Those of the jobs whose folder is here; for a git project's that is not, it is fetched."""
        jobs = list(jobs)
        missing = {job.project for job in jobs if not os.path.isdir(job.home)}
        from_git = {one.project for one in list_git_projects(self._store)} & missing if missing else set()
        self.waits = bool(from_git)
        for project in sorted(from_git):
            self._sync(project, next(job.home for job in jobs if job.project == project))
        return [job for job in jobs if job.project not in from_git]

    def _sync(self, project: str, home: str) -> None:
        running, now = self._syncing.get(project), time.monotonic()
        if (running is not None and running.poll() is None) or now < self._not_before.get(project, 0.0):
            return
        self._say(f"{project}: its folder {home} is not on this host; `dataflow project sync {project}` fetches it now")
        argv = [sys.executable, "-P", "-m", "opendataflow.cli.main", "project", "sync", project]
        self._syncing[project] = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self._not_before[project] = now + SYNC_AGAIN_SECONDS

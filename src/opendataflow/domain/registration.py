"""What a project declares, ready to be registered in a store."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from opendataflow.domain.dataset import Dataset


class LinkSpec(NamedTuple):
    itemtype: str
    dataset_project: str
    datasetid: str
    map: str = "same"


class JobSpec(NamedTuple):
    jobid: str
    kind: str
    script: str | None
    definition: str  # JSON
    partitions: str | None  # JSON
    lease_seconds: float
    timeout_seconds: float | None
    retries_max: int
    backoff_seconds: float
    concurrency: int | None
    links: tuple[LinkSpec, ...]
    strict: int = 0
    catchup: str = "all"


class Registration(NamedTuple):
    """A project as its project.yml declares it, for one environment."""

    project: str
    name: str
    root: str
    home: str
    environment: str
    datasets: tuple[Dataset, ...]
    jobs: tuple[JobSpec, ...]
    limits: tuple[tuple[str, int], ...] = ()  # of connections: how many runs at once, over all jobs
    bound: Mapping[str, Mapping[str, Any]] | None = None  # what of it was bound in the store; None: nobody looked
    root_moves: bool = False  # the root is given relative to the project's folder, and moves with it

"""A script as a job's work: its argv, and what it declared to write."""

import contextlib
import time
from collections.abc import Callable, Sequence

from opendataflow.domain.checks.check import Finding
from opendataflow.domain.chunk import Manifest
from opendataflow.domain.dataset import Dataset
from opendataflow.domain.job import Job
from opendataflow.domain.runs.run import Claim
from opendataflow.errors import LeaseLost, StoreUnavailable
from opendataflow.execution.host_checks import check_interpreter
from opendataflow.execution.work import Locations, Work
from opendataflow.extras import require
from opendataflow.storage.buckets.address import is_in_bucket
from opendataflow.store.claims import LoopStore


def script_work(
    job: Job, script: str, args: list[str], *, store: LoopStore | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Work:  # fmt: skip
    """Run the script with these arguments, exactly as given; its outputs are recorded where they were declared.

    Outputs whose dataset declares checks must pass them. `store` knows the chunks before, and is told that the run
    still lives while a large output is read; `say` gets the warnings.
    """
    check_interpreter(job, script)
    if is_in_bucket(job.root) or any('"checks"' in (link.dataset.definition or "") for link in job.outputs):
        require("pyarrow")  # before anything is claimed

    def manifests(claim: Claim, locations: Locations) -> tuple[tuple[str, str, Manifest], ...]:
        found = []
        for link in job.outputs:
            place = locations[link.dataset.project, link.dataset.datasetid]
            if place is None or ("://" in place and not is_in_bucket(place)):
                manifest = Manifest(location=place)  # known by its connection: asserted by its producer
            else:
                from opendataflow.storage.files import manifest_of

                manifest = audit_output(link.dataset, claim, manifest_of(place), root=job.root, store=store, say=say)
            found.append((link.dataset.project, link.dataset.datasetid, manifest))
        return tuple(found)

    return Work(lambda: [script, *args], manifests, script=script)


def audit_output(
    dataset: Dataset, claim: Claim, manifest: Manifest, *, root: str, store: LoopStore | None,
    say: Callable[[str], None],
) -> Manifest:  # fmt: skip
    """What a run wrote, after the checks of its dataset, or raise ChecksFailed. Without checks nothing is read.

    What was found is kept in the store, also when it fails.
    """
    if dataset.definition is None or '"checks"' not in dataset.definition:
        return manifest
    from opendataflow.checks.perform import audited
    from opendataflow.store.arrivals import earlier_rows

    earlier = earlier_rows(store, dataset, claim.dataid) if store is not None else _none_before
    beat = _beat(store, claim) if store is not None else _no_beat

    def keep(findings: tuple[Finding, ...]) -> None:
        if store is not None:
            keep_findings(store, dataset, claim, findings)

    return audited(
        dataset, claim.dataid, manifest, root=root, earlier_rows=earlier, now=time.time(), say=say, beat=beat,
        keep=keep,
    )  # fmt: skip


def keep_findings(store: LoopStore, dataset: Dataset, claim: Claim, findings: Sequence[Finding]) -> None:
    """Record what the checks found of a run's output. If the store is away, the run's own message still tells it."""
    from opendataflow.store.reports.check_results import record_findings

    with contextlib.suppress(StoreUnavailable):
        record_findings(store, dataset, claim.dataid, claim.runid, findings)


def _beat(store: LoopStore, claim: Claim) -> Callable[[], None]:
    """Renews the lease whenever a third of it has passed: the child has ended, so nobody else does."""
    renewed_at = time.monotonic()

    def beat() -> None:
        nonlocal renewed_at
        if time.monotonic() - renewed_at > claim.lease_seconds / 3:
            try:
                store.renew(claim)
            except (LeaseLost, StoreUnavailable):
                pass  # the end of the run finds out, and publishes nothing then
            renewed_at = time.monotonic()

    return beat


def _no_beat() -> None:
    pass


def _none_before(_last: int) -> list[int]:
    return []

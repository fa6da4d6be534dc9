"""`/metrics` for Prometheus: how much stands in which status, streams, workers, alerts.

Read from the tally and a few statements that seek in an index, and kept for a few seconds: scraping costs the same with
a thousand chunks and a million. Labels are names that somebody registered, and statuses: nothing grows with the data.
"""

import asyncio
import time
from collections.abc import Iterable

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from starlette.requests import Request
from starlette.responses import Response

from opendataflow import __version__
from opendataflow.project.address import Address
from opendataflow.server.access import Viewer
from opendataflow.server.context import Ctx
from opendataflow.store.claims import LoopStore
from opendataflow.store.records.alert_messages import count_open, count_undelivered, find_history_end
from opendataflow.store.records.alerts import list_paces
from opendataflow.store.records.workers import find_pause_of_all, list_limits, list_workers
from opendataflow.streams.state import all_streams

FRESH_SECONDS = 5.0
EXPIRED = "EXPIRED"  # as the tally calls live runs whose lease is over

router = APIRouter(include_in_schema=False)


class _Kept:
    def __init__(self) -> None:
        self.text, self.at = b"", float("-inf")
        self.lock = asyncio.Lock()


@router.get("/metrics")
async def metrics(request: Request, user: Viewer, context: Ctx) -> Response:  # noqa: ARG001
    """In the text format of Prometheus; a scraper gives a viewer's token as its bearer token."""
    state = request.app.state
    if not hasattr(state, "metrics"):
        state.metrics = _Kept()
    kept: _Kept = state.metrics
    async with kept.lock:
        if time.monotonic() - kept.at > FRESH_SECONDS:
            kept.text = await context.stores.ask(lambda store: expose(store, context.address))
            kept.at = time.monotonic()
    return Response(kept.text, media_type=CONTENT_TYPE_LATEST)


def expose(store: LoopStore, address: Address) -> bytes:
    """All metrics, as text."""
    found = list(_families(store, address))

    class Found:
        def collect(self) -> Iterable[Metric]:
            return found

    registry = CollectorRegistry()
    registry.register(Found())
    return generate_latest(registry)


def _families(store: LoopStore, address: Address) -> Iterable[Metric]:
    info = GaugeMetricFamily("dataflow_info", "The server and its store.", labels=["version", "environment"])
    info.add_metric([__version__, store.environment], 1)
    yield info
    yield from _counts(store)
    yield from _jobs(store)
    yield from _workers(store)
    yield from _streams(store, address)
    yield from _alerts(store)
    changes = CounterMetricFamily("dataflow_changes", "Changes of statuses since the store was made.")
    changes.add_metric([], find_history_end(store))
    yield changes


def _counts(store: LoopStore) -> Iterable[Metric]:
    jobs = GaugeMetricFamily("dataflow_job_dataids", "Dataids of a job by status.", labels=["project", "job", "status"])
    expired = GaugeMetricFamily(
        "dataflow_job_expired_leases", "Live runs of a job whose lease is over.", labels=["project", "job"]
    )
    chunks = GaugeMetricFamily(
        "dataflow_dataset_chunks", "Chunks of a dataset by status.", labels=["project", "dataset", "status"]
    )
    known = {tuple(row) for row in store.read("names", {"project": None}, file="registry")}
    for kind, project, name, status, number in store.read("tally_counts", {"project": None, "now": store.time()}):
        if (kind, project, name) not in known:
            continue  # nobody registers it any more
        if kind == "job" and status == EXPIRED:
            expired.add_metric([project, name], number)
        else:
            (jobs if kind == "job" else chunks).add_metric([project, name, status], number)
    return jobs, expired, chunks


def _jobs(store: LoopStore) -> Iterable[Metric]:
    paused = GaugeMetricFamily("dataflow_job_paused", "1: nothing of the job starts.", labels=["project", "job"])
    usual = GaugeMetricFamily(
        "dataflow_job_usual_seconds", "How long a run of the job takes, as a moving average.", labels=["project", "job"]
    )
    limits = list_limits(store, project=None)
    for one in limits:
        paused.add_metric([one.project, one.jobid], int(one.paused_by is not None))
    known = {(one.project, one.jobid) for one in limits}
    for key, pace in list_paces(store).items():
        if key in known:
            usual.add_metric(list(key), pace.seconds)
    whole = GaugeMetricFamily("dataflow_paused", "1: nothing at all starts.")
    whole.add_metric([], int(find_pause_of_all(store)[0] is not None))
    return paused, usual, whole


def _workers(store: LoopStore) -> Iterable[Metric]:
    found = list_workers(store)
    here = [one for one in found if not one.is_gone]
    for name, text, value in (
        ("dataflow_workers", "Workers that are there.", len(here)),
        ("dataflow_workers_gone", "Workers that are not heard of any more.", len(found) - len(here)),
        ("dataflow_worker_slots", "Slots of the workers that are there.", sum(one.slots for one in here)),
        ("dataflow_worker_runs", "Runs of the workers that are there.", sum(one.running for one in here)),
    ):
        family = GaugeMetricFamily(name, text)
        family.add_metric([], value)
        yield family


def _streams(store: LoopStore, address: Address) -> Iterable[Metric]:
    labels = ["project", "job"]
    accepted = CounterMetricFamily("dataflow_stream_accepted", "Items that are durable.", labels=labels)
    processed = CounterMetricFamily("dataflow_stream_processed", "Items published or set aside.", labels=labels)
    failed = GaugeMetricFamily("dataflow_stream_failed_items", "Items set aside and not replayed.", labels=labels)
    lag = GaugeMetricFamily("dataflow_stream_lag_items", "Items that wait.", labels=labels)
    waits = GaugeMetricFamily("dataflow_stream_lag_seconds", "How long the oldest of them has waited.", labels=labels)
    state = GaugeMetricFamily("dataflow_stream_state", "1 for its state.", labels=[*labels, "status"])
    for one in all_streams(store, address, project=None):
        of = [one.project, one.stream]
        for family, value in (
            (accepted, one.accepted), (processed, one.processed), (failed, one.failed), (lag, one.lag_items),
            (waits, one.lag_seconds),
        ):  # fmt: skip
            family.add_metric(of, value)
        state.add_metric([*of, one.state], 1)
    return accepted, processed, failed, lag, waits, state


def _alerts(store: LoopStore) -> Iterable[Metric]:
    alerts = GaugeMetricFamily("dataflow_alerts_open", "Alerts that are so now.", labels=["project", "event"])
    for project, event, number in count_open(store):
        alerts.add_metric([project, event], number)
    waiting = GaugeMetricFamily("dataflow_messages_undelivered", "Messages that could not be sent so far.")
    waiting.add_metric([], count_undelivered(store))
    return alerts, waiting

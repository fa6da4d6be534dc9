"""The API under /v1: the same questions and actions as the pages and the commands, as JSON."""

from opendataflow.server import hooks
from opendataflow.server.api import (
    accounts,
    actions,
    alerts,
    datasets,
    grid,
    jobs,
    lineage,
    overview,
    projects,
    runs,
    sources,
    streams,
    workers,
)

ROUTERS = (
    actions.router,
    accounts.router,
    sources.router,
    grid.router,
    datasets.router,
    lineage.router,
    alerts.router,
    overview.router,
    jobs.router,
    streams.router,
    workers.router,
    projects.router,
    hooks.router,
    runs.router,  # last: it has the addresses below a job that nobody else has
)

"""The pages for people: each file has the routes of one part, rendered here; they read what the API reads."""

from opendataflow.server import health, metrics
from opendataflow.server.pages import (
    account,
    actions,
    alerts,
    datasets,
    jobs,
    lineage,
    login,
    overview,
    projects,
    runs,
    sources,
    streams,
    workers,
)

ROUTERS = (
    actions.router,
    account.router,
    login.router,
    sources.router,
    datasets.router,
    lineage.router,
    alerts.router,
    health.router,
    metrics.router,
    overview.router,
    jobs.router,
    streams.router,
    workers.router,
    projects.router,
    runs.router,  # last: it has the addresses below a job that nobody else has
)

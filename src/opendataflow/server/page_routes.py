"""The pages for people: each file has the routes of one part, rendered here; they read what the API reads."""

from opendataflow.server import health, metrics
from opendataflow.server.accounts import login
from opendataflow.server.accounts import pages as account
from opendataflow.server.actions import pages as actions
from opendataflow.server.alerts import pages as alerts
from opendataflow.server.datasets import pages as datasets
from opendataflow.server.jobs import pages as jobs
from opendataflow.server.lineage import pages as lineage
from opendataflow.server.overview import pages as overview
from opendataflow.server.projects import pages as projects
from opendataflow.server.runs import pages as runs
from opendataflow.server.sources import pages as sources
from opendataflow.server.streams import pages as streams
from opendataflow.server.workers import pages as workers

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

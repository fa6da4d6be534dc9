"""The API under /v1: the same questions and actions as the pages and the commands, as JSON."""

from opendataflow.server.accounts import api as accounts
from opendataflow.server.actions import api as actions
from opendataflow.server.alerts import api as alerts
from opendataflow.server.datasets import api as datasets
from opendataflow.server.datasets import grid_api as grid
from opendataflow.server.jobs import api as jobs
from opendataflow.server.lineage import api as lineage
from opendataflow.server.overview import api as overview
from opendataflow.server.projects import api as projects
from opendataflow.server.projects import webhooks as hooks
from opendataflow.server.runs import api as runs
from opendataflow.server.sources import api as sources
from opendataflow.server.streams import api as streams
from opendataflow.server.workers import api as workers

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

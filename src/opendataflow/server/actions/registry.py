"""Every action there is, by name. A part of the server adds its own here."""

from typing import Any

from opendataflow.server.accounts import actions as account_actions
from opendataflow.server.action import Action
from opendataflow.server.jobs import dataid_actions as do_dataids
from opendataflow.server.jobs import maintenance as do_upkeep
from opendataflow.server.jobs import resubmit as do_resubmit
from opendataflow.server.jobs import schedule as do_schedule
from opendataflow.server.projects import actions as do_projects
from opendataflow.server.runs import abort as do_abort
from opendataflow.server.sources import actions as do_sources
from opendataflow.server.streams import actions as do_streams
from opendataflow.server.workers import limits as do_limits

_ALL: tuple[Action[Any], ...] = (
    *account_actions.ACTIONS,
    do_sources.UNBIND,
    do_dataids.RUN, do_resubmit.RESUBMIT, do_dataids.HOLD, do_dataids.RELEASE, do_abort.ABORT, do_limits.PAUSE,
    do_limits.RESUME, do_limits.SCALE, do_upkeep.VALIDATE, do_upkeep.CLEAN,
    do_schedule.SCHEDULE, *do_streams.ACTIONS, *do_projects.ACTIONS,
)  # fmt: skip

ACTIONS: dict[str, Action[Any]] = {action.name: action for action in _ALL}

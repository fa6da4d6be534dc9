"""Every action there is, by name. A part of the server adds its own here."""

from typing import Any

from opendataflow.server import (
    account_actions,
    do_abort,
    do_dataids,
    do_limits,
    do_projects,
    do_resubmit,
    do_schedule,
    do_sources,
    do_streams,
    do_upkeep,
)
from opendataflow.server.actions import Action

_ALL: tuple[Action[Any], ...] = (
    *account_actions.ACTIONS,
    do_sources.UNBIND,
    do_dataids.RUN, do_resubmit.RESUBMIT, do_dataids.HOLD, do_dataids.RELEASE, do_abort.ABORT, do_limits.PAUSE,
    do_limits.RESUME, do_limits.SCALE, do_upkeep.VALIDATE, do_upkeep.CLEAN,
    do_schedule.SCHEDULE, *do_streams.ACTIONS, *do_projects.ACTIONS,
)  # fmt: skip

ACTIONS: dict[str, Action[Any]] = {action.name: action for action in _ALL}

"""Every action there is, by name. A part of the server adds its own here."""

from typing import Any

from opendataflow.server import account_actions, do_sources
from opendataflow.server.actions import Action

_ALL: tuple[Action[Any], ...] = (
    *account_actions.ACTIONS,
    do_sources.UNBIND,
)  # fmt: skip

ACTIONS: dict[str, Action[Any]] = {action.name: action for action in _ALL}

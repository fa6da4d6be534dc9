"""`dataflow notify`: whether messages arrive, and what became of them."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from opendataflow.cli.opened import address, opened
from opendataflow.cli.options import Json
from opendataflow.cli.render import put_json, put_table, say
from opendataflow.errors import UsageError

if TYPE_CHECKING:
    from opendataflow.domain.alerts import To
    from opendataflow.store.claims import LoopStore

app = typer.Typer(help="Alerts: who is told, and what they were told.", no_args_is_help=True)


@app.command("test")
def send_test(
    job: Annotated[str | None, typer.Argument(help="The job or pipeline; without it: every address there is.")] = None,
    as_json: Json = False,
) -> int:
    """Send a test message to the addresses of a job, or to all of the project, and say of each whether it went.

    Exit 0 when all went, 1 when one did not.
    Examples: dataflow notify test;  dataflow notify test load_orders
    """
    from opendataflow.alerts.send import send_within
    from opendataflow.alerts.wording import words_of_test
    from opendataflow.errors import DataflowError
    from opendataflow.project.notify_address import read_address
    from opendataflow.store.records.sources import find_home

    found = address()
    store = opened(found)
    told: list[dict[str, Any]] = []
    for project, to in _addresses(store, job, project=found.project):
        try:
            text = words_of_test(project, store.environment, job)
            error = send_within(read_address(find_home(store, project) or "", to.place), text)
        except DataflowError as reason:
            error = str(reason)
        told.append({"to": to.shown, "place": to.place.replace("/", "."), "went": not error, "error": error})
        if not as_json:
            say(f"{to.shown} ({told[-1]['place']}): {f'it did not go: {error}' if error else 'it went'}")
    if as_json:
        put_json(told)
    return int(not all(one["went"] for one in told))


def _addresses(store: "LoopStore", jobid: str | None, *, project: str | None) -> "dict[tuple[str, To], None]":
    """Each once."""
    from opendataflow.store.records.alerts import list_notified

    of = store.get_job(jobid, project=project)[:2] if jobid is not None else None
    jobs = [one for one in list_notified(store).values() if project in (None, one.project)]
    jobs = [one for one in jobs if of is None or (one.project, one.jobid) == of]
    if not jobs:
        whose = f"{jobid} tells nobody" if jobid else "no job tells anybody"
        raise UsageError(f"{whose}; give `notify: [mailto://ops@example.com]` in project.yml and run `dataflow apply`")
    return {(one.project, to): None for one in jobs for to in one.settings.to}


@app.command("list")
def list_(
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Messages, the newest first.")] = 20,
    as_json: Json = False,
) -> None:
    """The messages: sent, being gathered, or waiting to be tried again with the reason; and what is wrong now.

    Examples: dataflow notify list;  dataflow notify list --limit 100 --json
    """
    from opendataflow.store.records.alert_messages import list_alerts, list_messages

    found = address()
    store = opened(found)
    messages = list_messages(store, project=found.project, limit=limit)
    alerts = list_alerts(store, project=found.project, limit=limit)
    if as_json:
        put_json({"messages": messages, "open": alerts})
        return
    if not messages and not alerts:
        say("no message yet; `dataflow notify test` sends one")
        return
    heads = ("messageid", "state", "events", "created_at", "sent_at", "attempts", "place", "error")
    put_table("Messages", heads, [[one[name] for name in heads] for one in messages])
    if alerts:
        columns = ("event", "name", "dataid", "at", "reason")
        put_table("Wrong now", columns, [[one[name] for name in columns] for one in alerts])

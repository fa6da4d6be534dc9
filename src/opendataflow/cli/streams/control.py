"""`dataflow stream`: tokens, how streams stand, items that were set aside, pause and resume; run and send."""

import json
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opendataflow.cli import completion
from opendataflow.cli.opened import address, opened
from opendataflow.cli.options import DryRun, Json, Yes
from opendataflow.cli.render import confirm, put, put_json, put_table, say
from opendataflow.cli.runs.show import moment
from opendataflow.domain.words import number_of
from opendataflow.errors import UsageError

if TYPE_CHECKING:
    from opendataflow.domain.job import Job
    from opendataflow.project.address import Address
    from opendataflow.store.claims import LoopStore
    from opendataflow.streams.state import StreamStatus

WATCH_SECONDS = 1.0

app = typer.Typer(help="Streams: items that come one by one, published in small batches.", no_args_is_help=True)
Pipeline = Annotated[str, typer.Argument(help="The stream pipeline.", autocompletion=completion.jobs)]
SomePipeline = Annotated[
    str | None,
    typer.Argument(help="The stream pipeline; without it: all of the project.", autocompletion=completion.jobs),
]


def _stream(slug: str) -> "tuple[Address, LoopStore, Job]":
    from opendataflow.store.records.streams import get_stream

    found = address()
    store = opened(found)
    row = get_stream(store, slug, project=found.project)
    return found, store, store.get_job(slug, project=row.project)


# Who may send ---------------------------------------------------------------------------------------------------------
@app.command()
def token(
    pipeline: Pipeline,
    revoke: Annotated[bool, typer.Option("--revoke", help="Let nobody send over HTTP any more.")] = False,
) -> None:
    """Make the token that senders give, and print it: this once, the store keeps its hash only. One before is void.

    Examples: dataflow stream token leads;  dataflow stream token leads --revoke
    """
    from opendataflow.store.records.streams import new_token, revoke_token

    _, store, job = _stream(pipeline)
    if revoke:
        done = revoke_token(store, job)
        say(f"{pipeline}: {'its token is void' if done else 'it had no token'}; nobody may send to it over HTTP")
        return
    put(new_token(store, job))
    say("senders give it as `Authorization: Bearer TOKEN`; it is not shown again, and a new one makes it void")


# How it stands --------------------------------------------------------------------------------------------------------
@app.command()
def status(
    pipeline: SomePipeline = None,
    watch: Annotated[bool, typer.Option("--watch", help="Again every second, until Ctrl-C.")] = False,
    as_json: Json = False,
) -> None:
    """How streams stand: items accepted, processed, set aside; how far behind, in items and seconds; how fast.

    Examples: dataflow stream status;  dataflow stream status leads --json;  dataflow stream status --watch
    """
    from opendataflow.store.records.streams import get_stream
    from opendataflow.streams.state import all_streams, stream_status

    found = address()
    store = opened(found)
    while True:
        if pipeline is None:
            told = all_streams(store, found, project=found.project)
        else:
            told = [stream_status(store, found, get_stream(store, pipeline, project=found.project))]
        if as_json:
            shown = [one._asdict() for one in told]
            put(json.dumps(shown, default=str)) if watch else put_json(shown)
        elif told:
            put_streams(told)
        else:
            say("this project has no stream; a pipeline becomes one by `mode: stream` in project.yml")
        if not watch:
            break
        sys.stdout.flush()
        time.sleep(WATCH_SECONDS)


def put_streams(told: "list[StreamStatus]", title: str = "") -> None:
    """A table of streams, and what to do about those that need it."""
    from opendataflow.streams.state import describe

    columns = ("stream", "state", "accepted", "processed", "set aside", "rejected", "behind", "seconds", "items/s",
               "sealed to")  # fmt: skip
    rows = [
        (one.stream, one.state, one.accepted, one.processed, one.failed or "", one.rejected or "", one.lag_items or "",
         f"{one.lag_seconds:.1f}" if one.lag_items else "", f"{one.rate:.1f}", one.sealed_to)
        for one in told
    ]  # fmt: skip
    put_table(title, columns, rows)
    for one in told:
        if one.fix:
            say(f"{one.stream}: {describe(one)}; next: {one.fix}")


# Items that were set aside --------------------------------------------------------------------------------------------
@app.command()
def failed(
    pipeline: Pipeline,
    limit: Annotated[int, typer.Option(help="At most so many.", min=1)] = 100,
    all_of_them: Annotated[bool, typer.Option("--all", help="Also those that were sent again.")] = False,
    as_json: Json = False,
) -> None:
    """Items on which a transformation failed, each with its error; the others were published without them.

    Of a stream that reads a folder or a topic, also rows and records that did not fit its schema.

    Examples: dataflow stream failed leads;  dataflow stream failed leads --json
    """
    from opendataflow.domain.streams import event_id
    from opendataflow.store.records.streams import list_failed

    found, store, job = _stream(pipeline)
    items = list_failed(store, job, replayed=all_of_them, limit=limit)
    rejected = _rejected(_folder(found, job), job, limit)
    if as_json:
        told = [{"id": event_id(pipeline, one.offset), **one._asdict(), "item": json.loads(one.item)} for one in items]
        put_json([*told, *rejected])
        return
    if not items and not rejected:
        say(f"no item of {pipeline} is set aside")
    if items:
        columns = ("item", "accepted", "run", "error", "as it was sent", "sent again as")
        put_table("", columns, [
            (one.offset, one.at, one.runid, (one.error.splitlines() or [""])[-1], one.item[:120], one.replayed_as)
            for one in items
        ])  # fmt: skip
        say(f"when the cause is mended: `dataflow stream replay {pipeline} --failed`")
    if rejected:
        names = ("rejected", "line", "at", "error", "as it stands there")
        rows = [(one["file"], one["line"] or "", one["at"], one["error"], one["row"][:120]) for one in rejected]
        put_table("", names, rows)
        say("these did not fit the schema and are not in the log; put a mended file there")


def _rejected(folder: str, job: "Job", limit: int) -> list[dict[str, Any]]:
    from opendataflow.domain.streams import INTAKE, get_settings

    if get_settings(job).origin == INTAKE:
        return []
    from opendataflow.intake.rejected import list_rejected

    names = ("file", "line", "at", "error", "row")
    return [{"id": None, **{name: one[name] for name in names}} for one in list_rejected(folder, limit=limit)]


@app.command()
def replay(
    pipeline: Pipeline,
    offsets: Annotated[list[int] | None, typer.Argument(help="With --failed: only these items.")] = None,
    failed_items: Annotated[bool, typer.Option("--failed", help="Send the items that were set aside again.")] = False,
    since: Annotated[
        str | None, typer.Option(help="Make everything accepted since then again: a time, a date (UTC), or 2h.")
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Send items again that were set aside, or make all that came since some time again from the log.

    --since has the destination's chunks of that time made again, in order, before anything new: until then consumers
    find them closed. It needs the log of that time, which is kept for the stream's `retention`.

    Examples: dataflow stream replay leads --failed;  dataflow stream replay leads --failed 17 42;
    dataflow stream replay leads --since 2026-11-16T08:00 --yes
    """
    if failed_items == (since is not None) or (offsets and not failed_items):
        raise UsageError("give --failed, with or without items, or --since 2026-11-16T08:00")
    found, store, job = _stream(pipeline)
    if since is not None:
        _replay_since(found, store, job, since, dry_run=dry_run, yes=yes, as_json=as_json)
        return
    from opendataflow.streams.replay import find_failed_items, replay_failed

    items = find_failed_items(store, job, offsets or None)
    sent = {one.offset: "" for one in items} if dry_run else replay_failed(store, job, _folder(found, job), items)
    if as_json:
        put_json([{"offset": offset, "sent_as": name or None} for offset, name in sent.items()])
    say(f"{'would send' if dry_run else 'sent'} {number_of(len(sent), 'item')} again")


def _replay_since(
    found: "Address", store: "LoopStore", job: "Job", since: str, *, dry_run: bool, yes: bool, as_json: bool
) -> None:
    from opendataflow.streams.replay import replay_since

    planned = replay_since(store, job, _folder(found, job), moment(since), dry_run=True)
    if planned and not dry_run:
        confirm(f"make {len(planned)} batches and slots of {job.jobid} again", yes=yes)
        planned = replay_since(store, job, _folder(found, job), moment(since), dry_run=False)
    if as_json:
        put_json(planned)
    what = f"{'would be' if dry_run else 'are to be'} made again: {len(planned)} batches and slots"
    say(what if planned else "nothing came since then")


def _folder(found: "Address", job: "Job") -> str:
    from opendataflow.project.address import stream_folder

    return stream_folder(found, job.project, job.jobid)


# Holding and running --------------------------------------------------------------------------------------------------
@app.command()
def pause(pipeline: Pipeline, reason: Annotated[str, typer.Option(help="Why, for those who wonder.")] = "") -> None:
    """Process nothing more of a stream; items are still accepted, until its `backlog` is full.

    Example: dataflow stream pause leads --reason "the CRM is down"
    """
    from opendataflow.store.records.workers import pause as pause_in

    _, store, job = _stream(pipeline)
    pause_in(store, job, reason=reason)
    say(f"{pipeline} is paused until `dataflow stream resume {pipeline}`; items are still accepted")


@app.command()
def resume(pipeline: Pipeline) -> None:
    """Let a paused stream go on, or one that FAILED: its failed batch is tried again.

    Example: dataflow stream resume leads
    """
    from opendataflow.streams.replay import resume_stream

    _, store, job = _stream(pipeline)
    for line in resume_stream(store, job):
        say(line)


@app.command()
def run(
    pipeline: Pipeline,
    drain: Annotated[bool, typer.Option("--drain", help="Until all that was accepted is processed, then end.")] = False,
    grace: Annotated[float, typer.Option(help="After SIGTERM, seconds in which what runs may finish.", min=0.0)] = 0.0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per batch on stdout.")] = False,
) -> int:
    """Process a stream as its items come, until it is stopped; the same as `dataflow run PIPELINE`.

    Examples: dataflow stream run leads;  dataflow stream run leads --drain
    """
    from opendataflow.cli.runs.run import run_job

    return run_job(pipeline, drain=drain, grace=grace, as_json=as_json, must_stream=True)


def add_to(parent: typer.Typer) -> None:
    from opendataflow.cli.streams import send as stream_send

    app.command()(stream_send.send)
    parent.add_typer(app, name="stream")

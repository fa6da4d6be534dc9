"""`dataflow stream send`: the items of a file into a stream."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from opendataflow.cli import completion
from opendataflow.cli.opened import address, opened
from opendataflow.cli.render import put_json, say
from opendataflow.domain.words import number_of

if TYPE_CHECKING:
    from opendataflow.intake.log import Accepted
    from opendataflow.intake.schema import Items
    from opendataflow.project.address import Address
    from opendataflow.store.claims import LoopStore
    from opendataflow.store.records.streams import StreamRow


def send(
    pipeline: Annotated[str, typer.Argument(help="The stream pipeline.", autocompletion=completion.jobs)],
    file: Annotated[str, typer.Argument(metavar="FILE", help="Items: a .csv with a header, or .ndjson.")],
    url: Annotated[
        str | None, typer.Option(help="A server, like http://host:8321; without it into the log here.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="Sent again with the same key, what was accepted before is not doubled.")
    ] = None,
    at_once: Annotated[int, typer.Option(min=1, max=100_000, help="So many items in a request.")] = 1000,
    as_json: Annotated[bool, typer.Option("--json", help="What was sent as a JSON object.")] = False,
) -> None:
    """Send the items of a file to a stream; they are durable when it ends.

    The whole file is checked first: if an item does not fit, it is named by its line and nothing is sent. Empty cells
    of a CSV are nulls, where the field is not required. With --url the token is taken from DATAFLOW_STREAM_TOKEN.

    Examples: dataflow stream send leads leads.csv;  dataflow stream send leads more.ndjson --key monday;
    DATAFLOW_STREAM_TOKEN=… dataflow stream send leads leads.csv --url http://etl-3:8321
    """
    from opendataflow.intake.entry import check_key
    from opendataflow.intake.files import count_items, read_parts
    from opendataflow.intake.schema import StreamSchema
    from opendataflow.store.records.streams import get_stream

    given = check_key(f"{key}-0").removesuffix("-0") if key is not None else f"send-{os.urandom(8).hex()}"
    found = address()
    store = opened(found)
    row = get_stream(store, pipeline, project=found.project)
    schema = StreamSchema(row.settings.schema)
    total = count_items(file, schema)
    first = last = None
    done = repeated = 0
    with _sending(found, store, row, url) as append, _progress(total) as tell:
        for number, part in enumerate(read_parts(file, schema, at_once=at_once, most_bytes=row.settings.body_bytes)):
            try:
                accepted = append(part, f"{given}-{number}")
            except BaseException:
                say(f"{done:,} of {total:,} items were sent; the same command with `--key {given}` goes on there")
                raise
            first = accepted.first if first is None else first
            last, done = accepted.end - 1, done + part.count
            repeated += accepted.count if accepted.repeated else 0
            tell(part.count)
    store.close()
    if as_json:
        told = {"pipeline": row.jobid, "items": total, "repeated": repeated, "key": given}
        put_json({**told, "first": _id(row, first), "last": _id(row, last)})
        return
    known = f", {repeated:,} of them accepted before" if repeated else ""
    ids = f": {_id(row, first)} … {_id(row, last)}" if total else ""
    say(f"sent {number_of(total, 'item')} to {row.jobid}{known}{ids}")


@contextlib.contextmanager
def _sending(
    found: "Address", store: "LoopStore", row: "StreamRow", url: str | None
) -> Iterator[Callable[["Items", str], "Accepted"]]:
    """What appends items under a key: over HTTP, or to the log on this machine, beside any server."""
    if url is not None:
        from opendataflow.cli.streams.http import Sender

        with contextlib.closing(Sender(url, row.project, row.jobid)) as sender:
            yield sender.send
        return
    from opendataflow.intake.log import IntakeLog
    from opendataflow.project.address import stream_folder
    from opendataflow.store.records.streams import committed_end

    begin = committed_end(store, store.get_job(row.jobid, project=row.project))
    log = IntakeLog(stream_folder(found, row.project, row.jobid), begin=begin)
    with contextlib.closing(log):
        yield lambda items, key: log.append(items.data, items.count, key=key)


def _id(row: "StreamRow", offset: int | None) -> str | None:
    return None if offset is None else f"{row.jobid}-{offset}"


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("sending", total=total)
        yield lambda count: bar.advance(task, count)

"""What pipelines and arrivals left: its first rows, and clearing it."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opendataflow.cli import completion
from opendataflow.cli.opened import address, opened
from opendataflow.cli.options import Json
from opendataflow.cli.render import confirm, put, put_json, put_table, say
from opendataflow.cli.runs.show import moment
from opendataflow.domain.words import number_of
from opendataflow.errors import UsageError

if TYPE_CHECKING:
    from opendataflow.operations.clear import Chunk, Made, RunFolder
    from opendataflow.operations.preview import Preview
    from opendataflow.store.claims import LoopStore

CELL = 40  # characters of a value that a table shows
PIPED = 200  # characters of a line where nobody sees how wide it is
GRACE = "1h"
_UNITS = ("bytes", "kB", "MB", "GB", "TB")

DatasetId = Annotated[
    str,
    typer.Argument(
        metavar="DATASET", help="The dataset; `other.orders`: another project's.", autocompletion=completion.datasets
    ),
]

output_app = typer.Typer(help="What pipelines wrote.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    app.command()(preview)
    app.add_typer(output_app, name="output")


# Looking --------------------------------------------------------------------------------------------------------------
def preview(
    dataset: DatasetId,
    dataid: Annotated[str | None, typer.Argument(help="Which chunk; without it the latest that is READY.")] = None,
    rows: Annotated[int, typer.Option(min=0, help="So many rows.")] = 10,
    columns: Annotated[str | None, typer.Option(help="Only these, with commas between them.")] = None,
    run: Annotated[int | None, typer.Option("--run", help="What this run wrote, also if it failed.")] = None,
    as_json: Json = False,
) -> None:
    """The first rows of a published chunk with its schema, as consumers see it; needs no Spark and no Java.

    A chunk that is not READY is not shown (exit 10); --run shows what a failed run left behind.

    Examples: dataflow preview orders;  dataflow preview orders 2025-11-12 --rows 3 --columns id,total;
    dataflow preview orders --run 42
    """
    from opendataflow.operations.preview import find_left, find_published, read_rows
    from opendataflow.store.published import find_dataset

    found = address()
    store = opened(found)
    of, root = find_dataset(store, dataset, project=found.project)
    if run is None:
        shown = find_published(store, of, dataid, root=root)
    else:
        shown = find_left(store, of, run, dataid, root=root)
    wanted = [name.strip() for name in columns.split(",") if name.strip()] if columns else None
    told = read_rows(of, shown, root=root, rows=rows, columns=wanted)
    if as_json:
        facts = told.shown._asdict()
        put_json({"dataset": of.datasetid, **facts, "schema": told.schema, "preview": told.rows})
        return
    _put_preview(of.datasetid, told)


def _put_preview(name: str, told: "Preview") -> None:
    shown = told.shown
    facts = [
        shown.status if shown.published_at is None else f"{shown.status} since {shown.published_at}",
        f"run {shown.run}" if shown.run is not None and shown.published_at is not None else "",
        "rows not counted" if shown.rows is None else number_of(shown.rows, "row"),
        "" if shown.bytes is None else as_size(shown.bytes),
    ]
    put(f"{name}/{shown.dataid}  {', '.join(fact for fact in facts if fact)}")
    put(f"{shown.location}")
    if shown.note:
        say(shown.note)
    put(", ".join(f"{column}: {type_}" if type_ else column for column, type_ in told.schema.items()))
    cells = [[_cell(row[column]) for column in told.schema] for row in told.rows]
    heads = [_cell(column) for column in told.schema]
    fitting = _fitting(heads, cells)
    if cells:
        put_table("", heads[:fitting], [line[:fitting] for line in cells])
    if cells and fitting < len(heads):
        rest = list(told.schema)[fitting:]
        named = ", ".join(rest[:5]) + (" …" if len(rest) > 5 else "")
        say(f"and {number_of(len(rest), 'column')} more: {named}; see --columns or --json")


def _cell(value: Any) -> str:
    """One line of at most so many characters; a null is shown as such, to tell it from an empty text."""
    if value is None:
        return "null"
    text = "".join(char if char.isprintable() else repr(char)[1:-1] for char in str(value)[: CELL + 1])
    return text if len(text) <= CELL else f"{text[: CELL - 1]}…"


def _fitting(heads: list[str], cells: list[list[str]]) -> int:
    """How many columns fit beside each other, at least one."""
    from rich.cells import cell_len
    from rich.console import Console

    console = Console()
    room = console.width if console.is_terminal else PIPED
    for number, head in enumerate(heads):
        room -= max(cell_len(text) for text in [head, *(line[number] for line in cells)]) + 2
        if room < 0:
            return max(number, 1)
    return len(heads)


# Clearing -------------------------------------------------------------------------------------------------------------
@output_app.command()
def clear(
    dataset: DatasetId,
    dataids: Annotated[list[str] | None, typer.Argument(metavar="[DATAID]...", help="One or more chunks.")] = None,
    all_chunks: Annotated[bool, typer.Option("--all", help="Every chunk.")] = False,
    superseded: Annotated[
        bool, typer.Option("--superseded", help="Only what no chunk points at: old versions, leftovers of failed runs.")
    ] = False,
    older_than: Annotated[
        str, typer.Option(help="With --superseded: only what nobody needed for so long. Readers have this much time.")
    ] = GRACE,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would go.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Take back chunks that a pipeline published, and remove their files; the next run makes them again.

    Consumers stop reading them first. Refused (exit 14) while one of them is being made or read. With --superseded
    nothing that is published goes.

    Examples: dataflow output clear orders 2025-11-12;  dataflow output clear orders --superseded --yes
    """
    from opendataflow.operations.clear import made_by_pipeline
    from opendataflow.store.published import find_dataset

    if sum((bool(dataids), all_chunks)) > 1:
        raise UsageError("give dataids or --all, not both")
    if not (dataids or all_chunks or superseded):
        raise UsageError(f"which chunks of {dataset}? give dataids, --all, or --superseded for what nobody needs")
    found = address()
    store = opened(found)
    made = made_by_pipeline(store, *find_dataset(store, dataset, project=found.project))
    if superseded:
        _clear_superseded(store, made, dataids, moment(older_than), dry_run=dry_run, yes=yes, as_json=as_json)
    else:
        _clear_chunks(store, made, dataids, dry_run=dry_run, yes=yes, as_json=as_json)


def _clear_chunks(
    store: "LoopStore", made: "Made", dataids: list[str] | None, *, dry_run: bool, yes: bool, as_json: bool
) -> None:
    from opendataflow.operations.clear import clear as clear_in
    from opendataflow.operations.clear import find_chunks

    name = made.dataset.datasetid
    chunks = find_chunks(store, made, dataids or None)
    size = as_size(sum(chunk.bytes for chunk in chunks))
    if chunks and not dry_run:
        confirm(f"take back {number_of(len(chunks), 'chunk')} of {name} and remove {size}", yes=yes)
        clear_in(store, made, chunks)
    if as_json:
        put_json([_told(chunk, made) for chunk in chunks])
        return
    for chunk in chunks if dry_run else ():
        put(f"{name}/{chunk.dataid}  {chunk.status.value}, {as_size(chunk.bytes)}  {chunk.location or ''}")
    for chunk in chunks:
        if chunk.location and not any(chunk.location.startswith(folder.path) for folder in chunk.folders):
            say(f"{name}/{chunk.dataid}: {chunk.location} was not written by a run and stays")
    if not chunks:
        say(f"no chunk of {name} is published")
    else:
        told = f"{number_of(len(chunks), 'chunk')}, {size}"
        again = f"; `dataflow run {made.job.jobid} --drain` makes them again"
        say(f"would clear {told}" if dry_run else f"cleared {told}{again}")


def _told(chunk: "Chunk", made: "Made") -> dict[str, Any]:
    of_chunk = {"dataset": made.dataset.datasetid, "dataid": chunk.dataid, "status": chunk.status.value}
    paths = [folder.path for folder in chunk.folders]
    return {**of_chunk, "run": chunk.run, "location": chunk.location, "bytes": chunk.bytes, "paths": paths}


def _clear_superseded(
    store: "LoopStore", made: "Made", dataids: list[str] | None, before: float, *, dry_run: bool, yes: bool,
    as_json: bool,
) -> None:  # fmt: skip
    from opendataflow.operations.clear import find_unneeded, remove

    if before > time.time():
        raise UsageError("--older-than is a time that has passed, such as 1h, 2d or 2025-11-12")
    name = made.dataset.datasetid
    unneeded = find_unneeded(store, made, before=before, dataids=dataids)
    folders: list[RunFolder] = sorted(unneeded.folders)
    told = f"{number_of(len(folders), 'run directory')} of {name}, {as_size(sum(one.bytes for one in folders))}"
    if folders and not dry_run:
        confirm(f"remove {told}", yes=yes)
        for folder in folders:
            remove(made, folder)
    if as_json:
        put_json([{"dataset": name, **folder._asdict()} for folder in folders])
        return
    for folder in folders if dry_run else ():
        put(f"{name}/{folder.dataid or '?'}  run {folder.run}, {as_size(folder.bytes)}  {folder.path}")
    young = f"; {unneeded.too_young} more when they are older" if unneeded.too_young else ""
    say(f"{'would remove' if dry_run else 'removed'} {told}{young}")


def as_size(size: float) -> str:
    for unit in _UNITS[:-1]:
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} {_UNITS[-1]}"

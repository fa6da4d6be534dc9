"""What the checks of chunks found."""

import difflib
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opendataflow.cli import completion
from opendataflow.cli.opened import address, opened
from opendataflow.cli.render import put_json, put_table, say
from opendataflow.errors import UsageError

if TYPE_CHECKING:
    from opendataflow.domain.dataset import Dataset
    from opendataflow.store.claims import LoopStore

NOT_VALIDATED = 13
_COLUMNS = ("check", "result", "detail", "checked_at", "runid")
_HEADS = ("check", "result", "detail", "when", "run")


def add_to(app: typer.Typer) -> None:
    app.command()(checks)


def checks(
    dataset: Annotated[
        str | None,
        typer.Argument(help="The dataset's id; without it, those of the project.", autocompletion=completion.datasets),
    ] = None,
    dataid: Annotated[str | None, typer.Argument(help="Which chunk; without it, the latest with trouble.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many chunks.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="For scripts.")] = False,
) -> int:
    """What the checks of a chunk found the last time, check by check; or the latest chunks where something was found.

    Exit: 0 when nothing failed, 13 when a check failed.

    Examples: dataflow checks flights 2013-01-01;  dataflow checks flights;  dataflow checks --json
    """
    from opendataflow.store.reports.check_results import find_findings, latest_trouble

    found = address()
    store = opened(found)
    if dataset is None or dataid is None:
        project, datasetid = _asked(store, found.project, dataset)
        rows = latest_trouble(store, project, datasetid=datasetid, limit=limit)
        _show(rows, ("dataset", "dataid", *_COLUMNS), ("dataset", "dataid", *_HEADS), as_json=as_json)
        if not rows:
            say("no check of any chunk failed, warned or took out rows")
    else:
        declared = _get_dataset(store, dataset, found.project)
        rows = find_findings(store, declared, dataid)
        if not rows:
            _explain_nothing(store, declared, dataid)
        _show(rows, _COLUMNS, _HEADS, as_json=as_json)
    return NOT_VALIDATED if any(row["result"] == "failed" for row in rows) else 0


def _asked(store: "LoopStore", project: str | None, dataset: str | None) -> tuple[str, str | None]:
    if dataset is not None:
        declared = _get_dataset(store, dataset, project)
        return declared.project, declared.datasetid
    if project is None:
        raise UsageError("which project? go to its folder, set DATAFLOW_PROJECT, or name a dataset")
    return project, None


def _get_dataset(store: "LoopStore", datasetid: str, project: str | None) -> "Dataset":
    from opendataflow.store.registry import get_dataset
    from opendataflow.store.reports.listing import list_datasets

    try:
        return get_dataset(store, datasetid, project=project)[0]
    except UsageError:
        known = [one["datasetid"] for one in list_datasets(store, project=project)]
        if datasetid in known:
            raise
        hint = store.as_job(datasetid, project) or _hint(datasetid, known)
        raise UsageError(f"dataset {datasetid!r} is not registered; {hint}") from None


def _explain_nothing(store: "LoopStore", dataset: "Dataset", dataid: str) -> None:
    """Say why there is no finding; a dataid that nobody knows is an error with the nearest one."""
    from opendataflow.domain.checks.check import checks_of
    from opendataflow.store.reports.check_results import has_chunk, known_dataids

    if not has_chunk(store, dataset, dataid):
        raise UsageError(
            f"nothing is known of {dataset.datasetid}/{dataid}; {_hint(dataid, known_dataids(store, dataset))}"
        )
    why = "nobody has done them yet" if checks_of(dataset.definition) else "the dataset declares none"
    say(f"there is no finding of checks on {dataset.datasetid}/{dataid}: {why}")


def _hint(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else "see `dataflow status`"


def _show(rows: list[dict[str, Any]], columns: tuple[str, ...], heads: tuple[str, ...], *, as_json: bool) -> None:
    if as_json:
        put_json([{column: row[column] for column in columns} for row in rows])
    elif rows:
        put_table("", heads, [[row[column] for column in columns] for row in rows])

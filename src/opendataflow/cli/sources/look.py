"""`dataflow source`: does a dataset's database answer, what is in it, and as which types will Spark see it?

Everything goes over the connection that pipelines use, without Spark.
"""

import json
import os
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opendataflow.cli import completion
from opendataflow.cli.opened import address, bound_in, opened
from opendataflow.cli.options import Json
from opendataflow.cli.render import put, put_csv, put_json, put_table, say
from opendataflow.cli.sources import bind as source_bind
from opendataflow.errors import UsageError

if TYPE_CHECKING:
    from opendataflow.domain.dataset import Dataset
    from opendataflow.spark.spec import Place
    from opendataflow.store.claims import LoopStore

CELL = 40  # characters of a value that a table shows

DatasetId = Annotated[
    str, typer.Argument(metavar="DATASET", help="A dataset of project.yml.", autocompletion=completion.datasets)
]
Dataid = Annotated[str | None, typer.Argument(help="Only the rows of this chunk.")]

source_app = typer.Typer(help="Where datasets are: bind, test, sample, schema, download.", no_args_is_help=True)
source_bind.add_to(source_app)


def add_to(app: typer.Typer) -> None:
    app.add_typer(source_app, name="source")


@source_app.command("test")
def answers(dataset: DatasetId, as_json: Json = False) -> None:
    """Connect to the dataset's database and see whether its table or query can be read; of files, whether they can.

    Exit: 0, or 1 with one sentence that says what is wrong: no route, wrong password, no such table, no permission.

    Example: dataflow source test crm
    """
    declared, root = _find(dataset)
    told = {"dataset": declared.datasetid, **_look(declared, root)}
    if as_json:
        put_json(told)
        return
    put(f"{declared.datasetid}  {told['address']}")
    if declared.location is None:
        put(f"server: {told['server']}, connected in {told['connect_ms']} ms, answers in {told['answer_ms']} ms")
    chunks = f", chunked by {told['partition_column']}" if told["partition_column"] else ""
    put(f"{told['what']}: {told['columns']} columns, can be read{chunks}")


@source_app.command()
def sample(
    dataset: DatasetId,
    dataid: Dataid = None,
    rows: Annotated[int, typer.Option(min=0, max=100_000, help="So many rows.")] = 10,
    as_csv: Annotated[bool, typer.Option("--csv", help="As CSV, whole values.")] = False,
    as_json: Json = False,
) -> None:
    """The first rows of a table or query, of one chunk or of all; of files, those of what is published.

    Examples: dataflow source sample crm;  dataflow source sample crm 2025-01-01 --rows 100 --csv
    """
    if as_csv and as_json:
        raise UsageError("--csv and --json: give one of them")
    names, found = _rows(dataset, dataid, rows)
    if as_json:
        put_json([dict(zip(names, row, strict=True)) for row in found])
    elif as_csv:
        put_csv(names, iter([found]), safe=False)
    else:
        put_table("", names, [[_cell(value) for value in row] for row in found])
        say(f"{len(found)} rows" if len(found) < rows or not rows else f"the first {rows} rows")


@source_app.command()
def download(
    dataset: DatasetId,
    dataid: Dataid = None,
    safe: Annotated[
        bool, typer.Option("--safe", help="For spreadsheets: texts that would be taken for a formula get a ' in front.")
    ] = False,
) -> None:
    """All rows of a table or query, or of one chunk, as CSV; of files, those of all that is published. Row by row.

    Examples: dataflow source download crm > crm.csv;  dataflow source download crm 2025-01-01 --safe
    """
    declared, root = _find(dataset)
    if declared.location is not None:
        from opendataflow.operations.source_files import all_rows_of

        store, registered, root = _registered(declared)
        put_csv(*all_rows_of(store, registered, dataid, root=root), safe=safe)
        return
    from opendataflow.spark.sql_look import all_rows

    put_csv(*all_rows(_place(declared, root, dataid)), safe=safe)


@source_app.command()
def schema(dataset: DatasetId, as_json: Json = False) -> None:
    """The columns of a table or query with the database's types and those that Spark will see.

    Example: dataflow source schema crm
    """
    declared, root = _find(dataset)
    if declared.location is not None:
        told = [{"column": name, "type": "", "spark": type_} for name, type_ in _preview(declared, None, 1)[0].items()]
    else:
        from opendataflow.spark.sql_look import columns_of

        told = columns_of(_place(declared, root, None))
    if as_json:
        put_json(told)
        return
    put_table("", ("column", "type", "Spark's type"), [(one["column"], one["type"], one["spark"]) for one in told])


# Which ----------------------------------------------------------------------------------------------------------------
def _look(declared: "Dataset", root: str) -> dict[str, Any]:
    if declared.location is not None:
        from opendataflow.operations.source_files import look_at_files

        store, registered, root = _registered(declared)
        return look_at_files(store, registered, root=root)
    from opendataflow.spark.sql_look import look_at

    return look_at(_place(declared, root, _any_dataid(declared)), clock=time.monotonic)


def _find(name: str) -> tuple["Dataset", str]:
    """The dataset as project.yml declares it now, applied or not, and its root; without a project.yml, the store's."""
    found = address()
    if found.home is None:
        from opendataflow.store.published import find_dataset

        return find_dataset(opened(found), name, project=found.project)
    from opendataflow.project.registration.load import load_registration
    from opendataflow.project.source import suggestion

    made = load_registration(found.home, found.environment or "", bound=bound_in(found))
    known = {one.datasetid: one for one in made.datasets}
    declared = known.get(name) or known.get(name.removeprefix(f"{made.project}."))
    if declared is None:
        raise UsageError(f"project.yml has no dataset {name!r}{suggestion(name, known)}")
    return declared, made.root


def _place(declared: "Dataset", root: str, dataid: str | None) -> "Place":
    """How it is reached; its password is put into this process's environment, where the connection looks for it."""
    from opendataflow.domain.partitions.scheme import check_dataid
    from opendataflow.domain.tables import SQL, find_table, source_database, table_location
    from opendataflow.execution.environment import find_passwords
    from opendataflow.spark.spec import Database, Place

    if find_table(declared) is None:
        raise UsageError(f"{declared.datasetid} {_what(declared)}; a `url` with a `table` or `query` can be looked at")
    if dataid is not None and declared.partitions:  # of a table, any text can be compared with a column
        check_dataid(declared.datasetid, declared.partitions, dataid)
    fields = source_database(declared, [dataid] if dataid else [], root=root)
    password = find_passwords([declared]).get(declared[:2])
    if fields["password_variable"] and password is not None:
        os.environ[fields["password_variable"]] = password
    return Place(
        datasetid=declared.datasetid,
        location=table_location(declared, dataid or "", root=root) or "",
        format=SQL,
        options={},
        schema=json.loads(declared.definition or "{}").get("schema"),
        database=Database(**{**fields, "dataids": tuple(fields["dataids"])}),
    )


def _any_dataid(declared: "Dataset") -> str | None:
    """One of its dataids, to see whether its rows can be told from others."""
    import datetime

    from opendataflow.domain.partitions.scheme import expected_dataids

    if declared.partitions is None:
        return None
    last = datetime.datetime.max.replace(tzinfo=datetime.UTC)
    return next(iter(expected_dataids(json.loads(declared.partitions), now=last)), None)


def _what(declared: "Dataset") -> str:
    if declared.clock is not None:
        return "is a clock and has no data"
    if declared.location is not None:
        return f"is files at {declared.location}"
    return "has no address of a database"


# Rows -----------------------------------------------------------------------------------------------------------------
def _rows(dataset: str, dataid: str | None, rows: int) -> tuple[list[str], list[list[Any]]]:
    declared, root = _find(dataset)
    if declared.location is not None:
        schema, found = _preview(declared, dataid, rows)
        return list(schema), [list(row.values()) for row in found]
    from opendataflow.spark.sql_look import first_rows

    return first_rows(_place(declared, root, dataid), rows)


def _preview(declared: "Dataset", dataid: str | None, rows: int) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Of files: what consumers read."""
    from opendataflow.operations.source_files import first_rows_of

    store, registered, root = _registered(declared)
    told = first_rows_of(store, registered, dataid, rows, root=root)
    return told.schema, told.rows


def _registered(declared: "Dataset") -> "tuple[LoopStore, Dataset, str]":
    """Files are read as the store knows them."""
    from opendataflow.store.published import find_dataset

    found = address()
    store = opened(found)
    return store, *find_dataset(store, declared.datasetid, project=found.project)


def _cell(value: Any) -> str:
    """One line of at most so many characters; a null is shown as such, to tell it from an empty text."""
    if value is None:
        return "null"
    text = "".join(char if char.isprintable() else repr(char)[1:-1] for char in str(value)[: CELL + 1])
    return text if len(text) <= CELL else f"{text[: CELL - 1]}…"

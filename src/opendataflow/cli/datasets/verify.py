"""`dataflow verify`: is what was published still there, and still what was published?"""

from collections import Counter
from typing import Annotated

import typer

from opendataflow.cli import completion
from opendataflow.cli.opened import address, opened
from opendataflow.cli.options import Json
from opendataflow.cli.render import put_json, put_table, say
from opendataflow.domain.words import number_of


def add_to(app: typer.Typer) -> None:
    app.command()(verify)


def verify(
    dataset: Annotated[
        str | None, typer.Argument(help="Only this dataset.", autocompletion=completion.datasets)
    ] = None,
    contents: Annotated[bool, typer.Option("--contents", help="Read all files, and compare what is in them.")] = False,
    as_json: Json = False,
) -> int:
    """Look whether published files are still there and still what was published; exit 1 if not.

    Sizes and times are compared first, or the ETags of an object store, and contents where those differ. What is gone
    or changed is kept: `dataflow why` shows it with the step that makes it whole. Tables are not looked at.

    Examples: dataflow verify;  dataflow verify orders --contents
    """
    from opendataflow.operations.verify import list_damage_of, next_step
    from opendataflow.operations.verify import verify as verify_all

    found = address()
    store = opened(found)
    counts = Counter(one.finding.value for one in verify_all(store, dataset, project=found.project, contents=contents))
    wrong = list_damage_of(store, dataset, project=found.project)
    rows = [
        {
            "project": one.key.project, "dataset": one.key.datasetid, "dataid": one.key.dataid,
            "finding": str(one.finding), "seen_at": one.seen_at, "version": one.version, "jobid": one.jobid,
            "fix": next_step(one),
        }
        for one in wrong
    ]  # fmt: skip
    if as_json:
        put_json({"looked_at": counts.total(), "not_comparable": counts["unseen"], "wrong": rows})
        return 1 if wrong else 0
    if rows:
        names = ("dataset", "dataid", "finding", "seen_at", "fix")
        put_table(
            "", ("dataset", "dataid", "it is", "seen", "next step"), [[row[name] for name in names] for row in rows]
        )
    unseen = f", {counts['unseen']} could not be compared" if counts["unseen"] else ""
    gone = f"{counts['gone']} gone, {counts['changed']} changed"
    say(f"{number_of(counts.total(), 'chunk')} looked at: {gone}{unseen}")
    return 1 if wrong else 0

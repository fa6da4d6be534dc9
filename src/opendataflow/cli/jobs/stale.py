"""`dataflow stale`: what is older than what it should be made from."""

from typing import Annotated

import typer

from opendataflow.cli import completion
from opendataflow.cli.opened import address, opened
from opendataflow.cli.options import Json
from opendataflow.cli.render import put, put_json, put_table, say


def add_to(app: typer.Typer) -> None:
    app.command()(stale)


def stale(
    name: Annotated[
        str | None,
        typer.Argument(help="Only this job, or what makes this dataset.", autocompletion=completion.jobs_and_datasets),
    ] = None,
    limit: Annotated[int, typer.Option(help="At most so many dataids.", min=1)] = 1000,
    as_json: Json = False,
) -> None:
    """List published data that is older than an input, the code or a check that it should be made from.

    `direct`: an input has other content than was read, or the job's code or checks changed. `upstream`: something that
    it reads is stale itself. An input that was made again with the same content makes nothing stale.

    Examples: dataflow stale;  dataflow stale report --json
    """
    from opendataflow.operations.staleness import bring_up_to_date, describe_counts, report_stale

    found = address()
    store = opened(found)
    bring_up_to_date(store, project=found.project)
    told = report_stale(store, name, project=found.project, limit=limit)
    if as_json:
        put_json(told)
        return
    names = ("jobid", "dataid", "kind", "reasons", "since")
    rows = [["; ".join(one[name]) if name == "reasons" else one[name] for name in names] for one in told["stale"]]
    if rows:
        put_table("", ("job", "dataid", "stale", "because", "since"), rows)
    direct = sum(one["direct"] for one in told["jobs"])
    upstream = sum(one["upstream"] for one in told["jobs"])
    if direct + upstream:
        put(f"{describe_counts(direct, upstream)}; `dataflow resubmit --stale` makes them again")
    else:
        put("Nothing is stale.")
    if direct + upstream > len(rows):
        say(f"only the first {len(rows)}; see --limit")
    if not told["complete"]:
        say("what was published last is not worked in yet; ask again")

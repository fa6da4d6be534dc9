"""`dataflow clean`: housekeeping in one command."""

import time
from typing import Annotated

import typer

from opendataflow.cli.datasets.output import as_size
from opendataflow.cli.jobs.operate import CLEAN_PAUSE_SECONDS
from opendataflow.cli.opened import address, opened
from opendataflow.cli.options import DryRun, Json, Yes
from opendataflow.cli.render import confirm, put, put_json, say
from opendataflow.cli.runs.show import moment
from opendataflow.domain.words import number_of
from opendataflow.errors import UsageError

AGE = "90d"


def add_to(app: typer.Typer) -> None:
    app.command()(clean)


def clean(
    older_than: Annotated[str, typer.Option(help="Only what is older: 90d, 2w, or a date.")] = AGE,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Remove what nobody needs any more: superseded versions of chunks, old logs, records of old runs and changes.

    Of streams: batches that are sealed and segments of the log, both when the stream's `retention` is over.

    Never a version that a chunk points at or that is being read; never what runs, nor the log and record that say why
    something is FAILED; where jobs and chunks stand is not touched. Meant for a nightly `dataflow clean --yes`.

    Examples: dataflow clean --dry-run;  dataflow clean --older-than 30d --yes
    """
    from opendataflow.operations.clean import as_json as told_as_json
    from opendataflow.operations.clean import clean_records, find_old, remove_files
    from opendataflow.store.operations import get_project
    from opendataflow.streams.clean import as_json as streams_as_json
    from opendataflow.streams.clean import drop_segments, find_sealed, remove_sealed

    before = moment(older_than)
    if before > time.time():
        raise UsageError("--older-than is a time that has passed, such as 90d or 2025-11-12")
    place = address()
    store = opened(place)
    project = get_project(store, place.project)
    found = find_old(store, project=project, before=before, work=place.work)
    folders = [(one.made.dataset.datasetid, folder) for one in found.versions for folder in one.folders]
    files = f"{number_of(len(folders), 'superseded version')} and {number_of(len(found.logs), 'log')}"
    sealed, segments = find_sealed(store, project=project, now=time.time()), None
    batches = sum(len(one.dataids) for one in sealed)
    files += f" and {number_of(batches, 'chunk')} of streams that are sealed" if batches else ""
    told = f"{files} ({as_size(found.bytes + sum(one.bytes for one in sealed))})"
    if not dry_run:
        confirm(f"remove {told}, and records older than {older_than}", yes=yes)
        remove_files(found)
        remove_sealed(store, sealed)
        segments = drop_segments(store, place, project=project, now=time.time())
    records = clean_records(
        store, project=project, before=before, dry_run=dry_run, pause=lambda: time.sleep(CLEAN_PAUSE_SECONDS)
    )
    if as_json:
        put_json({**told_as_json(found, records, dry_run=dry_run), **streams_as_json(sealed, segments)})
        return
    if dry_run:
        for name, folder in folders:
            put(f"{name}/{folder.dataid or '?'}  run {folder.run}, {as_size(folder.bytes)}  {folder.path}")
        for log in found.logs:
            put(f"{log.path}  {as_size(log.bytes)}")
    for name in found.elsewhere:
        say(f"{name} is not on this machine, or a table; its old versions are removed where it is")
    what = f"{told}, {number_of(records[0], 'run')} and {number_of(records[1], 'change')} of the history"
    say(f"{'would remove' if dry_run else 'removed'} {what}")

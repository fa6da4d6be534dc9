"""Options that many commands have."""

from typing import Annotated

import typer

from opendataflow.cli import completion

Json = Annotated[bool, typer.Option("--json", help="For scripts.")]
JobId = Annotated[str, typer.Argument(help="The job's id.", autocompletion=completion.jobs)]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")]
Reason = Annotated[str, typer.Option(help="Why, for those who wonder.")]

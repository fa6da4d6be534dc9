"""`dataflow validate`: every transformation on its expected inputs."""

import os
from typing import TYPE_CHECKING, Annotated

import typer

from opendataflow.cli.opened import bound_if_known
from opendataflow.cli.render import put, put_json, say
from opendataflow.errors import ConfigurationError

if TYPE_CHECKING:
    from opendataflow.spark.outcome import Outcome


def add_to(app: typer.Typer) -> None:
    app.command()(validate)


def validate(
    wanted: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SLUG[.NAME]]…", help="Only these pipelines or transformations; a file's path works too."
        ),
    ] = None,
    timeout: Annotated[float | None, typer.Option(min=0.1, metavar="S", help="Seconds for each, else 300.")] = None,
    junit: Annotated[str | None, typer.Option(metavar="FILE", help="Write JUnit XML there as well.")] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show what they print, also when all is well.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For scripts.")] = False,
) -> int:
    """Run every transformation on its `expected_inputs` and compare what comes out with its `expected_output`.

    No store is needed, and nothing is registered or published. Exit: 0 when all are as expected, 1 when one is not.

    Examples: dataflow validate;  dataflow validate clean.drop_cancelled -v;  dataflow validate --junit validate.xml
    """
    from opendataflow.project import PROJECT_FILE
    from opendataflow.project.address import find_project_folder
    from opendataflow.spark.cases import find_cases
    from opendataflow.spark.validate import TIMEOUT_SECONDS, Validation

    home = find_project_folder(os.getcwd())
    if home is None:
        raise ConfigurationError(
            f"found no {PROJECT_FILE} in this folder or above; `dataflow init DIR` makes a project"
        )
    cases = find_cases(home, wanted or (), environment=os.environ.get("DATAFLOW_ENV"), bound=bound_if_known(home))
    outcomes: list[Outcome] = []
    with Validation(timeout_seconds=timeout or TIMEOUT_SECONDS) as validation:
        for outcome in validation.run_all(cases):
            outcomes.append(outcome)
            if not as_json:
                _show(outcome, verbose=verbose)
    if as_json:
        put_json([one.as_json() for one in outcomes])
    if junit is not None:
        from opendataflow.cli.projects.junit import write_junit

        write_junit(junit, outcomes)
    failed = sum(not one.is_ok for one in outcomes)
    say(_summary(len(outcomes), failed))
    return 1 if failed else 0


def _show(outcome: "Outcome", *, verbose: bool) -> None:
    """One line; when it failed, or with `verbose`, what there is to know about it below."""
    import sys

    from rich.console import Console
    from rich.text import Text

    word, style = ("ok", "green") if outcome.is_ok else ("FAILED", "bold red")
    line = Text.assemble(outcome.id, " ", (word, style))
    if outcome.seconds >= 1:
        line.append(f" in {outcome.seconds:.1f} s", style="dim")
    Console(soft_wrap=True).print(line)  # rich honours NO_COLOR, and leaves colours out where no terminal is
    if not outcome.is_ok:
        for text in outcome.details():
            put(f"  {text}")
    if outcome.output and (verbose or not outcome.is_ok):
        put("  what it printed:")
        for text in outcome.output.rstrip("\n").splitlines():
            put(f"    {text}")
    sys.stdout.flush()


def _summary(number: int, failed: int) -> str:
    if number == 0:
        return "there is no transformation to validate: no pipeline names one"
    what = "1 transformation" if number == 1 else f"{number} transformations"
    if failed == 0:
        return f"{what}: as expected" if number == 1 else f"all {what} are as expected"
    return f"{failed} of {what} failed"

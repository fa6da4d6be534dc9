"""`dataflow init` and `dataflow check-project`: a project on disk, before any store knows it."""

import os
from typing import Annotated

import typer

from opendataflow.cli.opened import bound_if_known
from opendataflow.cli.render import put, put_json, say
from opendataflow.errors import ConfigurationError


def add_to(app: typer.Typer) -> None:
    app.command()(init)
    app.command("check-project")(check_project)
    app.command()(schema)


def init(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="The folder to make; it must be new or empty.")],
    name: Annotated[str | None, typer.Option(help="The project's name; else the folder's.")] = None,
    engine: Annotated[str, typer.Option(help="spark or pandas: what its transformations are written for.")] = "spark",
) -> None:
    """Make a project that works as it is: project.yml, sources, tested transformations, a README and a CI workflow.

    Examples: dataflow init shop;  dataflow init shop --name "Shop feed" --engine pandas
    """
    from opendataflow.project.new_project import make_project
    from opendataflow.project.template import SLUG

    for path in make_project(folder, name=name, engine=engine):
        put(os.path.join(folder, path))
    say(f"next: `cd {folder}`, `dataflow apply`, `dataflow validate`, `dataflow run {SLUG}`")


def schema() -> None:
    """Print the JSON Schema of project.yml, with which editors complete its keys and show what is wrong.

    `dataflow init` writes it for VS Code; after an upgrade, write it again.

    Example: dataflow schema > .vscode/project.schema.json
    """
    from opendataflow.project.schema.json_schema import schema_text

    put(schema_text().rstrip("\n"))


def check_project(
    folder: Annotated[
        str | None, typer.Argument(metavar="[DIR]", help="The project's folder; else this one or one above.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For scripts.")] = False,
) -> int:
    """Find all that is wrong with a project at once: project.yml, sources, scripts, transformations. Nothing is run.

    It is looked at as the environment DATAFLOW_ENV has it, or else the first. Exit: 0 without errors, 2 with some.

    Examples: dataflow check-project;  dataflow check-project examples/shop --json
    """
    from dataclasses import asdict

    from opendataflow.project.check import ERROR
    from opendataflow.project.check import check_project as check

    home = _home(folder)
    found = check(home, os.environ.get("DATAFLOW_ENV"), bound=bound_if_known(home))
    errors = sum(one.severity == ERROR for one in found)
    if as_json:
        put_json({"errors": errors, "warnings": len(found) - errors, "problems": [asdict(one) for one in found]})
    else:
        for one in found:
            put(f"{one.severity}: {one.file}:{one.line}: {one.message}")
            put(f"    {one.next_step}")
    say(f"{_count(errors, 'error')}, {_count(len(found) - errors, 'warning')} in {home}")
    return 2 if errors else 0


def _home(folder: str | None) -> str:
    from opendataflow.project import PROJECT_FILE
    from opendataflow.project.address import find_project_folder

    if folder is None:
        found = find_project_folder(os.getcwd())
        if found is None:
            raise ConfigurationError(
                f"found no {PROJECT_FILE} in this folder or above; `dataflow init DIR` makes a project"
            )
        return found
    home = os.path.abspath(folder)
    if not os.path.isfile(os.path.join(home, PROJECT_FILE)):
        raise ConfigurationError(f"there is no {PROJECT_FILE} in {home}; `dataflow init {folder}` makes a project")
    return home


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"

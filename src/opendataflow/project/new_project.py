"""`dataflow init`: a new project that works as it is."""

import json
import os

from opendataflow.errors import ConfigurationError, UsageError
from opendataflow.project import template
from opendataflow.project.schema.json_schema import schema_text
from opendataflow.project.schema.values import check_line

ENGINES = ("spark", "pandas")
_LEFT_ALONE = (".git",)  # a repository may have been made first


def make_project(folder: str, *, name: str | None = None, engine: str = "spark") -> list[str]:
    """Write the files of a new project into the folder and return their paths; one that holds files is refused."""
    folder = os.path.abspath(folder)
    title = (name if name is not None else os.path.basename(folder)).strip() or "project"
    try:
        check_line(title, "a project's name")
    except ValueError as error:
        raise UsageError(f"{error}; give another with --name") from None
    if engine not in ENGINES:
        raise UsageError(f"there is no engine {engine!r}; known are {', '.join(ENGINES)}")
    _refuse_files(folder)
    files = project_files(title, engine)
    try:
        for path, text in files.items():
            whole = os.path.join(folder, path)
            os.makedirs(os.path.dirname(whole), exist_ok=True)
            with open(whole, "x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise ConfigurationError(
            f"{error.filename or folder}: {error.strerror}; the project is not complete"
        ) from error
    return list(files)


def project_files(name: str, engine: str) -> dict[str, str]:
    """What a new project of that name holds, by path."""
    quoted = json.dumps(name, ensure_ascii=False)  # a text of JSON is one of YAML, whatever it holds
    drop, add = (
        (template.DROP_SPARK, template.ADD_SPARK) if engine == "spark" else (template.DROP_PANDAS, template.ADD_PANDAS)
    )
    code = f"pipelines/{template.SLUG}"
    return {
        "project.yml": template.PROJECT.format(name=quoted, engine=engine),
        "sources/orders.csv": template.ORDERS,
        "sources/customers.csv": template.CUSTOMERS,
        f"{code}/drop_cancelled.py": drop,
        f"{code}/add_up_by_country.py": add,
        "tests/test_pipelines.py": template.TESTS,
        "README.md": template.README.format(title=name),
        ".gitignore": template.GITIGNORE,
        ".github/workflows/ci.yml": template.WORKFLOW,
        ".vscode/settings.json": template.VSCODE_SETTINGS,
        ".vscode/extensions.json": template.VSCODE_EXTENSIONS,
        ".vscode/project.schema.json": schema_text(),
    }


def _refuse_files(folder: str) -> None:
    try:
        held = [name for name in sorted(os.listdir(folder)) if name not in _LEFT_ALONE]
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}; give a folder that is new or empty") from error
    if held:
        shown = ", ".join(held[:3]) + (", …" if len(held) > 3 else "")
        raise UsageError(f"{folder} holds files already ({shown}); give a folder that is new or empty")

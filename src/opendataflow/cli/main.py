"""`dataflow`: every command parses, calls, renders."""

import atexit
import contextlib
import os
import sys
from typing import Annotated

import typer

from opendataflow import __version__
from opendataflow.cli import serve
from opendataflow.cli.accounts import users as accounts
from opendataflow.cli.alerts import notify
from opendataflow.cli.datasets import arrive, checks, output, verify
from opendataflow.cli.jobs import operate, recover, registered, schedule, stale, state
from opendataflow.cli.projects import crypt, validate
from opendataflow.cli.projects import git as git_projects
from opendataflow.cli.projects import import_legacy as legacy
from opendataflow.cli.projects import new as project
from opendataflow.cli.runs import abort, run
from opendataflow.cli.runs import transformations as pipelines
from opendataflow.cli.sources import look as source
from opendataflow.cli.store import clean, db
from opendataflow.cli.streams import control as stream
from opendataflow.cli.workers import limits as scale
from opendataflow.cli.workers import spark as spark_drivers
from opendataflow.cli.workers import tick, worker
from opendataflow.domain.variables import is_platform_variable
from opendataflow.errors import DataflowError, find_no_text
from opendataflow.execution.guard import open_standard_streams
from opendataflow.extras import find_missing
from opendataflow.own_process import protect

app = typer.Typer(
    name="dataflow",
    help="State-driven orchestration of batch jobs over partitioned data.\n\n"
    "Start with `dataflow apply` in a folder with a project.yml, then `RunJob script.sh` or `dataflow run JOB`.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
project.add_to(app)
state.add_to(app)
git_projects.add_to(app)
run.add_to(app)
pipelines.add_to(app)
validate.add_to(app)
output.add_to(app)
source.add_to(app)
legacy.add_to(app)
tick.add_to(app)
worker.add_to(app)
arrive.add_to(app)
checks.add_to(app)
verify.add_to(app)
operate.add_to(app)
stale.add_to(app)
abort.add_to(app)
recover.add_to(app)
clean.add_to(app)
scale.add_to(app)
schedule.add_to(app)
stream.add_to(app)
serve.add_to(app)
registered.add_to(app)
accounts.add_to(app)
app.add_typer(db.app, name="db")
app.add_typer(crypt.app, name="crypt")
app.add_typer(notify.app, name="notify")
app.add_typer(spark_drivers.app, name="spark")


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"dataflow {__version__}\n")
        raise typer.Exit


@app.callback()
def options(
    _version_wanted: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


def main(argv: list[str] | None = None) -> int:
    """Entry point of the console script: errors we can explain end with their exit code, without a traceback."""
    open_standard_streams()
    try:
        result = app(args=argv, standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except BrokenPipeError:  # `dataflow status | head`: the reader has what it wanted
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except DataflowError as error:
        sys.stderr.write(f"dataflow: {error}\n")
        return error.exit_code
    except typer.Exit as stop:
        return stop.exit_code
    except typer.Abort:
        return 130
    except Exception as error:
        # Usage errors of click, which newer versions of Typer bring along under a name of their own.
        show, code = getattr(error, "show", None), getattr(error, "exit_code", None)
        no_text = find_no_text(sys.argv[1:] if argv is None else argv)
        if no_text is not None and (isinstance(error, UnicodeEncodeError) or callable(show)):
            sys.stderr.write(f"dataflow: {no_text}\n")
            return no_text.exit_code
        if callable(show) and isinstance(code, int):
            show()
            return code
        missing = find_missing(error) if isinstance(error, ModuleNotFoundError) else None
        if missing is not None:
            sys.stderr.write(f"dataflow: {missing}\n")
            return missing.exit_code
        sys.stderr.write(f"dataflow: internal error: {type(error).__name__}: {error}\n")
        raise SystemExit(70) from error


def end() -> None:
    """What the installed command calls: `main`, and the end of the process."""
    protect(is_platform_variable)
    code = main()
    if "pyarrow" in sys.modules:
        # Threads of Arrow that still read ahead are cut off where the interpreter ends, and would abort what is done.
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    end()

"""RunJob: wrap an existing script. It imports only what it needs; imports are most of its cost."""

import os
import sys

from opendataflow.domain.variables import is_platform_variable
from opendataflow.errors import DataflowError, UsageError, find_no_text
from opendataflow.execution.guard import Guard, open_standard_streams
from opendataflow.own_process import protect

TYPE_CHECKING = False  # without importing typing for it
if TYPE_CHECKING:
    from opendataflow.execution.work import Work

HELP = """\
usage: RunJob [--dataid D] [--wait S] [--drain] path/to/myETL.sh [args…]

Runs the script once on the lowest dataid whose inputs are ready, with the dataset descriptors in its environment,
and records the result. The job's id is the script's name without its extension.

  --dataid D  this dataid instead of the lowest claimable one
  --wait S    if nothing can run yet, wait for up to S seconds
  --drain     run again and again until nothing can run any more
  --help, --version

examples:
  RunJob jobs/load_orders.sh
  RunJob --drain jobs/load_orders.sh --batch 1000
  RunJob --dataid 2025-11-12 jobs/load_orders.sh

exit: 0 complete or caught up, 1 failed, 2 usage, 5 lease lost, 10-14 a question was answered no,
      75 store unavailable, 128+n ended by signal n. `dataflow why JOB DATAID` explains.
"""


def say(message: str) -> None:
    """A message to stderr; if nobody listens any more, the work goes on."""
    try:
        sys.stderr.write(f"RunJob: {message}\n")
        sys.stderr.flush()
    except (OSError, AttributeError):  # a pipe whose reader is gone; a stream that was closed from the start
        pass


def parse(argv: list[str]) -> tuple[str, list[str], str | None, float, bool]:
    """Script, its arguments, dataid, seconds to wait, drain."""
    dataid, wait, drain = None, 0.0, False
    rest = list(argv)
    while rest and rest[0].startswith("-"):
        option, equals, value = rest.pop(0).partition("=")
        if option == "--drain" and not equals:
            drain = True
        elif option in ("--dataid", "--wait"):
            if not equals:
                if not rest:
                    raise UsageError(f"{option} needs a value; see RunJob --help")
                value = rest.pop(0)
            if option == "--dataid":
                dataid = value
            else:
                try:
                    wait = float(value)
                except ValueError:
                    wait = float("nan")
                if wait != wait:  # noqa: PLR0124  NaN would wait for ever
                    raise UsageError(f"--wait {value!r} is not a number of seconds")
        elif option == "--" and not equals:
            break
        else:
            raise UsageError(f"unknown option {option}; see RunJob --help")
    if not rest:
        raise UsageError("which script? usage: RunJob [--wait S] [--drain] path/to/myETL.sh [args…]")
    if drain and dataid is not None:
        raise UsageError("--drain takes every dataid; leave out --dataid")
    return rest[0], rest[1:], dataid, wait, drain


def main() -> None:
    """Entry point of the console script: ends the process at once, without taking the interpreter apart."""
    protect(is_platform_variable)
    open_standard_streams()
    code = run(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, AttributeError):
            pass
    os._exit(code)


def run(argv: list[str]) -> int:
    """RunJob with these arguments; returns its exit code."""
    if argv[:1] in (["--help"], ["-h"]):
        sys.stdout.write(HELP)
        return 0
    if argv[:1] == ["--version"]:
        from opendataflow import __version__

        sys.stdout.write(f"RunJob {__version__}\n")
        return 0
    try:
        return _run(argv)
    except DataflowError as error:
        say(str(error))
        return error.exit_code
    except Exception as error:  # noqa: BLE001  the last resort: an exit code of its own
        no_text = find_no_text(argv) if isinstance(error, UnicodeEncodeError) else None
        if no_text is not None:
            say(str(no_text))
            return no_text.exit_code
        import traceback

        from opendataflow.extras import find_missing

        missing = find_missing(error) if isinstance(error, ModuleNotFoundError) else None
        if missing is not None:
            say(str(missing))
            return missing.exit_code

        say(f"{traceback.format_exc()}internal error: {error}")
        return DataflowError.exit_code


def _warn_of_late_options(argv: list[str], script: str, args: list[str]) -> None:
    """Options behind the script are the script's own, which is not what everybody expects; `--` says it is meant."""
    late = next((one for one in args if one.partition("=")[0] in ("--dataid", "--wait", "--drain")), None)
    if late is not None and "--" not in argv:
        say(f"{late} is given to the script; for RunJob it stands before it: RunJob {late} … {script}")


def _run(argv: list[str]) -> int:
    path, args, dataid, wait, drain = parse(argv)
    _warn_of_late_options(argv, path, args)
    guard = Guard()  # forked while this process is small and has nothing open
    from opendataflow.execution.script import script_work
    from opendataflow.execution.session import Session, get_script
    from opendataflow.execution.supervise import Signals
    from opendataflow.project.address import get_address
    from opendataflow.scheduling.report import report

    signals = Signals()
    script = get_script(path)
    jobid = os.path.splitext(os.path.basename(script))[0]
    address = get_address(os.getcwd(), os.path.dirname(script))
    session = Session(guard, signals, address, jobid, say=say)

    def make_work() -> "Work":
        return script_work(session.job, script, args, store=session.store, say=say)

    session.remake, work = make_work, make_work()
    cwd = os.getcwd()
    if drain:
        code = report(session.drain(work, wait_seconds=wait, cwd=cwd), say=say, drain=True)
    else:
        outcomes = iter([session.run(work, dataid=dataid, wait_seconds=wait, cwd=cwd)])
        code = report(outcomes, say=say, drain=False)
    session.store.close()
    return code

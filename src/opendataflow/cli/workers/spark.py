"""`dataflow spark`: the warm Spark drivers of this user."""

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from opendataflow.cli.render import put, put_json, put_table, say
from opendataflow.domain.words import number_of

app = typer.Typer(help="The warm Spark drivers that pipelines run on: status, stop, logs.", no_args_is_help=True)

_MINUTE, _HOUR = 60, 3600
_END_SECONDS = 20.0


@app.command()
def status(as_json: Annotated[bool, typer.Option("--json", help="For scripts.")] = False) -> None:
    """List the Spark drivers that run, their age, memory and runs.

    Example: dataflow spark status
    """
    from opendataflow.spark.keeper_client import list_keepers

    found = list(list_keepers())
    if as_json:
        put_json(found)
        return
    if not found:
        say("no Spark driver is running; the next run of a pipeline starts one")
        return
    columns = ("pid", "state", "master", "age", "memory", "served", "runs", "waiting", "UI")
    put_table("", columns, [_row(one) for one in found])


def _row(keeper: dict[str, Any]) -> tuple[Any, ...]:
    if "pid" not in keeper:
        return ("?", keeper["state"], "", "", "", "", keeper["folder"], "", "")
    runs = ", ".join(str(one["run"]) for one in keeper["runs"])
    memory = f"{keeper['jvm_bytes'] >> 20} MiB"
    return (
        keeper["pid"], keeper["state"], keeper["master"], format_age(keeper["started_at"]), memory, keeper["served"],
        runs, keeper["waiting"] or "", keeper.get("ui") or "",
    )  # fmt: skip


@app.command()
def stop(
    force: Annotated[bool, typer.Option("--force", help="At once: attached runs fail and are repeated.")] = False,
) -> int:
    """Stop every Spark driver of this user: each ends after its runs, or at once with --force.

    Exit 1 if one does not end. The next run of a pipeline starts a new driver.

    Examples: dataflow spark stop;  dataflow spark stop --force
    """
    from opendataflow.spark.keeper_client import list_keepers, stop_keeper, wait_for_end

    found = list(list_keepers())
    if not found:
        say("no Spark driver is running")
    is_all_well = True
    for one in found:
        name = f"the Spark driver of {one['master']} (pid {one['pid']})" if "pid" in one else one["folder"]
        runs = one.get("runs", [])
        try:
            stop_keeper(one["folder"], force=force)
        except TimeoutError:
            say(f"{name} does not answer; `kill -9` of its process ends it")
            is_all_well = False
            continue
        except OSError:
            pass  # it has just ended
        if runs and not force:
            say(f"{name} ends after {number_of(len(runs), 'run')}")
        elif "pid" in one and wait_for_end(one["pid"], seconds=_END_SECONDS):
            say(f"{name} has stopped")
        else:
            say(f"{name} still runs")
            is_all_well = False
    return 0 if is_all_well else 1


@app.command()
def logs(
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="At most so many of each driver.")] = 100,
) -> None:
    """Show the end of the log of every Spark driver, also of those that have ended.

    Example: dataflow spark logs -n 20
    """
    from opendataflow.spark.keeper_client import keeper_folders, last_lines

    for folder in keeper_folders():
        put(f"==> {folder}")
        text = last_lines(folder, most=lines * 400).splitlines()[-lines:]
        put("\n".join(text) if text else "(empty)")


def format_age(started_at: str) -> str:
    seconds = max(0, int((datetime.now(UTC) - datetime.fromisoformat(started_at)).total_seconds()))
    if seconds >= _HOUR:
        return f"{seconds // _HOUR} h {seconds % _HOUR // _MINUTE} min"
    return f"{seconds // _MINUTE} min" if seconds >= _MINUTE else f"{seconds} s"

"""One chunk's chain in pandas, in the process that was forked for it: load, read, run, write, and tell each of it.

What it tells goes line by line, as JSON, to its parent (pandas_task.py), which also reads what the code prints.
It stands alone but for its neighbours that do too: it runs in Spark's workers, where OpenDataFlow may not be installed.
"""

import inspect
import json
import linecache
import os
import sys
import time
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any

from opendataflow.spark.pandas_files import DataError, read_source
from opendataflow.spark.pandas_items import fold_items, run_items
from opendataflow.spark.pandas_modules import make_importable
from opendataflow.spark.pandas_state import read_state, write_state
from opendataflow.spark.pandas_write import write_destination
from opendataflow.spark.signature import STREAM, find_fault, no_stream, takes, takes_stream, too_few, wrong_result

Tell = Callable[..., None]


class ChainError(Exception):
    """A transformation did not do what it must; the message begins with file and line."""


def run_chain(
    chunk: dict[str, Any], codes: list[dict[str, str]], tell: Tell, print_to: Callable[[int | None], None]
) -> bool:
    """Produce the chunk. Every end is told, also an exit and an interrupt; returns whether it was a good one.

    `print_to` is told whose output comes next: a transformation's, or, with None, that of no one.
    """
    step: int | None = None
    try:
        os.environ.update(chunk["environment"])
        make_importable(chunk["home"], chunk["modules"])
        runs = []
        for step, code in enumerate(codes):
            print_to(step)
            tell(event="load", step=step)
            runs.append(_load(code))
        step = None
        print_to(None)
        tell(event="loaded")
        sources = [read_source(place) for place in chunk["sources"]]
        if chunk.get("items") is not None:
            tell(event="written", **_run_items(chunk, codes, runs, sources, tell, print_to))
            return True
        current, others = sources[0], sources[1:]
        del sources
        for step, (code, run) in enumerate(zip(codes, runs, strict=True)):
            print_to(step)
            tell(event="begin", step=step)
            begun = time.monotonic()
            current = _run(code, run, [current, *others])
            tell(event="end", step=step, rows=len(current), seconds=round(time.monotonic() - begun, 3))
        step = None
        print_to(None)
        tell(event="written", **write_destination(current, chunk["destination"], chunk["attempt"]))
    except BaseException as error:  # noqa: BLE001  this process has no other purpose
        current = None  # room to speak, if memory is what is missing
        print_to(None)
        tell(event="error", step=step, **told(error, chunk["home"]))
        return False
    return True


def _run_items(
    chunk: dict[str, Any], codes: list[dict[str, str]], runs: list[Any], sources: list[Any], tell: Tell,
    print_to: Callable[[int | None], None],
) -> dict[str, Any]:  # fmt: skip
    """The batch of a stream: the chain for each item alone; what was written, and which items were set aside."""
    state = chunk.get("state")
    if (sources or state) and not any(takes_stream(run) for run in runs):
        raise ChainError(no_stream())
    begun = time.monotonic()

    def one(frames: list[Any], item: dict[str, Any]) -> Any:
        current, others = frames[0], frames[1:]
        for step, (code, run) in enumerate(zip(codes, runs, strict=True)):
            print_to(step)
            current = _run(code, run, [current, *others], item)
        return current

    def tell_why(error: BaseException) -> str:
        return told(error, chunk["home"])["error"]

    made: Any
    if state:
        made, aside = fold_items(chunk["items"], *_begin(chunk, sources), one, tell_why, set_aside=chunk["set_aside"])
    else:
        made, aside = run_items(chunk["items"], sources, one, tell_why, set_aside=chunk["set_aside"])
    aside = [*chunk["aside"], *aside]
    rows = 0 if made is None else len(made)
    for step in range(len(codes)):
        tell(event="begin", step=step)
        tell(event="end", step=step, rows=rows, seconds=round(time.monotonic() - begun, 3))
    print_to(None)
    if made is None:  # nobody knows which columns it would have had
        return {"rows": 0, "schema": "{}", "aside": aside}
    if state and state["to"]:
        write_state(made, state["to"], chunk["attempt"], max_bytes=state["max_bytes"])
    return {**write_destination(made, chunk["destination"], chunk["attempt"]), "aside": aside}


def _begin(chunk: dict[str, Any], sources: list[Any]) -> tuple[Any, list[Any]]:
    """The dataset before the batch, and the other sources; it begins as the first source, or without any row."""
    import pandas

    if chunk["state"]["from"]:
        return read_state(chunk["state"]["from"]), sources
    return (sources[0], sources[1:]) if sources else (pandas.DataFrame(columns=chunk["fields"]), [])


def _load(code: dict[str, str]) -> Callable[..., Any]:
    """The module's `run`, from its text: the file may not be on this machine."""
    source = code["source"]
    linecache.cache[code["path"]] = (len(source), None, source.splitlines(keepends=True), code["path"])
    module = ModuleType(code["module"])
    module.__file__ = code["path"]
    sys.modules[code["module"]] = module
    exec(compile(source, code["path"], "exec", dont_inherit=True), module.__dict__)  # noqa: S102  the user's own code
    run = getattr(module, "run", None)
    if not inspect.isfunction(run):
        raise ChainError(f"{code['shown']}:1: has no function `run(df)`")
    fault = find_fault(run)
    if fault:
        raise _error(code, run, fault)
    return run


def _run(code: dict[str, str], run: Any, available: list[Any], item: dict[str, Any] | None = None) -> Any:
    import pandas

    required, most = takes(run)
    if required > len(available):
        raise _error(code, run, too_few(required, len(available)))
    given = {STREAM: item} if item is not None and takes_stream(run) else {}
    result = run(*available[:most], **given)
    if not isinstance(result, pandas.DataFrame):
        raise _error(code, run, wrong_result(result, engine="pandas"))
    return result


def _error(code: dict[str, str], run: Any, message: str) -> ChainError:
    return ChainError(f"{code['shown']}:{run.__code__.co_firstlineno}: {message}")


def told(error: BaseException, home: str) -> dict[str, str]:
    """A sentence, and the traceback cut to the user's code, without it."""
    inside = home.rstrip("/") + "/"
    frames = [
        traceback.FrameSummary(frame.filename.removeprefix(inside), frame.lineno, frame.name, line=frame.line)
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename.startswith(inside) and not frame.filename.startswith(sys.prefix + "/")
    ]
    sentence = _sentence(error)
    if isinstance(error, SyntaxError) and (error.filename or "").startswith(inside):
        sentence = f"{str(error.filename).removeprefix(inside)}:{error.lineno}: {error.msg}"
    elif frames and not isinstance(error, (ChainError, DataError)):
        sentence = f"{frames[-1].filename}:{frames[-1].lineno}: {sentence}"
    shown = "Traceback (your code only):\n" + "".join(traceback.StackSummary.from_list(frames).format())
    return {"error": sentence, "traceback": shown if frames else ""}


def _sentence(error: BaseException) -> str:
    if isinstance(error, (ChainError, DataError)):
        return str(error)
    if isinstance(error, SystemExit):
        return f"the code ended its interpreter: sys.exit({error.code!r})"
    words = " ".join(str(error).split())
    if len(words) > 600:
        words = words[:600] + " …"
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def teller(descriptor: int) -> Tell:
    """Events as lines of JSON; each is written whole before the code goes on."""

    def tell(**event: Any) -> None:
        rest = (json.dumps(event) + "\n").encode()
        while rest:
            rest = rest[os.write(descriptor, rest) :]

    return tell


def printer(outputs: list[int]) -> Callable[[int | None], None]:
    """Lead standard output and error into one of these pipes: a transformation's, or the last one."""

    def print_to(step: int | None) -> None:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):  # the code closed it
                pass
        for target in (1, 2):
            os.dup2(outputs[-1 if step is None else step], target)

    return print_to

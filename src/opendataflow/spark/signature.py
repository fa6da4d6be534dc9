"""What a transformation's `run` asks for, and what is wrong with it or with what it returned.

Both engines ask here. It stands alone (no import of ours) because the pandas engine sends it to Spark's workers, where
OpenDataFlow may not be installed.
"""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

STREAM = "stream"  # the parameter that batch leaves at its default
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Takes(NamedTuple):
    required: int  # DataFrames it cannot do without
    most: int | None  # DataFrames it takes; None: all there are


def takes(run: Callable[..., Any]) -> Takes:
    """How many DataFrames `run` needs at least, and takes at most; `stream` is none of them."""
    required = most = 0
    for parameter in inspect.signature(run).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            return Takes(required, None)
        if parameter.name == STREAM or parameter.kind not in _POSITIONAL:
            continue
        most += 1
        if parameter.default is inspect.Parameter.empty:
            required = most
    return Takes(required, most)


def takes_stream(run: Callable[..., Any]) -> bool:
    """Whether `run` can be given the items of a stream."""
    parameters = inspect.signature(run).parameters.values()
    return any(one.name == STREAM or one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters)


def find_fault(run: Callable[..., Any]) -> str | None:
    """Why batch cannot call this `run`, or None."""
    parameters = inspect.signature(run).parameters
    names = list(parameters)
    if takes(run).most == 0 and STREAM in parameters:
        return (
            "`run` takes no DataFrame; write `def run(df, stream=None):`. Where a stream has no sources, its items are "
            "`df`, too"
        )
    if takes(run).most == 0:
        return "`run` takes no DataFrame; write `def run(df):`"
    if STREAM in parameters:
        if parameters[STREAM].default is inspect.Parameter.empty:
            return "`stream` has no default, and batch passes none; write `stream=None`"
        if parameters[STREAM].kind in _POSITIONAL and names[-1] != STREAM:
            return f"`stream` comes before `{names[-1]}`; write it last: `def run(df, …, stream=None)`"
    for name, parameter in parameters.items():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and parameter.default is inspect.Parameter.empty:
            return f"`{name}` can only be passed by name, and nothing passes it; give it a default"
    return None


def no_stream() -> str:
    return "no transformation takes the items of the stream; write `def run(df, …, stream=None)` in one of them"


def too_few(required: int, available: int) -> str:
    return f"`run` asks for {required} sources, and the pipeline has {available}"


def wrong_result(result: object, *, engine: str) -> str:
    """Why this is not what `run` must return, and what to do about it."""
    if result is None:
        return "`run` returned None; end it with `return df`"
    kind = f"{type(result).__module__}.{type(result).__qualname__}".removeprefix("builtins.")
    wanted = {"spark": "a Spark DataFrame", "pandas": "a pandas DataFrame"}[engine]
    found = f"`run` returned {'an' if kind[0] in 'aeiou' else 'a'} {kind}, not {wanted}"
    package, name = kind.partition(".")[0], type(result).__name__
    if kind.startswith("pyspark.pandas"):
        return f"{found}; end it with `return df.to_spark()`"
    if engine == "spark" and package == "pandas":
        return f"{found}; use PySpark here, or write `engine: pandas` at the pipeline in project.yml"
    if engine == "pandas" and package == "pyspark":
        return f"{found}; use pandas here, or write `engine: spark` at the pipeline in project.yml"
    if name == "Series":
        return f"{found}; `return series.to_frame()` makes it one"
    if inspect.iscoroutine(result):
        result.close()
        return f"{found}; write `def run`, not `async def run`"
    return found

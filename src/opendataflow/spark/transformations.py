"""Transformations: `run(df, df2, …)` in pipelines/<slug>/<name>.py, found, loaded by content and chained."""

import hashlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import CodeType, ModuleType
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import DataFrame

from opendataflow.errors import JobFailed

FOLDER = "pipelines"
_STREAM = "stream"  # the parameter that batch never passes


class TransformationError(JobFailed):
    """A transformation is missing or did not do what it must; the message begins with file and line."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Code:
    """A transformation's file as it was read: compiled, not yet run."""

    name: str
    path: str
    shown: str  # the path as a person knows it, from the project's folder
    digest: str
    compiled: CodeType


@dataclass(frozen=True, kw_only=True, slots=True)
class Transformation:
    code: Code
    run: Callable[..., Any]
    line: int  # of `def run`
    required: int  # DataFrames it cannot do without
    most: int | None  # DataFrames it takes; None: all there are

    def error(self, message: str) -> TransformationError:
        return TransformationError(f"{self.code.shown}:{self.line}: {message}")


def read_code(home: str, slug: str, name: str) -> Code:
    """The file of a transformation, compiled. Needs no Spark, so that what is missing is found before it starts."""
    stem = name.removesuffix(".py")
    shown = f"{FOLDER}/{slug}/{stem}.py"
    path = os.path.join(home, shown)
    if not stem or stem.startswith("/") or ".." in stem.split("/"):
        raise TransformationError(f"{name!r} is not the name of a transformation: it leads out of {FOLDER}/{slug}/")
    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError as error:
        raise TransformationError(f"{shown}: there is no transformation {stem!r} here: {error.strerror}") from error
    try:
        compiled = compile(source, path, "exec", dont_inherit=True)
    except SyntaxError as error:
        raise TransformationError(f"{shown}:{error.lineno or 1}: {error.msg}") from error
    except ValueError as error:
        raise TransformationError(f"{shown}:1: {error}") from error
    return Code(name=stem, path=path, shown=shown, digest=hashlib.sha256(source).hexdigest(), compiled=compiled)


def load(code: Code) -> Transformation:
    """Run the module and take its `run`. The module's name holds its content's hash, so it is never a stale one."""
    module = _module(code)
    run = getattr(module, "run", None)
    if not inspect.isfunction(run):
        raise TransformationError(f"{code.shown}:1: has no function `run(df)`")
    required, most = _takes(run)
    line = run.__code__.co_firstlineno
    if most == 0:
        raise TransformationError(f"{code.shown}:{line}: `run` takes no DataFrame; write `def run(df):`")
    return Transformation(code=code, run=run, line=line, required=required, most=most)


def apply(transformations: Sequence[Transformation], sources: Sequence[DataFrame]) -> DataFrame:
    """Pass the first source from one transformation to the next; each gets as many of the others as it asks for."""
    current, others = sources[0], sources[1:]
    for step in transformations:
        available = [current, *others]
        if step.required > len(available):
            raise step.error(f"`run` asks for {step.required} sources, and the pipeline has {len(available)}")
        result = step.run(*available[: step.most])
        if result is None:
            raise step.error("`run` returned None; end it with `return df`")
        if not isinstance(result, DataFrame):
            kind = f"{type(result).__module__}.{type(result).__qualname__}".removeprefix("builtins.")
            raise step.error(f"`run` returned a {kind}, not a Spark DataFrame")
        current = result
    return current


def _module(code: Code) -> ModuleType:
    stem = re.sub(r"\W", "_", code.shown.removesuffix(".py"))
    name = f"dataflow_{stem}_{code.digest[:16]}"
    loaded = sys.modules.get(name)
    if loaded is not None and loaded.__file__ == code.path:
        return loaded
    module = ModuleType(name)
    module.__file__ = code.path
    sys.modules[name] = module  # dataclasses and pickle look their module up
    try:
        exec(code.compiled, module.__dict__)  # noqa: S102  the user's own code, in the user's own child
    except BaseException:
        del sys.modules[name]
        raise
    # No worker can import a module of this name: what of it goes there (a UDF) goes as code.
    cloudpickle.register_pickle_by_value(module)
    return module


def _takes(run: Callable[..., Any]) -> tuple[int, int | None]:
    """How many DataFrames `run` needs at least, and takes at most."""
    required = most = 0
    for parameter in inspect.signature(run).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            return required, None
        if parameter.name == _STREAM or parameter.kind not in (
            inspect.Parameter.POSITIONAL_ONLY,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
        ):
            continue
        most += 1
        if parameter.default is inspect.Parameter.empty:
            required = most
    return required, most

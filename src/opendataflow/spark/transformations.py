"""Transformations: `run(df, df2, …)` in pipelines/<slug>/<name>.py, found, loaded by content and chained."""

import contextlib
import hashlib
import importlib.util
import inspect
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType, ModuleType
from typing import Any

from pyspark import StorageLevel, cloudpickle
from pyspark.sql import DataFrame

from opendataflow.errors import JobFailed
from opendataflow.project.inspect_code import find_engine
from opendataflow.spark import project_modules
from opendataflow.spark.blame import blame
from opendataflow.spark.explain import explain, user_traceback
from opendataflow.spark.kept import Kept
from opendataflow.spark.signature import STREAM, find_fault, no_stream, takes, takes_stream, too_few, wrong_result
from opendataflow.spark.steps import PENDING, Step, Steps, new_steps

FOLDER = "pipelines"
SPARK, PANDAS = "spark", "pandas"


class TransformationError(JobFailed):
    """A transformation is missing or did not do what it must; the message begins with file and line."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Code:
    """A transformation's file as it was read: compiled, not yet run."""

    name: str
    path: str
    shown: str  # the path as a person knows it, from the project's folder
    digest: str
    source: bytes
    compiled: CodeType

    @property
    def home(self) -> str:
        return self.path.removesuffix(self.shown).rstrip("/") or "/"

    @property
    def module(self) -> str:
        """The name of its module, which no library has."""
        stem = re.sub(r"\W", "_", self.shown.removesuffix(".py"))
        return f"dataflow_{stem}_{self.digest[:16]}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Transformation:
    code: Code
    run: Callable[..., Any]
    line: int  # of `def run`
    required: int  # DataFrames it cannot do without
    most: int | None  # DataFrames it takes; None: all there are

    def error(self, message: str) -> TransformationError:
        return TransformationError(f"{self.code.shown}:{self.line}: {message}")


# Find and load ----------------------------------------------------------------------------------------------------
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
    digest = hashlib.sha256(source).hexdigest()
    return Code(name=stem, path=path, shown=shown, digest=digest, source=source, compiled=compiled)


def engine_of(codes: Sequence[Code], declared: str | None = None) -> str:
    """`spark` or `pandas`: as declared, or as the code's imports tell; TransformationError when it uses both."""
    if declared:
        return declared
    found: dict[str, str] = {}
    for code in codes:
        engine = find_engine(importlib.util.decode_source(code.source))
        if engine:
            found.setdefault(engine, code.shown)
    if len(found) > 1:
        raise TransformationError(
            f"{found[PANDAS]} is written for pandas and {found[SPARK]} for PySpark; one pipeline has one engine: "
            "rewrite one of them, or make two pipelines"
        )
    return next(iter(found), SPARK)


def _load(code: Code) -> Transformation:
    """Run the module and take its `run`."""
    module = _module(code)
    run = getattr(module, "run", None)
    if not inspect.isfunction(run):
        raise TransformationError(f"{code.shown}:1: has no function `run(df)`")
    line = run.__code__.co_firstlineno
    fault = find_fault(run)
    if fault:
        raise TransformationError(f"{code.shown}:{line}: {fault}")
    required, most = takes(run)
    return Transformation(code=code, run=run, line=line, required=required, most=most)


def load_anew(codes: Sequence[Code], steps: Steps | None = None) -> list[Transformation]:
    """Load every one anew, and all that they import: nothing that an earlier chunk left in a module is seen.

    What a module prints, or raises, while it is loaded is its own step's.
    """
    for home in {code.home for code in codes}:
        project_modules.forget(home)
    loaded = []
    for number, code in enumerate(codes):
        with contextlib.nullcontext() if steps is None else _recorded(steps.steps[number], steps, code.home):
            loaded.append(_load(code))
    return loaded


def _module(code: Code) -> ModuleType:
    with project_modules.lock:
        module = ModuleType(code.module)
        module.__file__ = code.path
        sys.modules[code.module] = module  # dataclasses and pickle look their module up
        try:
            with project_modules.no_bytecode():
                exec(code.compiled, module.__dict__)  # noqa: S102  the user's own code, in the user's own child
        except BaseException:
            del sys.modules[code.module]
            raise
        # No worker can import a module of this name: what of it goes there (a UDF) goes as code.
        cloudpickle.register_pickle_by_value(module)
        project_modules.send_by_value(code.home)
        return module


# Run --------------------------------------------------------------------------------------------------------------
def apply(
    transformations: Sequence[Transformation],
    sources: Sequence[DataFrame],
    steps: Steps | None = None,
    *,
    profile: bool = False,
    stream: DataFrame | None = None,
) -> DataFrame:
    """Pass the first source from one transformation to the next; each gets as many of the others as it asks for.

    Those that take a `stream` get it. Without sources, its items are the first DataFrame.

    `steps` is filled on the way. With `profile`, every result is computed and kept before the next step begins, which
    gives its rows and seconds and keeps Spark from planning across steps; `unpersist()` the last one after use.
    """
    if steps is None:
        steps = new_steps([(one.code.name, one.code.digest) for one in transformations])
    if stream is not None and not sources:
        sources = [stream]
    elif stream is not None and not any(takes_stream(one.run) for one in transformations):
        raise TransformationError(no_stream())
    current, others = sources[0], sources[1:]
    for transformation, step in zip(transformations, steps.steps, strict=True):
        before = current
        steps.begin(step)
        with _recorded(step, steps, transformation.code.home):
            current = _run(transformation, [before, *others], stream)
        if profile:
            current = _profile(current, step, steps, transformation.code.home)
            if before is not sources[0] and before is not current:
                before.unpersist()
        steps.end(step)
    return current


def _run(transformation: Transformation, available: Sequence[DataFrame], stream: DataFrame | None) -> DataFrame:
    if transformation.required > len(available):
        raise transformation.error(too_few(transformation.required, len(available)))
    given = {STREAM: stream} if stream is not None and takes_stream(transformation.run) else {}
    result = transformation.run(*available[: transformation.most], **given)
    if not isinstance(result, DataFrame):
        raise transformation.error(wrong_result(result, engine=SPARK))
    return result


def _profile(df: DataFrame, step: Step, steps: Steps, home: str) -> DataFrame:
    """The same rows, computed here and now."""
    begun = time.monotonic()
    kept = df.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        step.rows = kept.count()
    except Exception as error:
        kept.unpersist()
        if blame(error, steps, home) is None:  # not its code: a source that cannot be read, a lost executor
            step.status = PENDING
            steps.changed(step)
        raise
    step.seconds = round(time.monotonic() - begun, 3)
    return kept


@contextlib.contextmanager
def _recorded(step: Step, steps: Steps, home: str) -> Iterator[None]:
    """Keep what is printed; an error ends the step and goes on, one that would end the process as a plain one."""
    kept = Kept()
    try:
        try:
            with steps.keep_output() as kept:
                yield
        finally:
            step.output += kept.text
    except SystemExit as error:
        steps.end(step, error=_told(error, home))
        raise TransformationError(explain(error, home=home)) from error
    except Exception as error:
        steps.end(step, error=_told(error, home))
        raise


def _told(error: BaseException, home: str) -> str:
    return user_traceback(error, home=home) + explain(error, home=home)

"""One case: the transformation is run on its expected inputs, and what comes out is compared with the expected output.

Each runs in a process and a session of its own (validate_child.py), because it is the user's code. Spark is asked for
only by a case that needs it.
"""

import contextlib
import copy
import io
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from opendataflow.errors import DataflowError
from opendataflow.spark.cases import Case
from opendataflow.spark.compare import Table, compare, identical, same_rows
from opendataflow.spark.expectations import OUTPUT, STREAM, Expectations, read_expectations
from opendataflow.spark.explain import explain, user_traceback
from opendataflow.spark.frames import ExampleError, is_pandas, is_spark, pandas_frame, spark_frame, table_of
from opendataflow.spark.outcome import FAILED, OK, Outcome
from opendataflow.spark.signature import takes_stream, wrong_result
from opendataflow.spark.transformations import (
    PANDAS,
    SPARK,
    Code,
    Transformation,
    TransformationError,
    engine_of,
    load_anew,
    read_code,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SURPLUS = 1000  # rows beyond the expected ones that are looked at


@dataclass(slots=True)
class _Progress:
    """How far the case is: what is told of it depends on that."""

    began: float = field(default_factory=time.monotonic)
    item: int | None = None  # of the stream

    def outcome(self, case: Case, status: str, message: str = "", **rest: Any) -> Outcome:
        seconds = round(time.monotonic() - self.began, 3)
        return Outcome(id=case.id, file=case.file, status=status, message=message, seconds=seconds, **rest)


def run_case(
    case: Case,
    get_spark: Callable[[], "SparkSession"],
    find_end: Callable[[BaseException], str | None] = lambda _error: None,
) -> Outcome:
    """How the case ended; nothing that its code raises comes out of here, but for KeyboardInterrupt.

    `find_end` says how Spark ended, where an error comes from that.
    """
    progress = _Progress()
    code: Code | None = None
    try:
        code = read_code(case.home, case.slug, case.name)
        engine = engine_of(_readable(case), case.engine)
        if engine == PANDAS:
            import pandas  # noqa: F401  before the case's own time begins
        spark = get_spark() if engine == SPARK else None
        progress.began = time.monotonic()  # the start of Spark is nobody's time
        if case.home not in sys.path:
            sys.path.append(case.home)  # last, so that a project's files never replace a library's
        return _run(case, code, spark, progress)
    except (Exception, SystemExit) as error:  # noqa: BLE001  the user's code must not decide how this process ends
        return _failed(case, code, error, progress, find_end(error))


def _readable(case: Case) -> list[Code]:
    """The pipeline's code as far as it can be read; what cannot fails its own case."""
    codes = []
    for name in case.transformations:
        with contextlib.suppress(TransformationError):
            codes.append(read_code(case.home, case.slug, name))
    return codes


def _run(case: Case, code: Code, spark: "SparkSession | None", progress: _Progress) -> Outcome:
    (transformation,) = load_anew([code])
    expected = read_expectations(sys.modules[code.module], spark)
    wanted = table_of(expected.output, OUTPUT)
    _check_example(expected, wanted, transformation)
    got = _result(transformation, expected, spark, progress, most=len(wanted.rows) + _SURPLUS)
    progress.item = None
    if wanted.rows and not got.rows:
        rows = "1 row was" if len(wanted.rows) == 1 else f"{len(wanted.rows)} rows were"
        return progress.outcome(case, FAILED, f"{case.file}: the output is empty, and {rows} expected")
    found = compare(wanted, got)
    if not found.count:
        is_promised = case.rowwise and spark is not None and expected.items is None
        told = _find_mixed_rows(transformation, expected, spark) if is_promised and spark is not None else ""
        return progress.outcome(case, FAILED, f"{case.file}: {told}") if told else progress.outcome(case, OK)
    number = f"{'at least ' if got.cut_off else ''}{found.count:,} difference{'s' if found.count > 1 else ''}"
    told = f"{case.file}: the output is not what was expected: {number}"
    if found.reordered:
        step = "sort_values" if spark is None else "orderBy"
        told += f"; the rows are the same, in another order: `{step}` at the end of `run` settles it"
    return progress.outcome(
        case, FAILED, told, differences=tuple(found.differences), difference_count=found.count
    )  # fmt: skip


def _check_example(expected: Expectations, wanted: Table, transformation: Transformation) -> None:
    """ExampleError for an example that could not fail, or could not be run."""
    if transformation.required > len(expected.inputs):
        raise ExampleError(
            f"`run` asks for {transformation.required} DataFrames, and `expected_inputs` has {len(expected.inputs)}; "
            "give a list of inputs, each a list of rows: [[{…}], [{…}]]"
        )
    if expected.items is not None and not takes_stream(transformation.run):
        raise ExampleError("has a `stream`, and `run` takes none; write `def run(df, …, stream=None)`")
    what = expected.name_of(0)
    if identical(table_of(expected.inputs[0], what, most=len(wanted.rows) + 1), wanted):
        raise ExampleError(f"`{what}` and `{OUTPUT}` are the same, so the example shows no change; show one")


def _result(
    transformation: Transformation,
    expected: Expectations,
    spark: "SparkSession | None",
    progress: _Progress,
    *,
    most: int,
) -> Table:
    """What comes out of one run; with a stream, on Spark it gets all items as a DataFrame.

    On pandas it is one run for each item, on the result of the one before.
    """
    inputs = [
        pandas_frame(one, expected.name_of(number)) if spark is None
        else spark_frame(spark, one, expected.name_of(number))
        for number, one in enumerate(expected.inputs)
    ][: transformation.most]  # fmt: skip
    items: list[dict[str, Any]] = [{}]
    if expected.items is not None and spark is not None:
        items = [{STREAM: spark_frame(spark, list(expected.items), f"`{STREAM}`")}]
    elif expected.items is not None:
        items = [{STREAM: copy.deepcopy(dict(one))} for one in expected.items]
    for number, item in enumerate(items, 1):
        progress.item = number if item and spark is None else None
        inputs[0] = _call(transformation, inputs, item, PANDAS if spark is None else SPARK)
    return table_of(inputs[0], "the output", most=most)


def _find_mixed_rows(transformation: Transformation, expected: Expectations, spark: "SparkSession") -> str:
    """A sentence if chunks made of the example's rows come out together other than each of them apart."""
    first = spark_frame(spark, expected.inputs[0], expected.name_of(0))
    rows = first.limit(_SURPLUS).collect()

    def run(part: list[Any]) -> Table:
        given = replace(expected, inputs=(spark.createDataFrame(part, first.schema), *expected.inputs[1:]))
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return _result(transformation, given, spark, _Progress(), most=_SURPLUS)

    whole = run(rows)
    chunks = {"its rows twice": (rows, rows), "its even and its odd rows": (rows[::2], rows[1::2])}
    for what, (one, other) in chunks.items():
        if not one or not other:
            continue
        apart = [*(whole if one is rows else run(one)).rows, *(whole if other is rows else run(other)).rows]
        together = run([*one, *other])
        if not same_rows(apart, together.rows, together.columns):
            return (
                f"`rowwise: true` is not so: two chunks made of the example ({what}) come out as {len(apart)} rows "
                f"apart, and as {len(together.rows)} together, and they are not the same rows"
            )
    return ""


def _call(transformation: Transformation, inputs: list[Any], item: dict[str, Any], engine: str) -> Any:
    result = transformation.run(*inputs, **item)
    if not (is_pandas(result) if engine == PANDAS else is_spark(result)):
        raise transformation.error(wrong_result(result, engine=engine))
    return result


def _failed(case: Case, code: Code | None, error: BaseException, progress: _Progress, end: str | None) -> Outcome:
    """In one sentence that begins with the file, and with the lines of the user's code that led there."""
    sentence = end or explain(error, home=case.home, files=[code.path] if code else ())
    if not sentence.startswith(case.file):
        sentence = f"{case.file}: {sentence}"
    if progress.item is not None:
        sentence += f" (item {progress.item} of `stream`)"
    trace = "" if isinstance(error, DataflowError) or end else user_traceback(error, home=case.home)
    return progress.outcome(case, FAILED, sentence, traceback=trace)

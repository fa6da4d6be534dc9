"""What a transformation's module says about itself: `expected_inputs`, `expected_output` and, for streams, `stream`.

One input is a list of dicts or a DataFrame; several are a list of those: a list whose first element is a dict is rows
of one input, a list whose first element is a list or a DataFrame is several inputs. Each name may also be a function
that returns this, and takes the Spark session if it has a parameter.
"""

import copy
import difflib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from opendataflow.spark.frames import ExampleError, is_pandas, is_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INPUTS, INPUT, OUTPUT, STREAM = "expected_inputs", "expected_input", "expected_output", "stream"
_KNOWN = (INPUTS, INPUT, OUTPUT, STREAM)


@dataclass(frozen=True, kw_only=True, slots=True)
class Expectations:
    inputs: tuple[Any, ...]  # each a list of dicts, a dict, or a DataFrame
    output: Any
    items: tuple[Mapping[str, Any], ...] | None  # of the stream; None: batch

    def name_of(self, number: int) -> str:
        """How an input is called in messages."""
        return INPUTS if len(self.inputs) == 1 else f"{INPUTS}[{number}]"


def read_expectations(module: ModuleType, spark: "SparkSession | None") -> Expectations:
    """Everything the module expects, or ExampleError for what is missing or of the wrong kind."""
    if hasattr(module, INPUTS) and hasattr(module, INPUT):
        raise ExampleError(f"has `{INPUTS}` and `{INPUT}`; keep one of them")
    single = hasattr(module, INPUT)
    given = _get(module, INPUT if single else INPUTS, spark)
    return Expectations(
        inputs=(given,) if single else _split(given),
        output=_get(module, OUTPUT, spark),
        items=_items(module, spark),
    )


def _get(module: ModuleType, name: str, spark: "SparkSession | None") -> Any:
    if not hasattr(module, name):
        near = difflib.get_close_matches(name, [one for one in vars(module) if one not in _KNOWN], n=1)
        step = f"rename `{near[0]}`" if near else "add an example, so that it can be tested"
        raise ExampleError(f"has no `{name}`; {step}")
    return _called(getattr(module, name), name, spark)


def _called(value: Any, name: str, spark: "SparkSession | None") -> Any:
    """The value itself, or what the function returns; a DataFrame is no function."""
    if not inspect.isroutine(value):
        return value
    wanted = [one for one in inspect.signature(value).parameters.values() if one.default is inspect.Parameter.empty]
    if not wanted:
        return value()
    if spark is None:
        raise ExampleError(f"`{name}` asks for `{wanted[0].name}`, and a pipeline on pandas has no Spark session")
    return value(spark)


def _split(given: Any) -> tuple[Any, ...]:
    """The inputs, one by one."""
    if is_pandas(given) or is_spark(given) or isinstance(given, Mapping):
        return (given,)
    if not isinstance(given, list | tuple):
        return (given,)  # what is wrong with it is told where it is used
    if not given or _is_row(given[0]):
        return (given,)
    for number, one in enumerate(given):
        if _is_row(one):
            raise ExampleError(
                f"`{INPUTS}` begins with an input, but element {number} of it is a row; "
                "give rows only, or a list of inputs: [[{…}], [{…}]]"
            )
    return tuple(given)


def _is_row(value: object) -> bool:
    return isinstance(value, Mapping) or hasattr(value, "asDict")


def _items(module: ModuleType, spark: "SparkSession | None") -> tuple[Mapping[str, Any], ...] | None:
    """The items of the module's `stream`, if it has one."""
    given = getattr(module, STREAM, None)
    if given is None or isinstance(given, ModuleType | type):  # something that it imports under this name
        return None
    given = _called(given, STREAM, spark)
    items: Sequence[Any] = [given] if isinstance(given, Mapping) else given
    if not isinstance(items, list | tuple) or not all(isinstance(one, Mapping) for one in items):
        raise ExampleError("`stream` is neither a dict nor a list of dicts: the items, one by one")
    if not items:
        raise ExampleError("`stream` is empty: there is no item to run it on")
    return tuple(copy.deepcopy(one) for one in items)

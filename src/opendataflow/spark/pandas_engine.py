"""Projects written for pandas, on Spark: one job for many chunks, one Python task for the whole chain of each.

The code and everything that runs it go to the executors inside the task: there, only pandas and pyarrow are needed.
"""

import importlib.util
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from opendataflow.checks import arrow_types
from opendataflow.domain.types import datatype
from opendataflow.domain.types import spark as spark_types
from opendataflow.spark import (
    kept,
    pandas_chain,
    pandas_files,
    pandas_items,
    pandas_modules,
    pandas_room,
    pandas_state,
    pandas_task,
    pandas_write,
    signature,
)
from opendataflow.spark.spec import ChunkSpec, Place
from opendataflow.spark.transformations import Code

for _module in (
    arrow_types, datatype, spark_types,
    kept, pandas_chain, pandas_files, pandas_items, pandas_modules, pandas_room, pandas_state, pandas_task,
    pandas_write, signature,
):  # fmt: skip
    cloudpickle.register_pickle_by_value(_module)


def run_pandas(
    spark: SparkSession,
    specs: Sequence[ChunkSpec],
    codes: Sequence[Code],
    *,
    memory_limit: int | None = None,
    timeout_seconds: float | None = None,
    say: Callable[[str], None] = lambda _text: None,
) -> list[dict[str, Any]]:
    """Produce every chunk, each in a task of its own; the results are in the order of the specs.

    A result has runid, rows, schema (JSON: column → Spark type), steps (as steps.py keeps them), output (what was
    printed outside of any step), error (a sentence, or None) and traceback. A chunk that fails does no harm to the
    others; only a failure of Spark itself is raised.
    """
    if not specs:
        return []
    chunks = [_chunk(spec, len(specs), memory_limit, timeout_seconds) for spec in specs]
    sent = [_code(code) for code in codes]
    modules = {} if _is_here(spark) else pandas_modules.project_texts(specs[0].home)
    run_task = pandas_task.run_task

    def tasks(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow

        for batch in batches:
            for number in batch.column(0).to_pylist():
                result = run_task({**chunks[number], "modules": modules}, sent)
                yield pyarrow.RecordBatch.from_pydict({"number": [number], "result": [json.dumps(result)]})

    say(f"pandas: {len(specs)} chunk{'s' if len(specs) > 1 else ''} in one Spark job")
    numbers = spark.range(0, len(specs), 1, len(specs))
    rows = numbers.mapInArrow(tasks, "number bigint, result string").collect()  # one short row for each chunk
    return [json.loads(row["result"]) for row in sorted(rows, key=lambda row: row["number"])]


def _is_here(spark: SparkSession) -> bool:
    """Whether tasks run on this machine, where the project is."""
    context = getattr(spark, "_sc", None)
    return context is not None and str(context.master).startswith("local")


def _chunk(spec: ChunkSpec, tasks: int, memory_limit: int | None, timeout_seconds: float | None) -> dict[str, Any]:
    """What the task needs to know, in types that need nothing of ours to be read."""
    return {
        "home": spec.home,
        "runid": spec.runid,
        "environment": dict(spec.environment),
        "sources": [_place(place) for place in spec.sources],
        "destination": _place(spec.destination),
        **_items(spec),
        "tasks": tasks,
        "memory_limit": memory_limit,
        "timeout_seconds": getattr(spec, "timeout_seconds", None) or timeout_seconds,
    }


def _items(spec: ChunkSpec) -> dict[str, Any]:
    """Of a stream's batch, read here: tasks need not reach its log."""
    if spec.items is None:
        return {}
    from opendataflow.spark.stream_batch import read_batch

    batch = read_batch(spec.items)
    return {
        "items": batch.items, "aside": batch.aside_json(), "set_aside": spec.items.set_aside,
        "state": None if spec.items.state is None else dict(spec.items.state),
        "fields": [field.name for field in spec.items.fields],
    }  # fmt: skip


def _place(place: Place) -> dict[str, Any]:
    return {
        "datasetid": place.datasetid,
        "locations": list(place.locations),
        "format": place.format,
        "options": dict(place.options),
        "schema": dict(place.schema) if place.schema is not None else None,
        "single_file": place.single_file,
    }


def _code(code: Code) -> dict[str, str]:
    return {
        "name": code.name,
        "path": code.path,
        "shown": code.shown,
        "digest": code.digest,
        "module": code.module,
        "source": importlib.util.decode_source(code.source),
    }

"""Whether a chunk fits into the memory of one task, told before anything is read.

It stands alone but for its neighbours that do too: it runs in Spark's workers, where OpenDataFlow may not be installed.
"""

import contextlib
import os
import re
from typing import Any

from opendataflow.spark.pandas_files import DataError, data_files, local_path

# What a file becomes in memory, with a copy for the code to work on. On the low side: a chunk that is refused here
# could not be tried at all, and one that does need more is ended with a sentence.
_GROWTH = {"csv": 3.0, "json": 3.0, "text": 3.0, "parquet": 6.0, "orc": 6.0}
_COMPRESSED = (".gz", ".bz2", ".zst", ".xz", ".zip")
WAY_OUT = (
    "make the chunks smaller, give tasks more memory (spark.conf: spark.executor.pyspark.memory), or write the "
    "pipeline for PySpark (`engine: spark`)"
)


def require_room(chunk: dict[str, Any]) -> None:
    """Raise DataError when the sources would not fit into this task's memory, or cannot be reached from here."""
    local_path(chunk["destination"]["locations"][0])
    size, needed = 0, 0.0
    for place in chunk["sources"]:
        for file in data_files(place):
            with contextlib.suppress(OSError):  # a missing file is told when it is read
                found = os.stat(file).st_size
                size += found
                packed = 4.0 if file.endswith(_COMPRESSED) else 1.0
                needed += found * packed * _GROWTH.get(place["format"], 3.0)
    available, why = _room(chunk)
    if needed > available:
        raise DataError(
            f"the chunk is too large for one pandas task: its sources have {in_bytes(size)}, which need about "
            f"{in_bytes(needed)} in memory, and a task has {in_bytes(available)} ({why}); {WAY_OUT}"
        )


def _room(chunk: dict[str, Any]) -> tuple[float, str]:
    if chunk["memory_limit"]:
        return float(chunk["memory_limit"]), "the limit that is set for it"
    given = os.environ.get("PYSPARK_EXECUTOR_MEMORY_MB")
    if given:
        return float(given) * 1024 * 1024, "spark.executor.pyspark.memory"
    free = [number_in("/proc/meminfo", r"MemAvailable:\s+(\d+)", 1024)]
    limit = number_in("/sys/fs/cgroup/memory.max", r"(\d+)")
    if limit != float("inf"):
        free.append(limit - number_in("/sys/fs/cgroup/memory.current", r"(\d+)"))
    shared = min(chunk["tasks"], len(os.sched_getaffinity(0)))
    return min(free) / shared, f"what is free on {os.uname().nodename}, for {shared} tasks at a time"


def number_in(path: str, pattern: str, unit: int = 1) -> float:
    try:
        with open(path, encoding="ascii") as file:
            found = re.search(pattern, file.read())
    except OSError:
        return float("inf")
    return float(found[1]) * unit if found else float("inf")


def in_bytes(number: float) -> str:
    for unit in ("bytes", "KB", "MB", "GB"):
        if number < 1024 or unit == "GB":
            return f"{number:,.0f} {unit}" if unit == "bytes" else f"{number:,.1f} {unit}"
        number /= 1024
    raise AssertionError

"""Spark's daemon of Python workers, on this machine: `spark.python.daemon.module` names it.

A worker serves one task after another, of whichever chunk. What a function imports only when it is called is imported
there, and Python keeps it: with the lists that the functions of an earlier chunk filled. So a worker forgets modules
of the project before each task, as the driver does before each chunk.
"""

from typing import Any

from pyspark import daemon

from opendataflow.spark import project_modules

_serve: Any = daemon.worker


def _serve_anew(*args: Any) -> int:
    project_modules.forget()
    return int(_serve(*args))


if __name__ == "__main__":
    daemon.worker = _serve_anew
    daemon.manager()

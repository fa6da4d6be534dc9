"""Spark's daemon of Python workers on this machine; `spark.python.daemon.module` names it.

Every task has a worker of its own, which is forked from this process. What most workers import is imported here before
the first fork, so that a new worker costs a fork and not the imports. No code of a project runs here.
"""

import contextlib
import importlib
import os
import sys

# In this order: numpy comes with pandas, and what follows finds it loaded.
LIBRARIES = ("pyarrow", "pandas", "pyspark.worker")


def import_libraries() -> None:
    """Import what workers need. A library that is not installed is missing there, and is reported there."""
    for name in LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    with contextlib.suppress(ImportError):
        import numpy as np

        # Python's own generator begins anew after a fork; numpy's would give every worker the same numbers.
        os.register_at_fork(after_in_child=np.random.seed)


if __name__ == "__main__":
    from pyspark.daemon import manager

    import_libraries()
    for name in [name for name in sys.modules if name.partition(".")[0] == "opendataflow"]:
        del sys.modules[name]  # only what started this; a worker begins without it, as on a cluster
    manager()

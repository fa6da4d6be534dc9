"""The order in which the files of the tests start, those that take longest first, and which of them share a process.

So no process is left with a long file at the end while the others have nothing to do. `--dist loadfile` hands out whole
files in this order; the figures are those of `pytest --junitxml`. Files that use Spark in the process of the tests go
to two of the processes, in groups: each process that starts a Spark pays for its start and for its first queries.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parent.parent
# Half a minute or so each; the first two begin the two groups below.
LONGEST_FIRST = (
    "spark/test_together.py", "spark/test_sql_read.py", "spark/test_warm_runs.py", "spark/test_isolation.py",
    "spark/test_clusters.py", "spark/test_keeper.py", "oracle/test_oracle.py", "spark/test_validate.py",
    "spark/test_streams.py", "acceptance/test_examples.py", "docs/test_pages.py", "acceptance/test_demo.py",
    "scheduling/test_worker.py", "acceptance/test_operate.py", "acceptance/test_object_store.py",
    "spark/test_session.py", "faults/test_pipeline_faults.py", "server/test_files_below_the_root.py",
    "server/test_browser_operator.py", "acceptance/test_alerts.py", "acceptance/test_dataids_in_paths.py",
    "faults/test_queue_faults.py", "spark/test_endurance.py", "faults/test_stream_chaos.py",
    "server/test_sources_web.py", "spark/test_pipeline_run.py", "acceptance/test_sql_project.py",
    "server/test_api_schema.py", "server/test_accounts.py", "spark/test_leftovers.py", "faults/test_store_away.py",
    "store/test_races.py", "execution/test_abort.py", "execution/test_supervise.py", "faults/test_crash_points.py",
    "spark/test_pytest_plugin.py", "spark/test_worker_pipelines.py", "server/test_git_pipelines.py",
    "oracle/test_shapes.py", "faults/test_chaos.py", "faults/test_sql_faults.py", "server/test_browser_grid.py",
)  # fmt: skip


def by_length() -> Callable[[pytest.Item], int]:
    """A key to sort tests by; those of a file, and all files that are not named here, keep their order."""
    place = {TESTS / name: number for number, name in enumerate(LONGEST_FIRST)}
    return lambda item: place.get(item.path, len(place))


# Those that use the fixture `spark`, in two groups that take about as long.
IN_PROCESS = (
    (
        "spark/test_together.py", "spark/test_check_parity.py", "spark/test_files.py", "spark/test_stream_batches.py",
        "spark/test_pandas_engine.py", "spark/test_bigquery.py", "spark/test_round_trip.py", "spark/test_leftovers.py",
        "spark/test_transformations.py", "spark/test_explain.py",
    ),
    (
        "spark/test_sql_read.py", "spark/test_sql_write.py", "spark/test_spark_checks.py", "spark/test_sql_load.py",
        "spark/test_remote_files.py", "spark/test_bad_files.py", "spark/test_project_read.py",
        "spark/test_type_tables.py", "spark/test_large_files.py", "spark/test_output_files.py",
    ),
)  # fmt: skip
# One or two tests of these files use it, too; their others are long, and stay together.
SOME_IN_PROCESS = (
    "spark/test_clusters.py::test_an_executor_that_does_not_see_the_files_is_named_before_anything_is_written",
    "spark/test_clusters.py::test_what_a_function_imports_when_it_is_called_is_never_stale_and_never_stands_in_for_a_library",
    "spark/test_validate.py::test_validate_is_also_a_function",
)


def group_of(nodeid: str) -> str:
    """What goes to one process as a whole: the file of the test, or the group that it is in."""
    test = nodeid.removeprefix("tests/")
    file = test.partition("::")[0]
    number = next((number for number, group in enumerate(IN_PROCESS, 1) if file in group), 0)
    if test in SOME_IN_PROCESS:
        number = len(IN_PROCESS)
    return f"Spark {number}" if number else file


def scheduling(config: pytest.Config, log: Any) -> Any:
    """xdist's scheduling by files, and by the groups above."""
    from xdist.scheduler import LoadFileScheduling

    class ByGroups(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return ByGroups(config, log)

"""The quick start: register, declare, run, ask."""

from support.projects import Project

FEED = """\
name: Quick start
environments:
  dev: {root: ./data}
datasets:
  orders: {path: "orders/{dataid}.csv", format: csv, partitions: {daily: 2025-11-01..2025-11-03}}
  totals: {path: "totals/{dataid}.txt"}
jobs:
  load:
    script: jobs/load.sh
    inputs: [orders]
    outputs: [totals]
"""


def test_a_script_runs_once_per_ready_day_and_then_is_caught_up(project: Project) -> None:
    project.apply(FEED)
    script = project.script("jobs/load.sh", 'echo "loading $dataid"; wc -l < "$orders_location" > "$totals_location"')
    for day in ("2025-11-01", "2025-11-02", "2025-11-03"):
        project.write(f"data/orders/{day}.csv", "a\nb\n")
        assert project.dataflow("ready", "orders", day).returncode == 0
    first = project.runjob(script)
    assert (first.returncode, first.stdout) == (0, "loading 2025-11-01\n")
    rest = project.runjob("--drain", script)
    assert (rest.returncode, rest.stdout) == (0, "loading 2025-11-02\nloading 2025-11-03\n")
    again = project.runjob(script)
    assert again.returncode == 0
    assert "caught up" in again.stderr
    assert (project.folder / "data/totals/2025-11-02.txt").read_text().strip() == "2"
    assert set(project.statuses("load").values()) == {"COMPLETE"}


def test_a_day_whose_input_is_missing_is_refused_with_its_code(project: Project) -> None:
    project.apply(FEED)
    script = project.script("jobs/load.sh", "touch ran")
    refused = project.runjob(script)
    assert refused.returncode == 10
    assert "DATA_NOT_READY: orders/2025-11-01 is not there yet" in refused.stderr
    assert not (project.folder / "ran").exists()
    why = project.json("why", "load", "2025-11-01")
    assert why["answers"][0]["code"] == "DATA_NOT_READY"
    assert why["fix"] == "when it has arrived: `dataflow scan orders` or `dataflow ready orders 2025-11-01`"

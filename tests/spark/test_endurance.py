"""A small version of `make endurance`: four kinds of pipelines in the slots of one worker, and nothing grows."""

import importlib.util
import os
from pathlib import Path

CHUNKS = 8 if "DATAFLOW_EVERY_FAULT" in os.environ else 6  # of each kind; `make faults`: 8
SCRIPT = Path(__file__).parents[2] / "scripts" / "endurance.py"


def test_nothing_grows_while_one_worker_does_chunks_of_four_kinds(tmp_path: Path) -> None:
    found = importlib.util.spec_from_file_location("endurance", SCRIPT)
    assert found is not None
    assert found.loader is not None
    endurance = importlib.util.module_from_spec(found)
    found.loader.exec_module(endurance)
    samples = endurance.endure(tmp_path, chunks=CHUNKS, slots=2)
    assert samples[-1].done >= 3 * CHUNKS
    assert samples[-1].driver_megabytes > 0, "the driver was looked at"
    # The rest needs more chunks than this to come to its size; so do the 64 folders in which Spark keeps blocks.
    for name in ("processes", "temporary"):
        before, after = getattr(samples[1], name), getattr(samples[-1], name)
        assert after <= before + (10 if name == "processes" else 100), (name, samples)

"""A small storm over three workers; `make chaos` is the large one. Over SQLite in `make faults`."""

import os
from pathlib import Path

import pytest

from support.chaos import SMALL, run_chaos
from support.chaos.plan import draw

SEED = 6


@pytest.mark.parametrize("kind", ["sqlite", "postgres"] if "DATAFLOW_EVERY_FAULT" in os.environ else ["postgres"])
def test_a_storm_over_workers_costs_nothing_but_time(kind: str, tmp_path: Path) -> None:
    happened: list[str] = []
    report = run_chaos(kind, SMALL, SEED, tmp_path, say=happened.append, give_up_seconds=120)
    assert report.holds, "\n".join(["", *report.lines, *happened, report.said, f"seed {SEED}"])
    assert any("longest" in line for line in report.times), "the storm took work from somebody"


def test_a_seed_gives_the_same_storm_again_and_another_gives_another() -> None:
    storm = draw(SMALL, 1, dialect="postgres")
    assert storm == draw(SMALL, 1, dialect="postgres")
    assert storm != draw(SMALL, 2, dialect="postgres")
    kinds = [fault.kind for fault in storm]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {
        "kill": 6, "stop": 2, "restart": 1, "scale": 6, "reader": 1, "drop": 1,
    }  # fmt: skip

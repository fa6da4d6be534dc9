"""Queues and slots without a process."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.looped import Looped


@pytest.fixture
def looped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Looped]]:
    """Makes lanes and a loop of the jobs that a test gives."""
    made: list[Looped] = []

    def make(*jobs: Any, **options: Any) -> Looped:
        made.append(Looped(tmp_path, monkeypatch, *jobs, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()

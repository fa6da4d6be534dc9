"""How long runs took, drawn: a bar for each, on a scale of powers of ten, where seconds and hours are both seen."""

import math
from typing import Any, NamedTuple

HEIGHT, TOP, LEFT, BAR, GAP = 120, 14, 44, 12, 3
SHORTEST = 0.01  # seconds, at the foot of the scale
_TICKS = (
    (0.01, "10 ms"),
    (0.1, "0.1 s"),
    (1, "1 s"),
    (10, "10 s"),
    (60, "1 min"),
    (600, "10 min"),
    (3600, "1 h"),
    (36_000, "10 h"),
)


class Bar(NamedTuple):
    x: float
    y: float
    height: float
    run: dict[str, Any]


class Tick(NamedTuple):
    y: float
    text: str


class Drawing(NamedTuple):
    width: int
    height: int
    left: int
    bar: int
    bars: list[Bar]
    ticks: list[Tick]


def draw_durations(runs: list[dict[str, Any]]) -> Drawing | None:
    """The runs of a page, the oldest first as time goes; None when there is none."""
    shown = [run for run in reversed(runs) if run["seconds"] is not None]
    if not shown:
        return None
    longest = max(SHORTEST * 10, *(run["seconds"] for run in shown))
    top = next((seconds for seconds, _ in _TICKS if seconds >= longest), longest)

    def rise(seconds: float) -> float:
        return HEIGHT * math.log(max(seconds, SHORTEST) / SHORTEST) / math.log(top / SHORTEST)

    bars = []
    for at, run in enumerate(shown):
        height = round(max(rise(run["seconds"]), 2.0), 1)
        bars.append(Bar(LEFT + at * (BAR + GAP), round(TOP + HEIGHT - height, 1), height, run))
    ticks = [Tick(round(TOP + HEIGHT - rise(seconds), 1), text) for seconds, text in _TICKS if seconds <= top]
    return Drawing(LEFT + len(bars) * (BAR + GAP) + GAP, TOP + HEIGHT + 6, LEFT, BAR, bars, ticks)

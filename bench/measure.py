"""Shared by the benches: interleaved repetitions, medians and quartiles, one line per claim."""

import json
import statistics
import time
from collections.abc import Callable


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def interleaved(
    actions: dict[str, Callable[[], object]],
    *,
    times: int,
    warm_up: int = 2,
    before: Callable[[], object] | None = None,
) -> dict[str, list[float]]:
    """Run each action once per round, in turn, so that a noisy minute hits all of them; `before` each, untimed."""
    for _ in range(warm_up):
        for action in actions.values():
            action()
    found: dict[str, list[float]] = {name: [] for name in actions}
    for round_ in range(times):
        names = list(actions) if round_ % 2 == 0 else list(reversed(actions))
        for name in names:
            if before is not None:
                before()
            found[name].append(seconds(actions[name]))
    return found


def pair_ratio(name: str, over: list[float], under: list[float]) -> float:
    """The median of the ratios of each round: what slowed a whole round down is in both. Printed with quartiles."""
    ratios = [one / other for one, other in zip(over, under, strict=True)]
    return show(name, ratios, unit="  ", scale=1.0)


def show(name: str, values: list[float], *, unit: str = "ms", scale: float = 1000.0) -> float:
    """Print median and quartiles; returns the median."""
    low, middle, high = statistics.quantiles(values, n=4)
    spread = f"quartiles {low * scale:.3f} … {high * scale:.3f}, n={len(values)}"
    print(f"  {name:<34} {middle * scale:9.3f} {unit}   ({spread})")
    return middle


def verdict(claim: str, ratio: float, *, at_most: float | None = None, at_least: float | None = None) -> bool:
    """Print the ratio against what was promised, also as a JSON line for scripts."""
    kept = (at_most is None or ratio <= at_most) and (at_least is None or ratio >= at_least)
    bound = f"at most {at_most}" if at_most is not None else f"at least {at_least}"
    print(f"  {'OK  ' if kept else 'MISS'} {claim}: {ratio:.2f} ({bound})")
    print(
        json.dumps({"claim": claim, "ratio": round(ratio, 3), "at_most": at_most, "at_least": at_least, "kept": kept})
    )
    return kept

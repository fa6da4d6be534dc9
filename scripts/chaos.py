"""Workers in a storm: thousands of chunks while processes are killed and stopped and databases restart.

Prints a line for everything that must hold and how long recovery took; exits 1 when something did not hold. The seed
replays the storm: the same faults at the same places.

Examples: python scripts/chaos.py;  python scripts/chaos.py --store sqlite --chunks 1000 --seed 7
"""

import argparse
import dataclasses
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from support.chaos import FULL, SMALL, run_chaos


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=["sqlite", "postgres"], help="only this one; else one after the other")
    parser.add_argument("--seed", type=int, help="of the storm; else a new one, which is printed")
    parser.add_argument("--chunks", type=int, help=f"of each job (default {FULL.chunks})")
    parser.add_argument("--small", action="store_true", help="the storm of the tests")
    parser.add_argument("--keep", type=Path, help="a folder for projects and logs, which stays")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # workers and mounts are not left behind
    size = SMALL if options.small else FULL
    if options.chunks is not None:
        if options.chunks < 1:
            parser.error("--chunks is 1 or more")
        size = dataclasses.replace(size, chunks=options.chunks)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1_000_000)
    holds = True
    for kind in [options.store] if options.store else ["sqlite", "postgres"]:
        with tempfile.TemporaryDirectory(prefix="dataflow-chaos-") as temporary:
            folder = (options.keep or Path(temporary)) / kind
            print(f"{kind}: --seed {seed} replays this", flush=True)
            began = time.monotonic()
            report = run_chaos(kind, size, seed, folder, say=lambda text: _say(began, text))  # noqa: B023
        print("\n".join(report.lines), flush=True)
        if not report.holds:
            holds = False
            print(report.said[-4000:], file=sys.stderr)
            print(
                f"again: python scripts/chaos.py --store {kind} --chunks {size.chunks} --seed {seed}", file=sys.stderr
            )
    return 0 if holds else 1


def _say(began: float, text: str) -> None:
    print(f"  {time.monotonic() - began:6.1f} s  {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())

"""Workers in a storm: thousands of chunks while processes are killed and stopped and databases restart.
With --streams a stream: items from eight clients while its server and its query are killed.

Prints a line for everything that must hold and how long recovery took; exits 1 when something did not hold. The seed
replays the storm: the same faults at the same places.

Examples: python scripts/chaos.py;  python scripts/chaos.py --store sqlite --chunks 1000 --seed 7;
python scripts/chaos.py --streams --items 10000
"""

import argparse
import dataclasses
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from support.chaos import FULL, SMALL, Report, run_chaos
from support.chaos.stream_plan import FULL_STREAM, SMALL_STREAM, StreamSize
from support.chaos.streams import StreamReport, run_stream_chaos
from support.drivers import VARIABLE, stop_drivers


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", action="store_true", help="over a stream, instead of workers")
    parser.add_argument("--store", choices=["sqlite", "postgres"], help="only this one; else one after the other")
    parser.add_argument("--seed", type=int, help="of the storm; else a new one, which is printed")
    parser.add_argument("--chunks", type=int, help=f"of each job (default {FULL.chunks})")
    parser.add_argument("--items", type=int, help=f"with --streams: of all clients (default {FULL_STREAM.items})")
    parser.add_argument("--small", action="store_true", help="the storm of the tests")
    parser.add_argument("--keep", type=Path, help="a folder for projects and logs, which stays")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # workers and mounts are not left behind
    if (options.chunks if options.streams else options.items) is not None:
        parser.error("--items goes with --streams, --chunks without it")
    if options.chunks is not None and options.chunks < 1:
        parser.error("--chunks is 1 or more")
    if options.items is not None and options.items < FULL_STREAM.clients * 10:
        parser.error(f"--items is {FULL_STREAM.clients * 10} or more")
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1_000_000)
    os.environ[VARIABLE] = tempfile.mkdtemp(prefix="dataflow-chaos-spark-")  # what is hit there is nobody else's
    try:
        holds = [_storm(kind, seed, options) for kind in ([options.store] if options.store else ["sqlite", "postgres"])]
    finally:
        stop_drivers()
    return 0 if all(holds) else 1


def _storm(kind: str, seed: int, options: argparse.Namespace) -> bool:
    """Let it go over a store of this kind, and print what came of it; True when everything held."""
    print(f"{kind}: --seed {seed} replays this", flush=True)
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"  {time.monotonic() - began:6.1f} s  {text}", flush=True)

    with tempfile.TemporaryDirectory(prefix="dataflow-chaos-") as temporary:
        folder = (options.keep or Path(temporary)) / kind
        report: Report | StreamReport
        if options.streams:
            report = run_stream_chaos(kind, _stream_size(options), seed, folder, say=say)
        else:
            size = SMALL if options.small else FULL
            size = dataclasses.replace(size, chunks=options.chunks or size.chunks)
            report = run_chaos(kind, size, seed, folder, say=say)
    print("\n".join(report.lines), flush=True)
    if not report.holds:
        print(report.said[-4000:], file=sys.stderr)
        given = " ".join(_again(options))
        print(f"again: python scripts/chaos.py --store {kind} --seed {seed} {given}", file=sys.stderr)
    return report.holds


def _stream_size(options: argparse.Namespace) -> StreamSize:
    size = SMALL_STREAM if options.small else FULL_STREAM
    return dataclasses.replace(size, items=options.items or size.items)


def _again(options: argparse.Namespace) -> Iterator[str]:
    for name in ("streams", "small"):
        if getattr(options, name):
            yield f"--{name}"
    for name in ("chunks", "items"):
        if getattr(options, name) is not None:
            yield f"--{name} {getattr(options, name)}"


if __name__ == "__main__":
    sys.exit(main())

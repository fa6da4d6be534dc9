"""Pages cost the same however much has happened, and looking at them hardly slows down the work.

(a) The overview, the grid of datasets (now and in the past), a dataset, a chunk, runs and a run, each asked for over
    HTTP of a real `dataflow serve`, with 1 thousand, 100 thousand and 1 million chunks behind: at most 2 times.
(b) Claims and publishes of a worker while pages are asked for ten times a second, against the same without: at least
    0.9 of the rate.
"""

import argparse
import contextlib
import datetime
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from claims import addresses, cycle, new_store
from fill import fill_past
from measure import pair_ratio, show, verdict
from opendataflow.store import open_store
from opendataflow.store.records.accounts import Role, add_account, open_session

BIN = Path(sys.executable).parent
PAGES = (
    "/", "/datasets", "/datasets?status=FAILED", "/datasets?at={then}", "/datasets/bench/done",
    "/datasets/bench/done/{number}", "/v1/grid/bench/done?start={number}&count=400", "/runs", "/runs/{number}", "/jobs",
)  # fmt: skip
ASKED = ("/", "/datasets", "/runs", "/runs/{number}")  # that somebody keeps open
# Ten requests a second, evenly, from a process of its own; it ends when it is told to.
KNOCK = """
import http.client, itertools, sys, time
host, port, cookie, *paths = sys.argv[1:]
line, due = http.client.HTTPConnection(host, int(port), timeout=30), time.monotonic()
for path in itertools.cycle(paths):
    line.request("GET", path, headers={"cookie": cookie, "accept": "text/html"})
    line.getresponse().read()
    due += 0.1
    time.sleep(max(0.0, due - time.monotonic()))
"""


class Site:
    """A real server over a store, and somebody who is signed in."""

    def __init__(self, url: str, folder: str) -> None:
        from opendataflow.server.access import COOKIE

        store = open_store(url, actor="bench", check=False)
        add_account(store, "bench", Role.VIEWER)
        self.cookie = f"{COOKIE}={open_session(store, 'bench')}"
        store.close()
        env = {**os.environ, "DATAFLOW_STORE": url, "DATAFLOW_PROJECT": "bench", "DATAFLOW_HOME": folder}
        argv = [str(BIN / "dataflow"), "serve", "--port", "0", "--json"]
        self.process = subprocess.Popen(argv, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert self.process.stdout is not None
        self.at = urlsplit(json.loads(self.process.stdout.readline())["url"])
        self._line = http.client.HTTPConnection(str(self.at.hostname), self.at.port or 0, timeout=120)

    def get(self, path: str) -> int:
        self._line.request("GET", path, headers={"cookie": self.cookie, "accept": "text/html"})
        answer = self._line.getresponse()
        answer.read()
        return answer.status

    def close(self) -> None:
        self._line.close()
        self.process.terminate()
        self.process.wait(30)


@contextlib.contextmanager
def sites(address: Callable[[str], str], sizes: list[int]) -> Iterator[dict[int, Site]]:
    with tempfile.TemporaryDirectory() as folder:
        found = {}
        try:
            for size in sizes:
                url = address(f"pages_{size}")
                store = new_store(url, inputs=3)
                start = time.perf_counter()
                fill_past(store, behind=size, ahead=1000, inputs=3)
                store.close()
                print(f"  ({size:,} completed chunks made in {time.perf_counter() - start:.0f} s)")
                found[size] = Site(url, folder)
            yield found
        finally:
            for site in found.values():
                site.close()


def pages(address: Callable[[str], str], sizes: list[int], times: int, title: str) -> bool:
    """(a)"""
    kept = True
    with sites(address, sizes) as found:
        then = datetime.datetime.now(datetime.UTC).isoformat()[:16]
        for page in PAGES:
            paths = {size: page.format(number=size // 2, then=then) for size in sizes}
            status = found[sizes[0]].get(paths[sizes[0]])
            if status != 200:
                print(f"  {page} answers {status}: not measured")
                kept &= status == 404
                continue
            seconds: dict[int, list[float]] = {size: [] for size in sizes}
            for number in range(times + 2):
                for size in sizes if number % 2 else reversed(sizes):
                    start = time.perf_counter()
                    assert found[size].get(paths[size]) == 200
                    if number >= 2:
                        seconds[size].append(time.perf_counter() - start)
            print(f"{page}, {title}:")
            medians = [show(f"{size:>9,} behind", seconds[size]) for size in sizes]
            name = f"{page}, {sizes[-1]:,} behind / {sizes[0]:,} behind, {title}"
            kept &= verdict(name, medians[-1] / medians[0], at_most=2.0)
    return kept


def beside(address: Callable[[str], str], behind: int, times: int, title: str) -> bool:
    """(b)"""
    url = address("beside")
    store = new_store(url, inputs=1)
    batch = 300
    fill_past(store, behind=behind, ahead=(2 * times + 2) * batch, inputs=1)
    once = cycle(store)
    rates: dict[str, list[float]] = {"nobody looks": [], "ten pages a second": []}
    with tempfile.TemporaryDirectory() as folder:
        site = Site(url, folder)
        try:
            paths = [path.format(number=behind // 2) for path in ASKED]
            paths = [path for path in paths if site.get(path) == 200]
            argv = [sys.executable, "-c", KNOCK, str(site.at.hostname), str(site.at.port), site.cookie, *paths]
            for number in range(times):
                for name in list(rates) if number % 2 else list(reversed(rates)):
                    looks = subprocess.Popen(argv) if name != "nobody looks" else None
                    time.sleep(1.0)  # until it asks
                    start = time.perf_counter()
                    for _ in range(batch):
                        once()
                    rates[name].append(batch / (time.perf_counter() - start))
                    if looks is not None:
                        assert looks.poll() is None, "the one who asks has given up"
                        looks.kill()
                        looks.wait()
        finally:
            site.close()
    print(f"Claim + publish while pages are asked for ({', '.join(paths)}), {title}:")
    for name, values in rates.items():
        show(name, values, unit="/s", scale=1.0)
    ratio = pair_ratio("of each round", rates["ten pages a second"], rates["nobody looks"])
    return verdict(f"claims with ten pages a second / without, {title}", ratio, at_least=0.9)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = [1000, 100_000, 1_000_000]
    parser.add_argument("--sizes", type=lambda text: [int(part) for part in text.split(",")], default=sizes)
    parser.add_argument("--times", type=int, default=11)
    parser.add_argument("--only", choices=["SQLite", "PostgreSQL"])
    parser.add_argument("--part", choices=["a", "b"])
    options = parser.parse_args()
    kept = True
    for kind in [options.only] if options.only else ["SQLite", "PostgreSQL"]:
        with addresses(kind) as address:
            if options.part != "b":
                kept &= pages(address, options.sizes, options.times, kind)
            if options.part != "a":
                kept &= beside(address, options.sizes[-2] if len(options.sizes) > 1 else 1000, options.times, kind)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())

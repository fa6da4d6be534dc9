"""How far a line of code has to walk: the modules that one piece of work goes through, and who calls whom.

    PYTHONPATH=tests python scripts/walk.py [--json]

Each piece of work is done by the installed commands in processes of their own, with sys.setprofile; what runs while
modules are imported does not count. Of each it prints the modules touched, the calls from one module into another
(distinct pairs of functions), and the pairs of modules that call each other back and forth.
"""

import argparse
import contextlib
import http.client
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import opendataflow
from opendataflow.server.access import COOKIE
from opendataflow.store import open_store
from opendataflow.store.records.accounts import Role, add_account, add_token, open_session

BIN = Path(sys.executable).parent
SOURCE = str(Path(opendataflow.__file__).parent) + "/"
# In every process: sitecustomize.py. A process writes what it saw when it ends, however it does, and on SIGUSR2.
TRACER = """
import atexit, json, os, signal, sys, threading
SOURCE, FOLDER = {source!r}, {folder!r}
known, calls = {{}}, set()

def is_import(frame):
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(SOURCE):
            return frame.f_globals.get("__name__") != "__main__"
        frame = frame.f_back
    return False

def profile(frame, event, _arg):
    if event != "call" or not frame.f_code.co_filename.startswith(SOURCE):
        return
    back = frame.f_back
    while back is not None and not back.f_code.co_filename.startswith(SOURCE):
        back = back.f_back  # through a library, a decorator, a thread's start
    key = (back.f_code if back is not None else None, frame.f_code)
    if key in known:
        if known[key]:
            calls.add(key)
        return
    known[key] = frame.f_code.co_name != "<module>" and not is_import(frame)
    if known[key]:
        calls.add(key)

def name(code):
    path = code.co_filename[len(SOURCE):].removesuffix(".py").removesuffix("/__init__")
    return [path.replace("/", "."), code.co_qualname if hasattr(code, "co_qualname") else code.co_name]

def write(*_):
    seen = [[name(a) if a is not None else None, name(b)] for a, b in list(calls)]
    calls.clear()
    if seen:
        with open(os.path.join(FOLDER, f"{{os.getpid()}}.json"), "a") as file:
            file.write(json.dumps(seen) + "\\n")

leave = os._exit

def exit_now(code):
    write()
    leave(code)

if not os.environ.get("WALK_OFF"):
    os._exit = exit_now
    os.register_at_fork(after_in_child=lambda: (known.clear(), calls.clear()))
    atexit.register(write)
    signal.signal(signal.SIGUSR2, write)
    threading.setprofile(profile)
    sys.setprofile(profile)
"""
PROJECT = """\
name: walk
environments: {{dev: {{root: ./data}}}}
spark: {{master: "local[2]"}}
datasets:
  orders: {{path: "orders/{{dataid}}.csv", format: csv, schema: {{id: int, amount: int}}, partitions: {{shards: 1..5}}}}
  counted: {{path: "counted/{{dataid}}.txt"}}
  doubled: {{path: "doubled/{{dataid}}.parquet", format: parquet}}
  people: {{url: "sqlite:///{folder}/people.db", table: people, partition_column: shard, partitions: {{shards: 1..2}}}}
  copied: {{path: copied, format: parquet}}
jobs:
  count: {{script: count.sh, inputs: [orders], outputs: [counted]}}
pipelines:
  - {{slug: double, sources: [orders], destination: doubled, transformations: [twice]}}
  - {{slug: copy, sources: [people], destination: copied, transformations: [twice]}}
"""
TWICE = """\
from pyspark.sql import functions as F


def run(df):
    return df.withColumn("twice", F.col("amount") * 2)
"""
Call = tuple[tuple[str, str] | None, tuple[str, str]]
Calls = list[Call]
GOALS = {"RunJob": 20, "tick": 30, "worker --once": 35, "PySpark chunk": 35, "page": 10, "action": 12}


class Walks:
    """A project in a folder, and commands whose calls are written down."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.seen, self.tracer = folder, folder / "seen", folder / "tracer"
        for made in (self.seen, self.tracer, folder / "data" / "orders", folder / "pipelines" / "double"):
            made.mkdir(parents=True)
        (self.tracer / "sitecustomize.py").write_text(TRACER.format(source=SOURCE, folder=str(self.seen)))
        (folder / "pipelines" / "copy").mkdir()
        for slug in ("double", "copy"):
            (folder / "pipelines" / slug / "twice.py").write_text(TWICE)
        script = folder / "count.sh"
        script.write_text('#!/bin/sh\nwc -l < "$orders_location" > "$counted_location"\n')
        script.chmod(0o755)
        (folder / "project.yml").write_text(PROJECT.format(folder=folder))
        with contextlib.closing(sqlite3.connect(folder / "people.db")) as people, people:
            people.execute("CREATE TABLE people (shard INTEGER, amount INTEGER)")
            people.executemany("INSERT INTO people VALUES (?, ?)", [(1, 3), (1, 4), (2, 5)])
        for number in range(1, 6):
            (folder / "data" / "orders" / f"{number}.csv").write_text(f"id,amount\n1,{number}\n")
        self.run("dataflow", "apply", traced=False)
        self.run("dataflow", "ready", "orders", "1..5", traced=False)

    def environment(self, *, traced: bool) -> dict[str, str]:
        env = {name: value for name, value in os.environ.items() if not name.startswith("DATAFLOW_")}
        return {**env, "PYTHONPATH": str(self.tracer)} if traced else env

    def run(self, command: str, *argv: str, traced: bool = True) -> None:
        done = subprocess.run(
            [str(BIN / command), *argv], cwd=self.folder, env=self.environment(traced=traced), capture_output=True,
            text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            sys.exit(f"{command} {' '.join(argv)}: exit {done.returncode}\n{done.stdout}{done.stderr}")

    def take(self, *, of: str = "") -> "tuple[Calls, Calls]":
        """The distinct calls since the last time: of all processes together, and of those that were in this module."""
        everywhere: set[Call] = set()
        there: set[Call] = set()
        for file in self.seen.iterdir():
            found: set[Call] = set()
            for line in file.read_text().splitlines():
                found |= {(tuple(a) if a is not None else None, tuple(b)) for a, b in json.loads(line)}
            file.unlink()
            everywhere |= found
            if any(called == (of, "main") for _, called in found):
                there |= found
        return sorted(everywhere, key=str), sorted(there, key=str)

    @contextlib.contextmanager
    def served(self) -> Iterator["Client"]:
        store = open_store(f"sqlite:///{self.folder}/.dataflow/state.db", actor="walk", check=False)
        add_account(store, "walk", Role.OPERATOR)
        cookie, token = open_session(store, "walk"), add_token(store, "walk", "walk", Role.OPERATOR)
        store.close()
        server = subprocess.Popen(
            [str(BIN / "dataflow"), "serve", "--port", "0", "--json"], cwd=self.folder,
            env=self.environment(traced=True), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            if server.stdout is None:
                raise AssertionError("it has a pipe")
            yield Client(json.loads(server.stdout.readline())["url"], f"{COOKIE}={cookie}", token, server.pid, self)
        finally:
            server.terminate()
            server.wait(30)


class Client:
    def __init__(self, url: str, cookie: str, token: str, pid: int, walks: Walks) -> None:
        at = urlsplit(url)
        self._line = http.client.HTTPConnection(str(at.hostname), at.port or 0, timeout=60)
        self._cookie, self._token, self._pid, self._walks = cookie, token, pid, walks

    def forget(self) -> None:
        """What the server did until now is not part of what comes."""
        self._written()
        self._walks.take()

    def page(self, path: str) -> None:
        self._ask("GET", path, {"cookie": self._cookie, "accept": "text/html"})

    def action(self, name: str, **asked: object) -> None:
        headers = {"authorization": f"Bearer {self._token}", "content-type": "application/json"}
        self._ask("POST", f"/v1/actions/{name}", headers, json.dumps(asked))

    def _ask(self, method: str, path: str, headers: dict[str, str], body: str | None = None) -> None:
        self._line.request(method, path, body, headers)
        answer = self._line.getresponse()
        text = answer.read()
        if answer.status >= 300:
            sys.exit(f"{method} {path}: {answer.status} {text[:500]!r}")
        self._written()

    def _written(self) -> None:
        """Have the server write down what it did; its main thread may be in the middle of something."""
        before = sum(file.stat().st_size for file in self._walks.seen.iterdir())
        os.kill(self._pid, signal.SIGUSR2)
        give_up = time.monotonic() + 5
        while sum(file.stat().st_size for file in self._walks.seen.iterdir()) == before and time.monotonic() < give_up:
            time.sleep(0.05)


def walks(folder: Path) -> Iterator[tuple[str, Calls]]:
    here = Walks(folder)
    here.run("RunJob", "./count.sh")
    yield "RunJob", here.take()[0]
    here.run("dataflow", "run", "double", "--dataid", "1")
    whole, own = here.take(of="spark.chunk")
    yield "PySpark chunk", whole
    yield "  its process", own
    here.run("dataflow", "run", "copy", "--dataid", "1")
    yield "SQL chunk", here.take()[0]
    for job in ("double", "copy"):
        here.run("dataflow", "hold", job, traced=False)
    here.run("dataflow", "hold", "count", "4", "5", traced=False)
    here.run("dataflow", "tick")
    yield "tick", here.take()[0]
    here.run("dataflow", "release", "count", "4", "5", traced=False)
    here.run("dataflow", "worker", "--once", "--slots", "1")
    yield "worker --once", here.take()[0]
    with here.served() as client:
        client.page("/jobs")  # what is done once is not part of a page
        client.forget()
        client.page("/runs")
        yield "page", here.take()[0]
        client.forget()
        client.action("hold", project="walk", job="count", reason="walk")
        yield "action", here.take()[0]
    here.take()


def described(calls: Calls) -> dict[str, int]:
    across = {(a, b) for a, b in calls if a is not None and a[0] != b[0]}
    pairs = {(a[0], b[0]) for a, b in across if a is not None}
    return {
        "modules": len({b[0] for _, b in calls}),
        "calls": len(across),
        "back_and_forth": len([1 for a, b in pairs if a < b and (b, a) in pairs]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one object per walk, with its modules")
    wanted = parser.parse_args()
    if not wanted.json:
        print(f"{'walk':15} {'modules':>8} {'goal':>6} {'calls across':>13} {'back and forth':>15}")
    with tempfile.TemporaryDirectory() as folder:
        for name, calls in walks(Path(folder).resolve()):
            found = described(calls)
            if wanted.json:
                print(json.dumps({"walk": name, **found, "in": sorted({b[0] for _, b in calls})}), flush=True)
                continue
            goal = str(GOALS.get(name, "–"))
            print(
                f"{name:15} {found['modules']:8} {goal:>6} {found['calls']:13} {found['back_and_forth']:15}", flush=True
            )


if __name__ == "__main__":
    main()

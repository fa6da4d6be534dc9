"""Part (c) of bench/pipelines.py: small daily chunks through the real command, and through a loop written by hand.

All ways stay warm side by side, each with its own copy of the example, and get a block of days in turn. A block takes
from the claim of its first chunk to the recorded end of its last one, as the store tells; the loop's by its own clock.
"""

import datetime
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pyarrow.parquet

from measure import pair_ratio, show, verdict
from opendataflow.spark.keeper_client import list_keepers
from pipelines_plain import SMALL
from told import Told

BIN = Path(sys.executable).parent
PLAIN = str(Path(__file__).with_name("pipelines_plain.py"))
SLUG = "clean_flights"
BATCH = 50
PATIENCE_SECONDS = 600.0
LOOP, WARM, BATCHED = "a loop by hand", "warm", f"{BATCH} chunks in one job"
LOOP_4, WARM_4 = "the loop with four threads", "warm, four at a time"


class Copy:
    """A copy of the example with a store of its own, which can run days of it."""

    def __init__(self, home: Path, data: Path, folder: Path, *, chunks_per_job: int = 1) -> None:
        self.folder, self._days = folder, data / "flights"
        copy_example(home, folder)
        shutil.copytree(data, folder / "data", ignore=shutil.ignore_patterns("flights"))
        (folder / "data" / "flights").mkdir()
        project = folder / "project.yml"
        text, per_job = project.read_text(), f"chunks_per_job: {BATCH}"
        assert per_job in text
        project.write_text(text.replace(per_job, f"chunks_per_job: {chunks_per_job}"))
        self.dataflow("apply")
        for name in SMALL:
            self.dataflow("ready", name, "full")

    def dataflow(self, *argv: str) -> float:
        return dataflow(self.folder, *argv)

    def deliver(self, days: list[str]) -> None:
        """The files of these days are there, checked and READY."""
        for day in days:
            shutil.copy(self._days / f"{day}.csv", self.folder / "data" / "flights")
        self.dataflow("ready", "flights", *days)

    def times(self, days: list[str]) -> list[tuple[float, float]]:
        """When the run of each of these days was claimed and ended; only those that are complete."""
        store = sqlite3.connect(self.folder / ".dataflow" / "state.db", timeout=60)
        try:
            found = store.execute(
                "SELECT dataid, status, claimed_at, ended_at, message FROM run WHERE jobid = ? AND ended_at > ''",
                (SLUG,),
            ).fetchall()
        finally:
            store.close()
        bad = [row for row in found if row[1] != "COMPLETE"]
        assert not bad, bad
        return [(_seconds(row[2]), _seconds(row[3])) for row in found if row[0] in set(days)]

    def rows(self, day: str) -> int:
        (run,) = (self.folder / "data" / SLUG / f"dataid={day}" / "_runs").iterdir()
        return _rows(run)


def dataflow(folder: Path, *argv: str) -> float:
    """One command; its seconds."""
    start = time.perf_counter()
    done = subprocess.run(
        [str(BIN / "dataflow"), *argv], cwd=folder, env=_environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return time.perf_counter() - start


class Warm:
    """`dataflow run --drain --wait`, which waits for the next block of days between them."""

    def __init__(self, copy: Copy, *more: str) -> None:
        self.copy = copy
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed with the process
        copy.dataflow("hold", SLUG)
        command = [str(BIN / "dataflow"), "run", SLUG, "--drain", "--wait", "3600", *more]
        self._process = subprocess.Popen(
            command, cwd=copy.folder, env=_environment(), stdout=self._said, stderr=subprocess.STDOUT
        )

    def block(self, days: list[str]) -> float:
        """Seconds per chunk, from the first claim to the last end."""
        self.copy.deliver(days)
        self.copy.dataflow("release", SLUG)  # all at once: a job of 50 must not begin with the first few
        give_up = time.monotonic() + PATIENCE_SECONDS
        while len(times := self.copy.times(days)) < len(days):
            if self._process.poll() is not None or time.monotonic() > give_up:
                self._said.seek(0)
                sys.exit(f"the runner ended, or takes too long:\n{self._said.read()[-4000:]}")
            time.sleep(0.2)
        self.copy.dataflow("hold", SLUG)
        return (max(ended for _, ended in times) - min(claimed for claimed, _ in times)) / len(days)

    def close(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)
        self._said.close()


class Loop:
    """The hand-written alternative, in a process of its own."""

    def __init__(self, told: Told, *, threads: int) -> None:
        self._told, self._threads = told, threads

    def block(self, days: list[str]) -> float:
        return float(self._told.ask(days=days, threads=self._threads)["seconds"]) / len(days)


def small_chunks(home: Path, folder: Path, *, rounds: int, warm_up: int, days: int, processes: int) -> bool:
    data = folder / "days"
    sys.path.insert(0, str(home))
    from fetch import fetch  # type: ignore[import-not-found]

    fetch(data)
    year = sorted(path.stem for path in (data / "flights").iterdir())
    assert (warm_up + rounds) * max(days, BATCH) <= len(year), "a year has not so many days"
    print("Daily chunks of flights, per chunk:")
    apart = Copy(home, data, folder / "apart")
    apart.deliver(year[:processes])
    days_left = iter(year)
    cold, warm_shell = from_a_shell(
        apart.dataflow, "run", lambda: ["run", SLUG, "--dataid", next(days_left)], times=processes
    )
    cold_check, warm_check = from_a_shell(apart.dataflow, "validate", lambda: ["validate", SLUG], times=processes)
    with ExitStack() as stack:
        ways: dict[str, Warm | Loop] = {}
        by_hand, target = folder / "by_hand", folder / "by_hand_out"
        copy_example(home, by_hand)
        shutil.copytree(data, by_hand / "data")
        target.mkdir()
        told = stack.enter_context(Told(PLAIN, "loop", str(by_hand), str(target)))
        ways[LOOP], ways[LOOP_4] = Loop(told, threads=1), Loop(told, threads=4)
        for name, per_job, more in ((WARM, 1, ()), (WARM_4, 1, ("--slots", "4")), (BATCHED, BATCH, ())):
            one = Copy(home, data, folder / f"copy_{len(ways)}", chunks_per_job=per_job)
            ways[name] = warm = Warm(one, *more)
            stack.callback(warm.close)
        with Memory() as memory:
            found = _measure(ways, year, rounds, warm_up, days)
        _compare_outputs(ways, target, year[: days * (warm_up + 1)])
    for name, values in found.items():
        show(name, values)
    to_loop = pair_ratio("warm / loop, round by round", found[WARM], found[LOOP])
    to_loop_4 = pair_ratio("four at a time / four threads", found[WARM_4], found[LOOP_4])
    to_warm = pair_ratio("warm / in one job, round by round", found[WARM], found[BATCHED])
    kept = verdict("(c) warm / a loop written by hand", to_loop, at_most=1.8)
    kept &= verdict("(c) four at a time / the loop with four threads", to_loop_4, at_most=1.3)
    kept &= verdict(f"(c) {BATCH} chunks per job, times as fast as warm", to_warm, at_least=4)
    kept &= verdict("(c) `dataflow run` from a shell, warm / cold", warm_shell / cold, at_most=0.2)
    kept &= verdict("(c) `dataflow validate`, warm / cold", warm_check / cold_check, at_most=0.2)
    memory.show()
    return kept


def from_a_shell(
    command: Callable[..., float], name: str, argv: Callable[[], list[str]], *, times: int
) -> tuple[float, float]:
    """Seconds of a command: where no driver runs, and where one does."""
    found: dict[str, list[float]] = {"cold": [], "warm": []}
    for number in range(times):
        is_cold = number % 2 == 0
        if is_cold:
            command("spark", "stop", "--force")
        words = argv()
        found["cold" if is_cold else "warm"].append(command(*words))
    return show(f"{name} from a shell, cold", found["cold"]), show(f"{name} from a shell, warm", found["warm"])


class Memory:
    """Watches the drivers of this user: the proportional memory of four processes of chunks, and of their JVM."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._seen: list[tuple[int, int]] = []  # of the four together, and of the JVM

    def __enter__(self) -> "Memory":
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.5):
            for keeper in list_keepers():
                runs = [run["pid"] for run in keeper.get("runs", ())]
                if len(runs) == 4:
                    children = [_proportional_bytes(pid) for pid in runs]
                    if all(children):
                        self._seen.append((sum(children), _proportional_bytes(keeper["jvm_pid"])))

    def show(self) -> None:
        if not self._seen:
            print("  memory: four processes were never seen at once")
            return
        children, jvm = zip(*self._seen, strict=True)
        show("four processes of chunks, each, PSS", [one / 4 for one in children], unit="MB", scale=1e-6)
        show("the JVM beside them, PSS", list(jvm), unit="MB", scale=1e-6)


def _proportional_bytes(pid: int) -> int:
    """What the process has for itself, and its part of what it shares; 0 when it has ended."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:")), 0)


def _measure(
    ways: dict[str, "Warm | Loop"], year: list[str], rounds: int, warm_up: int, days: int
) -> dict[str, list[float]]:
    """Blocks in turn; the first rounds are for the JVMs to compile what they need."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(warm_up + rounds):
        for name in ways if number % 2 else reversed(ways):
            size = BATCH if name == BATCHED else days
            took = ways[name].block(year[number * size : (number + 1) * size])
            if number >= warm_up:
                found[name].append(took)
    return found


def _compare_outputs(ways: dict[str, "Warm | Loop"], target: Path, days: list[str]) -> None:
    """Every way wrote the same rows."""
    for day in days:
        by_hand = _rows(target / f"dataid={day}")
        ours = {name: way.copy.rows(day) for name, way in ways.items() if isinstance(way, Warm)}
        assert set(ours.values()) == {by_hand}, (day, by_hand, ours)


def copy_example(home: Path, folder: Path) -> None:
    shutil.copytree(home, folder, ignore=shutil.ignore_patterns("data", ".dataflow"))


def _rows(folder: Path) -> int:
    return int(sum(pyarrow.parquet.read_metadata(file).num_rows for file in folder.glob("part-*")))


def _environment() -> dict[str, str]:
    known = ("DATAFLOW_STORE", "DATAFLOW_ENV", "DATAFLOW_PROJECT", "DATAFLOW_HOME")
    return {name: value for name, value in os.environ.items() if name not in known} | {"NO_COLOR": "1"}


def _seconds(text: str) -> float:
    return datetime.datetime.fromisoformat(text).timestamp()

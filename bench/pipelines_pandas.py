"""Part (d) of bench/pipelines.py: a project written for pandas, in plain pandas and on Spark. Figures, no claim.

python bench/pipelines_pandas.py HOME TARGET    our way, told by lines as bench/pipelines_plain.py is
"""

import atexit
import contextlib
import itertools
import os
import random
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from measure import pair_ratio, show, verdict
from pipelines_chunks import dataflow, from_a_shell
from pipelines_plain import CLEAN_LEADS, serve
from told import Told

SLUG, DATAID = "clean_leads", "full"
PLAIN, OURS = "plain pandas", "pandas engine"
HERE = Path(__file__).resolve()


def pandas_engine(home: Path, folder: Path, *, sizes: list[int], times: int, processes: int) -> bool:
    kept = one_row(home, folder / "leads_1", times=processes)
    for size in sizes:
        project = folder / f"leads_{size}"
        shutil.copytree(home, project, ignore=shutil.ignore_patterns("output", ".dataflow"))
        make_leads(project / "sources" / "leads.csv", size)
        (project / "plain").mkdir()
        (project / "ours").mkdir()
        plain_script = str(HERE.with_name("pipelines_plain.py"))
        with (
            Told(plain_script, "pandas", str(project), str(project / "plain")) as plain,
            Told(str(HERE), str(project), str(project / "ours")) as ours,
        ):
            found, peaks = _measure({PLAIN: plain, OURS: ours}, times)
        same = (project / "plain" / "clean_leads.csv").read_bytes() == (
            project / "ours" / "clean_leads.csv"
        ).read_bytes()
        assert same, "the two ways wrote different files"
        print(f"(d) {size:,} leads, read_csv to to_csv:")
        for name, values in found.items():
            show(name, values, unit="s", scale=1.0)
        pair_ratio("pandas engine / plain", found[OURS], found[PLAIN])
        for name, peak in peaks.items():
            print(
                f"  peak memory, {name:<28} {', '.join(f'{key} {value / 1e6:.0f} MB' for key, value in peak.items())}"
            )
    return kept


def one_row(home: Path, project: Path, *, times: int) -> bool:
    """`dataflow run` of a project with one lead, from a shell: where no driver runs, and where one does."""
    shutil.copytree(home, project, ignore=shutil.ignore_patterns("output", ".dataflow"))
    make_leads(project / "sources" / "leads.csv", 2)  # the first has no address
    dataflow(project, "apply")

    def argv() -> list[str]:
        if (project / "output").exists():
            dataflow(project, "resubmit", SLUG, DATAID)
        return ["run", SLUG]

    print("(d) one lead:")
    cold, warm = from_a_shell(lambda *words: dataflow(project, *words), "run", argv, times=times)
    return verdict("(d) `dataflow run` of one row in pandas, warm / cold", warm / cold, at_most=0.2)


def make_leads(path: Path, count: int) -> None:
    """Leads as in the example: some without an address, some twice, countries that are not all known."""
    dice = random.Random(4)
    countries = ("GB", "FI", "DE", "XX")
    header = path.read_text(encoding="utf-8").splitlines()[0].split(",")
    with open(path, "w", encoding="utf-8") as file:
        file.write(",".join(header) + "\n")
        for number in range(count):
            made = {
                "email": "" if number % 20 == 0 else f" Person{number if number % 10 else number // 2}@Example.com",
                "country": dice.choice(countries),
            }
            file.write(",".join(made.get(name, str(dice.randrange(1000))) for name in header) + "\n")


def _measure(ways: dict[str, Told], times: int) -> tuple[dict[str, list[float]], dict[str, dict[str, int]]]:
    found: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(times + 1):
        for name in ways if number % 2 else reversed(ways):
            took = float(ways[name].ask()["seconds"])
            if number:
                found[name].append(took)
    return found, {name: _peaks(way.ask()) for name, way in ways.items()}


def _peaks(answer: dict[str, Any]) -> dict[str, int]:
    return {"driver": int(answer["peak_bytes"]), **answer.get("peaks", {})}


# Our way, in a process of its own -------------------------------------------------------------------------------------
def our_way(home: Path, target: Path, peaks: dict[str, int]) -> Callable[[dict[str, Any]], None]:
    from opendataflow.spark.jvm import find_process
    from opendataflow.spark.pipeline import Task, read_codes
    from opendataflow.spark.scratch import scratch_folder
    from opendataflow.spark.session import start_session
    from opendataflow.spark.spec import ChunkSpec, Place

    kept = contextlib.ExitStack()
    spark = start_session({}, name="bench", scratch=kept.enter_context(scratch_folder()))
    atexit.register(kept.close)  # and so it lives until then
    jvm = find_process()
    runs = itertools.count(1)

    def place(name: str, location: Path, *, single_file: bool = False) -> Place:
        return Place(
            datasetid=name, location=str(location), format="csv", options={}, schema=None, single_file=single_file
        )

    def whole(_order: dict[str, Any]) -> None:
        run = next(runs)
        written = target / "_runs" / str(run) / "clean_leads.csv"
        written.parent.mkdir(parents=True)
        spec = ChunkSpec(
            home=str(home), slug=SLUG, transformations=CLEAN_LEADS, dataid=DATAID, runid=run, spark={}, environment={},
            sources=tuple(place(name, home / "sources" / f"{name}.csv") for name in ("leads", "countries")),
            destination=place("clean_leads", written, single_file=True),
        )  # fmt: skip
        with _watched(jvm.pid, peaks):
            ((_, result),) = Task(spark, read_codes(spec), hear=lambda _spec, **_fields: None).run([spec])
        assert not result["error"], result["error"]
        os.replace(written, target / "clean_leads.csv")

    return whole


@contextlib.contextmanager
def _watched(jvm: int, peaks: dict[str, int]) -> Iterator[None]:
    """Keep the peak memory of the JVM and of the largest of the Python processes below it."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            for pid in _below(jvm):
                name = "JVM" if pid == jvm else "Python task"
                peaks[name] = max(peaks.get(name, 0), _peak_of(pid))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _below(pid: int) -> Iterator[int]:
    yield pid
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                for child in Path(f"/proc/{pid}/task/{task}/children").read_text(encoding="ascii").split():
                    yield from _below(int(child))


def _peak_of(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


if __name__ == "__main__":
    seen: dict[str, int] = {}
    serve(our_way(Path(sys.argv[1]), Path(sys.argv[2]), seen), more=lambda: {"peaks": seen})

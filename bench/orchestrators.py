"""300 no-op chunks through one worker, and through Luigi, Prefect and Dagster, in the same run: chunks per second.

Everywhere a chunk is one start of the same script, and its end is kept where it survives the process. The others are
used as their guides show it for many small pieces, in their quickest way:

    Luigi    a task for each chunk, whose marker file is its state; two processes
    Prefect  a mapped task in one flow, its state in the SQLite database of its own server
    Dagster  a partitioned job, run in process, its runs and events in its own SQLite databases

    at least 2 times the best of them, and 100 times Dagster

Each is installed into an environment of its own below the cache folder; the time that takes is not counted, nor is the
start of their processes: the clock runs from the first chunk to the last.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from measure import show, verdict
from worker import Store

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "opendataflow" / "bench"
PACKAGES = {"luigi": ["luigi>=3.6,<4"], "prefect": ["prefect>=3,<4", "fastapi<0.120"], "dagster": ["dagster>=1.9,<2"]}
OURS = "dataflow worker"

LUIGI = """
import subprocess, sys, time
import luigi
script, folder, chunks = sys.argv[1], sys.argv[2], int(sys.argv[3])

class Chunk(luigi.Task):
    number = luigi.IntParameter()
    def output(self):
        return luigi.LocalTarget(f"{folder}/done/{self.number}")
    def run(self):
        subprocess.run([script], check=True)
        with self.output().open("w") as file:
            file.write("done")

tasks = [Chunk(number=number) for number in range(chunks)]
start = time.perf_counter()
assert luigi.build(tasks, local_scheduler=True, workers=2, log_level="WARNING")
print("rate", chunks / (time.perf_counter() - start))
"""
PREFECT = """
import subprocess, sys, time
from prefect import flow, task
script, folder, chunks = sys.argv[1], sys.argv[2], int(sys.argv[3])

@task(log_prints=False)
def chunk(number):
    subprocess.run([script], check=True)
    return number

@flow(log_prints=False)
def many():
    start = time.perf_counter()
    found = chunk.map(range(chunks)).result()
    assert len(found) == chunks
    return chunks / (time.perf_counter() - start)

print("rate", many())
"""
DAGSTER = """
import subprocess, sys, time
from dagster import DagsterInstance, StaticPartitionsDefinition, job, op
script, folder, chunks = sys.argv[1], sys.argv[2], int(sys.argv[3])
keys = [str(number) for number in range(chunks)]

@op
def chunk():
    subprocess.run([script], check=True)

@job(partitions_def=StaticPartitionsDefinition(keys))
def many():
    chunk()

instance = DagsterInstance.get()
start = time.perf_counter()
for key in keys:
    assert many.execute_in_process(partition_key=key, instance=instance).success
print("rate", chunks / (time.perf_counter() - start))
"""
PROGRAMS = {"luigi": LUIGI, "prefect": PREFECT, "dagster": DAGSTER}


def installed(name: str) -> Path:
    """The Python of an environment that has the package; made once."""
    folder = CACHE / name
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        print(f"(installing {name} into {folder})", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES[name]], check=True)
        (folder / "ready").touch()
    return python


def rate_of(name: str, script: str, chunks: int) -> float:
    python = installed(name)
    with tempfile.TemporaryDirectory(prefix=f"dataflow-bench-{name}-") as folder:
        home = Path(folder)
        (home / "done").mkdir()
        (home / "program.py").write_text(PROGRAMS[name])
        env = {
            **os.environ,
            "DAGSTER_HOME": folder, "DAGSTER_DISABLE_TELEMETRY": "1",
            "PREFECT_HOME": folder, "PREFECT_LOGGING_LEVEL": "ERROR", "DO_NOT_TRACK": "1",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false", "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
        }  # fmt: skip
        done = subprocess.run(
            [python, "program.py", script, folder, str(chunks)],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            sys.exit(f"{name} ended with {done.returncode}: {done.stderr[-2000:]}")
        return float(done.stdout.split("rate ")[-1].split()[0])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=300)
    parser.add_argument("--dagster-chunks", type=int, default=60, help="it takes about a second for each")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--slots", type=int, default=4)
    options = parser.parse_args()
    for name in PROGRAMS:
        installed(name)
    rates: dict[str, list[float]] = {name: [] for name in (OURS, *PROGRAMS)}
    with tempfile.TemporaryDirectory(prefix="dataflow-bench-") as folder:
        store = Store(Path(folder), "sqlite:///.dataflow/state.db")
        for _ in range(options.times):
            store.make_ready(options.chunks)
            rates[OURS].append(store.work(1, options.slots))
            for name in PROGRAMS:
                chunks = options.dagster_chunks if name == "dagster" else options.chunks
                rates[name].append(rate_of(name, store.script, chunks))
    print(f"{options.chunks} no-op chunks ({options.dagster_chunks} of Dagster's), chunks per second:")
    middle = {name: show(name, values, unit="/s", scale=1.0) for name, values in rates.items()}
    best = max(PROGRAMS, key=lambda name: middle[name])
    turns = range(options.times)
    over_best = statistics.median(rates[OURS][turn] / rates[best][turn] for turn in turns)
    over_dagster = statistics.median(rates[OURS][turn] / rates["dagster"][turn] for turn in turns)
    kept = verdict(f"worker / {best}, the best of the others", over_best, at_least=2.0)
    return 0 if verdict("worker / Dagster", over_dagster, at_least=100.0) and kept else 1


if __name__ == "__main__":
    sys.exit(main())

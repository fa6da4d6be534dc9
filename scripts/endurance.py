"""Many chunks of four kinds of pipelines through one worker: does anything grow, does anything slow down?

    python scripts/endurance.py --chunks 1000

A pipeline of Spark's own functions, one with a Python function, one written for pandas and one that reads a table run
in the slots of one worker, on a driver of their own with a heap of 1 GB. After every hundred chunks the processes,
threads, memory, descriptors and temporary files and folders of worker, zygote, keeper and JVM are written down. It ends
with the growth from the second hundred to the last, and with 1 when something did not stay flat.
"""

import argparse
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

DATAFLOW = str(Path(sys.executable).parent / "dataflow")
PIPELINES = ("plain", "function", "frames", "rows")
PROJECT = """\
name: Endurance
environments: {{dev: {{root: ./data}}}}
spark: {{master: "local[2]", conf: {{spark.driver.memory: 1g, spark.sql.shuffle.partitions: 2}}}}
datasets:
  raw: {{path: "raw/{{dataid}}.csv", format: csv, schema: {{a: int, b: string}}, partitions: {{shards: 1..{chunks}}}}}
  db:
    url: "sqlite:///{folder}/source.db"
    table: numbers
    partition_column: shard
    partitions: {{shards: 1..{chunks}}}
  plain: {{path: plain, format: parquet}}
  function: {{path: function, format: parquet}}
  frames: {{path: "frames/{{dataid}}.csv", format: csv}}
  rows: {{path: rows, format: parquet}}
pipelines:
  - {{slug: plain, sources: [raw], destination: plain, transformations: [step]}}
  - {{slug: function, sources: [raw], destination: function, transformations: [step]}}
  - {{slug: frames, sources: [raw], destination: frames, transformations: [step]}}
  - {{slug: rows, sources: [db], destination: rows, transformations: [step]}}
"""
STEPS = {
    "plain": (
        "from pyspark.sql import functions as F\n\n\n"
        'def run(df):\n    return df.cache().groupBy("b").agg(F.sum("a").alias("a"))\n'
    ),
    "function": (
        "from pyspark.sql import functions as F\n\n\n"
        '@F.udf("int")\ndef twice(a):\n    return 2 * a\n\n\n'
        'def run(df):\n    return df.withColumn("twice", twice("a"))\n'
    ),
    "frames": 'import pandas\n\n\ndef run(df):\n    df["twice"] = df["a"] * 2\n    return df\n',
    "rows": 'from pyspark.sql import functions as F\n\n\ndef run(df):\n    return df.withColumn("c", F.col("a") + 1)\n',
}


class Sample(NamedTuple):
    done: int
    seconds: float
    processes: int
    threads: int
    descriptors: int
    driver_megabytes: float
    others_megabytes: float
    temporary: int


class Names(NamedTuple):
    """What of a sample must stay flat, and by how much it may grow all the same."""

    name: str
    share: float
    least: float


FLAT = (
    Names("processes", 0.2, 8), Names("threads", 0.2, 24), Names("descriptors", 0.2, 48),
    Names("others_megabytes", 0.2, 60), Names("driver_megabytes", 0.5, 300), Names("temporary", 0.5, 60),
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=1000, help="of each of the four pipelines")
    parser.add_argument("--slots", type=int, default=4)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dataflow-endurance-") as name:
        samples = endure(Path(name), chunks=options.chunks, slots=options.slots)
    return report(samples)


def endure(folder: Path, *, chunks: int, slots: int) -> list[Sample]:
    """Let the worker do all of it, and look after every hundredth chunk (or twenty times)."""
    project, runtime = folder / "project", folder / "runtime"
    temporary = folder / "tmp"
    temporary.mkdir()
    env = {**os.environ, "DATAFLOW_RUNTIME_DIR": str(runtime), "TMPDIR": str(temporary)}
    _make(project, chunks)
    for argv in (["apply"], ["ready", "raw", f"1..{chunks}"]):
        subprocess.run([DATAFLOW, *argv], cwd=project, env=env, check=True, stdout=subprocess.DEVNULL)
    every = min(100, chunks * len(PIPELINES) // 20)
    samples: list[Sample] = []
    with open(folder / "worker.log", "wb") as log:
        worker = subprocess.Popen(
            [DATAFLOW, "worker", "--once", "--slots", str(slots)], cwd=project, env=env, stdout=log, stderr=log
        )
        begun = time.monotonic()
        while worker.poll() is None:
            done = _done(project)
            if done >= (len(samples) + 1) * every:
                samples.append(_look(worker.pid, runtime, temporary, done, time.monotonic() - begun))
                print(samples[-1], flush=True)
            time.sleep(0.2)
    if worker.returncode != 0 or _done(project) != chunks * len(PIPELINES):
        print((folder / "worker.log").read_text()[-4000:])
        raise SystemExit(
            f"{_done(project)} of {chunks * len(PIPELINES)} chunks are done; the worker: {worker.returncode}"
        )
    subprocess.run([DATAFLOW, "spark", "stop", "--force"], cwd=project, env=env, check=False, stdout=subprocess.DEVNULL)
    return samples


def report(samples: list[Sample]) -> int:
    """What grew from the second sample to the last, and how the last hundred compare with the second."""
    early, late = samples[1], samples[-1]
    failed = 0
    for flat in FLAT:
        before, after = getattr(early, flat.name), getattr(late, flat.name)
        is_flat = after <= before * (1 + flat.share) + flat.least
        failed += not is_flat
        print(f"{flat.name:20} {before:10.0f} → {after:10.0f}   {'flat' if is_flat else 'GREW'}")
    first, last = _rate(samples[0], early), _rate(samples[-2], late)
    print(f"chunks a second: {first:.2f} in the second part, {last:.2f} in the last: {last / first:.2f}")
    return 1 if failed or last < 0.8 * first else 0


def _rate(before: Sample, after: Sample) -> float:
    return (after.done - before.done) / (after.seconds - before.seconds)


def _make(project: Path, chunks: int) -> None:
    for slug, code in STEPS.items():
        step = project / "pipelines" / slug / "step.py"
        step.parent.mkdir(parents=True)
        step.write_text(code)
    (project / "data" / "raw").mkdir(parents=True)
    for number in range(1, chunks + 1):
        (project / "data" / "raw" / f"{number}.csv").write_text(f"a,b\n{number},x\n2,y\n")
    with sqlite3.connect(project / "source.db") as source:
        source.execute("CREATE TABLE numbers (shard text, a int)")
        source.executemany("INSERT INTO numbers VALUES (?, ?)", [(str(n), n * 3) for n in range(1, chunks + 1)])
    source.close()
    (project / "project.yml").write_text(PROJECT.format(chunks=chunks, folder=project))


def _done(project: Path) -> int:
    store = sqlite3.connect(f"file:{project}/.dataflow/state.db?mode=ro", uri=True)
    try:
        return int(store.execute("SELECT count(*) FROM job_status WHERE status = 'COMPLETE'").fetchone()[0])
    finally:
        store.close()


# Looking ----------------------------------------------------------------------------------------------------------
def _look(worker: int, runtime: Path, temporary: Path, done: int, seconds: float) -> Sample:
    processes = _below(worker) | {worker: _command(worker)} | _of_folder(runtime)
    drivers = [pid for pid, command in processes.items() if "org.apache.spark" in command]
    memory = {pid: _megabytes(pid) for pid in processes}
    return Sample(
        done=done,
        seconds=round(seconds, 1),
        processes=len(processes),
        threads=sum(_count(f"/proc/{pid}/task") for pid in processes),
        descriptors=sum(_count(f"/proc/{pid}/fd") for pid in processes),
        driver_megabytes=round(sum(memory[pid] for pid in drivers)),
        others_megabytes=round(sum(size for pid, size in memory.items() if pid not in drivers)),
        temporary=sum(len(folders) + len(names) for top in (runtime, temporary) for _, folders, names in os.walk(top)),
    )


def _of_folder(runtime: Path) -> dict[int, str]:
    """The keepers of this folder, and all below them."""
    found: dict[int, str] = {}
    for pid in (int(entry) for entry in os.listdir("/proc") if entry.isdigit()):
        command = _command(pid)
        if str(runtime) in command and "spark.keeper" in command:
            found |= {pid: command} | _below(pid)
    return found


def _below(pid: int) -> dict[int, str]:
    found: dict[int, str] = {}
    for children in Path(f"/proc/{pid}/task").glob("*/children"):  # each thread has its own
        try:
            below = [int(child) for child in children.read_text().split()]
        except OSError:
            continue
        for child in below:
            found |= {child: _command(child)} | _below(child)
    return found


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _count(folder: str) -> int:
    try:
        return len(os.listdir(folder))
    except OSError:
        return 0


def _megabytes(pid: int) -> float:
    """The part of the memory that is this process's own (PSS): forks share most of theirs."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return 0.0


if __name__ == "__main__":
    sys.exit(main())

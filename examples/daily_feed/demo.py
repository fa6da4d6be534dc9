"""`make demo`: the daily feed goes through an outage and heals. Every command shown can be typed by hand."""

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
WORK = HERE.parent.parent / "demo-work"
BIN = Path(sys.executable).parent
DAYS = [f"2025-11-{day:02d}" for day in range(1, 15)]
JOBS = ("clean_orders", "daily_totals", "sales")
HEAL = "UPDATE job_status SET status = 'RESUBMIT' WHERE status = 'FAILED'"


def tell(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


def run(*argv: str, expect: int | None = 0) -> int:
    """Show a command, run it in the demo's folder, and stop the demo if it ends otherwise than the story says."""
    print(f"  $ {' '.join(argv)}", flush=True)
    env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    done = subprocess.run(
        argv, cwd=WORK, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    print("".join(f"    {line}\n" for line in done.stdout.splitlines()), end="", flush=True)
    if expect is not None and done.returncode != expect:
        sys.exit(f"The demo expected exit code {expect} here, but it was {done.returncode}.")
    return done.returncode


def kill_in_mid_run(count: int) -> None:
    """Start the usual call with a slow script and SIGKILL it while the script runs, like a machine that goes down."""
    env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "PAUSE": "600"}
    print("  $ RunJob jobs/clean_orders.sh &   (twice)", flush=True)
    runners = [
        subprocess.Popen(["RunJob", "jobs/clean_orders.sh"], cwd=WORK, env=env, stderr=subprocess.DEVNULL)
        for _ in range(count)
    ]
    until = time.monotonic() + 30
    while len(query("SELECT 1 FROM job_status WHERE status = 'RUNNING'")) < count and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(0.3)
    for runner in runners:
        print(f"  $ kill -9 {runner.pid}")
        runner.send_signal(signal.SIGKILL)
        runner.wait()


def query(sql: str) -> list[tuple[str, ...]]:
    """Plain SQL, as any SQLite shell would run it."""
    connection = sqlite3.connect(WORK / ".dataflow" / "state.db", timeout=60)
    try:
        with connection:
            return connection.execute(sql).fetchall()
    finally:
        connection.close()


def arrive(days: list[str]) -> None:
    """Orders of some days land in data/raw, a few of them broken, and are declared."""
    for day in days:
        dice = random.Random(day)  # noqa: S311
        lines = ["order_id,shop,amount"]
        for number in range(1, 201):
            amount = 0 if dice.random() < 0.03 else round(dice.uniform(1, 90), 2)
            lines.append(f"{number},shop{dice.randint(1, 8)},{amount}")
        (WORK / "data/raw").mkdir(parents=True, exist_ok=True)
        (WORK / f"data/raw/{day}.csv").write_text("\n".join(lines) + "\n")
    run("dataflow", "ready", "raw_orders", *days)


def usual_calls(*, expect: int | None = 0) -> None:
    """What cron does every night, good day or bad."""
    for script in ("clean_orders", "daily_totals"):
        run("RunJob", "--drain", f"jobs/{script}.sh", expect=expect)


def check_story() -> None:
    """All green, every day once, and no job before its input: from the tables themselves."""
    open_ = query("SELECT jobid, dataid, status FROM job_status WHERE status <> 'COMPLETE'")
    ready = query("SELECT count(*) FROM datastatus WHERE locktype = 'OUT' AND status = 'READY' AND datasetid = 'sales'")
    early = query(
        "SELECT h.name, h.dataid FROM history h JOIN job_dataset l ON l.jobid = h.name AND l.itemtype = 'IN' "
        "AND l.map = 'same' WHERE h.kind = 'job' AND h.new_status = 'RUNNING' AND NOT EXISTS "
        "(SELECT 1 FROM history c WHERE c.kind = 'chunk' AND c.name = l.datasetid AND c.dataid = h.dataid "
        "AND c.new_status = 'READY' AND c.id < h.id)"
    )
    if open_ or ready != [(len(DAYS),)] or early:
        sys.exit(f"The feed did not heal: open {open_}, sales ready {ready}, started too early {early}")


def main() -> None:
    started = time.monotonic()
    shutil.rmtree(WORK, ignore_errors=True)
    shutil.copytree(HERE, WORK, ignore=shutil.ignore_patterns("demo.py", "__pycache__"))
    tell(f"1. A daily feed of two scripts and a Spark step, in {WORK.name}/. Registering it:")
    run("dataflow", "apply")
    (WORK / "data").mkdir(exist_ok=True)
    cities = ["Bern", "Turin", "Lyon"]
    shops = "".join(f"shop{number},{cities[number % 3]}\n" for number in range(1, 9))
    (WORK / "data/shops.csv").write_text("shop,city\n" + shops)
    run("dataflow", "ready", "shops", "full")

    tell("2. Seven days of orders arrive, and the usual nightly calls run. (Exit 10 says: day 8 is not there yet.)")
    arrive(DAYS[:7])
    usual_calls(expect=10)

    tell("3. The outage. Three days arrive while the network is down: their jobs fail.")
    (WORK / "NETWORK_IS_DOWN").touch()
    arrive(DAYS[7:10])
    usual_calls(expect=None)

    tell("   Then the machine itself goes: two running jobs are killed with SIGKILL.")
    (WORK / "NETWORK_IS_DOWN").unlink()
    arrive(DAYS[10:12])
    kill_in_mid_run(2)
    run("dataflow", "status")

    tell("4. The platform is back. All a person does is one line of SQL:")
    print(f'  $ sqlite3 .dataflow/state.db "{HEAL}"')
    query(HEAL)

    tell("5. The last two days arrive, and the usual calls run as every night. Lost and failed work comes first.")
    arrive(DAYS[12:])
    usual_calls()
    run("dataflow", "run", "sales", "--drain")

    tell("6. Where things stand, and what is known about one of the days that failed:")
    run("dataflow", "status")
    run("dataflow", "why", "clean_orders", DAYS[8])
    check_story()
    tell(
        f"Done in {time.monotonic() - started:.0f} s: {len(DAYS)} days through {len(JOBS)} jobs, all COMPLETE, "
        "each in order, nothing lost and nothing done twice.\n"
        f"Look around in {WORK.name}/: `dataflow status sales`, `dataflow logs RUN`, the tables in .dataflow/state.db, "
        "the Parquet files under data/sales/."
    )


if __name__ == "__main__":
    main()

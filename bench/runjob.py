"""RunJob around `true`, against a bare Python script that imports the same driver and does the same transactions.

The bare script opens the same store (another copy), runs the very statements of a claim and a publish with literal
parameters, starts the same program with subprocess, and has nothing else: no questions, no guard, no log, no lease.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import interleaved, show, verdict
from opendataflow.store.statements import statements

PROJECT = """\
name: bench
environments: {{dev: {{store: "{store}"}}}}
datasets: {{shards: {{partitions: {{shards: 1..{n}}}}}, done: {{}}}}
jobs: {{nop: {{inputs: [shards], outputs: [done]}}}}
"""

BARE = """\
import sqlite3, subprocess, json, os, sys, time
S = {sql!r}
now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
c = sqlite3.connect({path!r}, timeout=60, isolation_level=None)
c.execute("PRAGMA synchronous = FULL")
q = lambda name, **p: c.execute(S[name], p)
j = dict(project="bench", jobid="nop")
q("get_store").fetchone(); q("find_job", **j).fetchone(); q("links_of", **j).fetchall()
dataid = q("next_claimable", limit=1, offset=0, ending=0, now=now, **j).fetchone()[0]
i = [f[1:] for f in q("facts_of", dataid=dataid, **j).fetchall() if f[0] == "IN"]
chunk = dict(project="bench", datasetid="shards", dataid=dataid); out = dict(chunk, datasetid="done")
c.execute("BEGIN IMMEDIATE")
q("act_as", actor="bare"); run = q("this_token").fetchone()[0]
q("is_input_unchanged", version=i[0][4], **chunk).fetchone(); q("is_output_read", **out)
q("take", dataid=dataid, runid=run, owner="bare", host="h", now=now, lease_until=now, forced=False, attempts=0,
  deaths=0, **j)
ask = json.dumps([{{"question": "ready", "yes": True, "code": "", "evidence": "x" * 60}}] * 5)
q("insert_run", dataid=dataid, runid=run, attempt=1, forced=False, owner="bare", host="h", pid=1, pid_started=1,
  guard_pid=1, guard_started=1, now=now, answers=ask, inputs="[]", **j)
q("lock_output", jobid="nop", now=now, **out); q("lock_input", reader=str(run), jobid="nop", now=now, **chunk)
q("stop_acting"); c.execute("COMMIT")
code = subprocess.run([sys.argv[1]]).returncode
c.execute("BEGIN IMMEDIATE")
q("act_as", actor="bare")
q("end_job", dataid=dataid, runid=run, status="COMPLETE", attempts=1, deaths=0, parked_until=None, now=now,
  again=False, **j)
m = dict(location=None, fingerprint=None, validated_at=None, now=now, **out)
q("publish_chunk", status="READY", runid=run, **m)
q("release_input", reader=str(run), **chunk)
q("end_run", runid=run, status="COMPLETE", now=now, exit_code=code, message="", log_path=None, log_tail="")
q("stop_acting"); c.execute("COMMIT")
"""

BARE_POSTGRES = """\
import psycopg, subprocess, json, os, sys, time
c = psycopg.connect({url!r}, autocommit=True)
S = {sql!r}
j = dict(project="bench", jobid="nop")
q = lambda name, p: c.execute(S[name], p).fetchall()
q("get_store", None); q("find_job", j); q("links_of", j)
row = q("next_claimable", dict(j, limit=1, offset=0, ending=0))[0]
i = [f[1:] for f in row[8] if f[0] == "IN"]
ask = json.dumps([{{"question": "ready", "yes": True, "code": "", "evidence": "x" * 60}}] * 5)
out = [["bench", "done", row[0]]]
run = q("claim", (json.dumps(dict(j, dataid=row[0], inputs=[i[0][:3] + [i[0][4], None]], outputs=out, owner="bare",
    host="h", pid=1, pid_started=1, guard_pid=1, guard_started=1, lease_seconds=60, concurrency=None)),
    ask))[0][0]
code = subprocess.run([sys.argv[1]]).returncode
end = dict(status="COMPLETE", run_status="COMPLETE", attempts=1, deaths=0, retry_in=None, message="")
m = dict(project="bench", datasetid="done", location=None, fingerprint=None, validated=False)
q("finish", (json.dumps(dict(j, dataid=row[0], runid=run, ends=[end, end], complete=True, exit_code=code, log_path=None,
    log_tail="", manifests=[m], inputs=[i[0][:3]])),))
"""


def prepare(folder: Path, store: str, n: int) -> None:
    """A project whose job has n dataids ready."""
    (folder / "jobs").mkdir(parents=True)
    (folder / "project.yml").write_text(PROJECT.format(store=store, n=n))
    shutil.copy("/bin/true", folder / "jobs" / "nop")
    dataflow = Path(sys.executable).parent / "dataflow"
    subprocess.run([dataflow, "apply"], cwd=folder, check=True, capture_output=True)
    insert = (
        "insert into datastatus (datasetid, dataid, locktype, status) "
        f"with recursive n(i) as (select 1 union all select i + 1 from n where i < {n}) "
        "select 'shards', cast(i as text), 'OUT', 'READY' from n"
    )
    if store.startswith("sqlite"):
        import sqlite3

        with sqlite3.connect(folder / ".dataflow" / "state.db") as connection:
            connection.execute(insert)
    else:
        import psycopg

        with psycopg.connect(store) as connection:
            connection.execute(insert)


def compare(store_of: dict[str, str], folder: Path, times: int, title: str) -> bool:
    n = times + 10
    for side in ("ours", "bare"):
        prepare(folder / side, store_of[side], n)
    bare = folder / "bare.py"
    if store_of["bare"].startswith("sqlite"):
        path = str(folder / "bare" / ".dataflow" / "state.db")
        bare.write_text(BARE.format(sql=statements("sqlite", "claims"), path=path))
    else:
        bare.write_text(BARE_POSTGRES.format(sql=statements("postgres", "claims"), url=store_of["bare"]))
    runjob = Path(sys.executable).parent / "RunJob"
    quiet = {"stderr": subprocess.DEVNULL, "check": True}
    nop = str(folder / "ours" / "jobs" / "nop")
    times_of = interleaved(
        {
            "bare script": lambda: subprocess.run([sys.executable, bare, nop], **quiet),
            "RunJob": lambda: subprocess.run([runjob, nop], cwd=folder / "ours", **quiet),
        },
        times=times,
    )
    print(f"RunJob around `true`, {title}:")
    medians = {name: show(name, values) for name, values in times_of.items()}
    return verdict(f"RunJob / bare script, {title}", medians["RunJob"] / medians["bare script"], at_most=1.5)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=40)
    parser.add_argument("--only", choices=["sqlite", "postgres"])
    options = parser.parse_args()
    kept = True
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as temporary:
        if options.only != "postgres":
            stores = dict.fromkeys(("ours", "bare"), "sqlite:///.dataflow/state.db")
            kept &= compare(stores, Path(temporary) / "sqlite", options.times, "SQLite")
        if options.only != "sqlite":
            from support.postgres import postgres

            with postgres() as server:
                stores = {side: server.new_database(side) for side in ("ours", "bare")}
                kept &= compare(stores, Path(temporary) / "postgres", options.times, "PostgreSQL")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())

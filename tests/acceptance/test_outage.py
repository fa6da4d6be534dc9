"""The outage: 100 failed jobs, one SQL statement, the usual calls; everything is made again, in order."""

from pathlib import Path

import pytest

from support.jobs import ends_of, publishes
from support.projects import RUNJOB, Project

DAYS = [f"2025-10-{day:02}" for day in range(1, 21)]
LAYERS = 5


@pytest.fixture
def scripts(project: Project) -> list[Path]:
    """Five chained jobs over twenty days, step1 → … → step5, each of which fails while the file `outage` is there."""
    datasets = "".join(f'  d{n}: {{path: "d{n}/{{dataid}}.txt"}}\n' for n in range(1, LAYERS + 1))
    jobs = "".join(f"  step{n}: {{inputs: [d{n - 1}], outputs: [d{n}]}}\n" for n in range(1, LAYERS + 1))
    project.apply(
        "name: Outage\nenvironments: {dev: {root: data}}\n"
        f'datasets:\n  d0: {{path: "d0/{{dataid}}.txt", partitions: {{daily: {DAYS[0]}..{DAYS[-1]}}}}}\n'
        f"{datasets}jobs:\n{jobs}"
    )
    for day in DAYS:
        project.write(f"data/d0/{day}.txt", f"raw {day}\n")
        project.sql(f"INSERT INTO datastatus (datasetid, dataid, status) VALUES ('d0', '{day}', 'READY')")
    return [
        project.script(
            f"step{n}.sh",
            '[ -e outage ] && { echo "warehouse away" >&2; exit 1; }\n'
            f'{{ cat "$d{n - 1}_location"; echo "step{n}"; }} > "$d{n}_location"',
        )
        for n in range(1, LAYERS + 1)
    ]


def break_everything(project: Project, scripts: list[Path]) -> None:
    """All is made once; then, in an outage, last step first, everything is tried again and fails: 100 FAILED."""
    for script in scripts:
        done = project.runjob("--drain", script)
        assert done.returncode == 0, done.stderr
    (project.folder / "outage").touch()
    for script in reversed(scripts):
        project.sql(f"UPDATE job_status SET status = 'RESUBMIT' WHERE jobid = '{script.stem}'")
        assert project.runjob("--drain", script).returncode == 1
    assert project.sql("SELECT status, count(*) FROM job_status GROUP BY status") == [("FAILED", 100)]


def heal(project: Project) -> int:
    """The outage is over: the one statement. Returns the last change of the history before it."""
    (project.folder / "outage").unlink()
    [(before,)] = project.sql("SELECT max(id) FROM history")
    project.sql("UPDATE job_status SET status = 'RESUBMIT' WHERE status = 'FAILED'")
    return int(before)


def assert_all_was_made_once_and_in_order(project: Project, since: int) -> None:
    """Replay the history: whenever a job starts, its input chunk is READY at that moment."""
    chunk = {(f"d{n}", day): "FAILED" if n else "READY" for n in range(LAYERS + 1) for day in DAYS}
    started = []
    changes = project.sql(f"SELECT kind, name, dataid, new_status FROM history WHERE id > {since} ORDER BY id")
    for kind, name, dataid, status in changes:
        if kind == "chunk":
            chunk[name, dataid] = status
        elif status == "RUNNING":
            source = f"d{int(name.removeprefix('step')) - 1}"
            assert chunk[source, dataid] == "READY", f"{name}/{dataid} started before {source} was READY"
            started.append((name, dataid))
    assert len(started) == len(set(started)) == 100
    for n in range(1, LAYERS + 1):
        assert publishes(project, f"d{n}") == dict.fromkeys(DAYS, 2), "once before the outage, once after"
    assert project.sql("SELECT status, count(*) FROM job_status GROUP BY status") == [("COMPLETE", 100)]
    for day in DAYS:
        made = (project.folder / f"data/d5/{day}.txt").read_text()
        assert made == f"raw {day}\nstep1\nstep2\nstep3\nstep4\nstep5\n"


@pytest.mark.both_stores
def test_100_failed_jobs_are_healed_by_one_statement_and_the_usual_calls(project: Project, scripts: list[Path]) -> None:
    break_everything(project, scripts)
    since = heal(project)
    for call in range(LAYERS):  # cron calls them as ever, here in the worst order
        for script in reversed(scripts):
            done = project.runjob("--drain", script)
            assert done.returncode in (0, 10), done.stderr
        assert publishes(project, f"d{call + 1}") == dict.fromkeys(DAYS, 2)
    assert_all_was_made_once_and_in_order(project, since)
    healed = project.sql("SELECT dataid FROM run WHERE jobid = 'step1' ORDER BY runid")[-len(DAYS) :]
    assert [row[0] for row in healed] == DAYS, "the oldest day first"


def test_100_failed_jobs_are_healed_in_order_when_all_jobs_run_at_the_same_time(
    project: Project, scripts: list[Path]
) -> None:
    break_everything(project, scripts)
    since = heal(project)
    runners = [project.start(RUNJOB, "--drain", "--wait", "60", script) for script in reversed(scripts)]
    for code, _, err in ends_of(runners):
        assert code == 0, err
    assert_all_was_made_once_and_in_order(project, since)

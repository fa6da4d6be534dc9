"""Alerts as people get them: real workers, ticks and servers, a real SMTP server and a real webhook."""

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from opendataflow.project.secrets import encrypt
from support.projects import DATAFLOW, Project
from support.receivers import Mailbox, Silence, Webhook, free_port, wait_until
from support.web import Site

PASSKEY = "a passkey for tests"
Start = Callable[..., Any]


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    with Mailbox() as box:
        yield box


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    with Webhook() as hook:
        yield hook


@pytest.fixture
def start(request: pytest.FixtureRequest) -> Iterator[Start]:
    """Starts a command in the background; all of them are stopped by their own ids in the end."""
    begun = []

    def begin(project: Project, *argv: str, **env: str) -> Any:
        begun.append(project.start(DATAFLOW, *argv, env=env))
        return begun[-1]

    yield begin
    for process in begun:
        if process.poll() is None:
            process.terminate()
        try:
            process.communicate(timeout=60)
        finally:
            if process.poll() is None:
                process.kill()


def declare(
    project: Project, notify: str, *, jobs: int = 1, extra: str = "", script: str = 'test -e ok && touch "$jobid"'
) -> None:
    """A project of so many jobs that fail as long as there is no file `ok`."""
    names = [f"job{number:03d}" for number in range(jobs)]
    for name in names:
        project.script(f"{name}.sh", script)
    datasets = "".join(f"  out_{name}: {{path: {name}, partitions: none}}\n" for name in names)
    entries = "".join(f"  {name}: {{script: {name}.sh, outputs: [out_{name}]{extra}}}\n" for name in names)
    project.apply(f"name: shop\nnotify: {notify}\ndatasets:\n{datasets}jobs:\n{entries}")


def states(project: Project) -> list[str]:
    return [row[0] for row in project.sql("SELECT state FROM alert_message ORDER BY messageid")]


def end_sender(project: Project) -> None:
    """The one that stayed behind to try again."""
    for (sender,) in project.sql("SELECT DISTINCT sender FROM alert_message WHERE state <> 'SENT'"):
        pid = re.search(r":(\d+) sender", sender or "")
        told = Path(f"/proc/{pid[1]}/cmdline") if pid else None
        if pid and told and told.exists() and "opendataflow.alerts.send" in told.read_text():
            os.kill(int(pid[1]), signal.SIGKILL)


def all_sent(project: Project) -> bool:
    return bool(states(project)) and set(states(project)) == {"SENT"}


# One message ----------------------------------------------------------------------------------------------------------
def test_an_outage_of_100_jobs_is_one_message_and_so_is_its_end(
    project: Project, mailbox: Mailbox, webhook: Webhook, start: Start
) -> None:
    declare(project, f"{{to: ['{mailbox.address}', '{webhook.address}'], gather: 3s}}", jobs=100)
    start(project, "worker", "--slots", "2")
    wait_until(lambda: mailbox.messages and webhook.posted, "both were told")
    assert mailbox.titles == webhook.titles == ["shop (default): 100 failed"]
    text = webhook.posted[0]["message"]
    assert "At the root of it, the worst first:" in text
    assert len(re.findall(r"^\d\. FAILED", text, flags=re.MULTILINE)) == 5
    assert "… and 95 more: `dataflow why`" in text
    assert re.search(r"`dataflow resubmit job\d+ full`", text)
    assert " ".join(mailbox.texts[0].split()) == " ".join(text.split())
    project.write("ok", "")
    project.sql("UPDATE job_status SET status = 'RESUBMIT'")
    wait_until(lambda: len(mailbox.messages) > 1 and len(webhook.posted) > 1, "both were told that it is over")
    wait_until(lambda: all_sent(project), "nothing is left to send")
    assert mailbox.titles[1:] == webhook.titles[1:] == ["shop (default): 100 recovered"]


def test_two_workers_a_tick_and_a_server_tell_it_once(
    postgres_project: Project, webhook: Webhook, start: Start
) -> None:
    declare(postgres_project, f"{{to: ['{webhook.address}'], gather: 3s}}", jobs=12)
    with Site(postgres_project):
        for _ in range(2):
            start(postgres_project, "worker", "--slots", "1")
        start(postgres_project, "tick")
        wait_until(lambda: webhook.posted, "it was told")
        wait_until(lambda: all_sent(postgres_project), "nothing is left to send")
        for _ in range(3):
            assert postgres_project.dataflow("tick").returncode == 0
    assert webhook.titles == ["shop (default): 12 failed"]


def test_a_job_tells_its_own_addresses_and_those_with_an_empty_list_tell_nobody(
    sqlite_project: Project, webhook: Webhook
) -> None:
    with Webhook() as own:
        for name in ("one", "two", "three"):
            sqlite_project.script(f"{name}.sh", "exit 1")
        sqlite_project.apply(f"""
name: shop
notify: {{to: ["{webhook.address}"], gather: 1s}}
datasets: {{a: {{path: a, partitions: none}}, b: {{path: b, partitions: none}}, c: {{path: c, partitions: none}}}}
jobs:
  one: {{script: one.sh, outputs: [a]}}
  two: {{script: two.sh, outputs: [b], notify: ["{own.address}"]}}
  three: {{script: three.sh, outputs: [c], notify: []}}
""")
        assert sqlite_project.dataflow("tick").returncode == 1
        wait_until(lambda: webhook.posted and own.posted, "both were told")
        wait_until(lambda: all_sent(sqlite_project), "all were sent")
        assert (webhook.titles, own.titles) == (["shop (default): 1 failed"], ["shop (default): 1 failed"])
        assert "one/full" in webhook.posted[0]["message"]
        assert "two/full" in own.posted[0]["message"]


# Late and stuck -------------------------------------------------------------------------------------------------------
def test_a_feed_that_does_not_come_and_a_run_that_does_not_end_are_told(
    sqlite_project: Project, webhook: Webhook, start: Start
) -> None:
    hour = time.strftime("%Y-%m-%dT%H", time.gmtime(time.time() - 3600))
    late_after = int(time.time() % 3600) + 8
    sqlite_project.script("load.sh", "exit 0")
    sqlite_project.script("slow.sh", "sleep 300")
    sqlite_project.apply(f"""
name: shop
notify: {{to: ["{webhook.address}"], gather: 1s, stuck_after: 2s, late_after: {late_after}s}}
datasets:
  feed: {{path: "feed/{{dataid}}.csv", partitions: {{hourly: "{hour}.."}}}}
  table: {{path: table}}
  result: {{path: result, partitions: none}}
jobs:
  load: {{script: load.sh, inputs: [feed], outputs: [table]}}
  slow: {{script: slow.sh, outputs: [result]}}
""")
    start(sqlite_project, "worker", "--slots", "1", "--grace", "0")
    wait_until(lambda: any("1 stuck" in title for title in webhook.titles), "the run is stuck")
    wait_until(lambda: any("1 late" in title for title in webhook.titles), "the feed is late")
    text = "\n".join(one["message"] for one in webhook.posted)
    assert re.search(r"- slow/full: RUNNING for \d+ s by ", text)
    assert f"- feed/{hour}: is not there, and load waits for it" in text
    assert f"MISSING feed/{hour}" in text


# What goes wrong on the way -------------------------------------------------------------------------------------------
def test_an_smtp_server_that_is_away_gets_the_message_when_it_is_back(sqlite_project: Project) -> None:
    port = free_port()
    box = Mailbox(port)
    declare(sqlite_project, f"{{to: ['{box.address}'], gather: 1s}}")
    assert sqlite_project.dataflow("tick").returncode == 1
    wait_until(lambda: states(sqlite_project) == ["WAITING"], "it could not be sent")
    told = sqlite_project.json("notify", "list")
    assert [one["state"] for one in told["messages"]] == ["WAITING"]
    assert told["messages"][0]["error"].startswith("mailto://: Connection error")
    assert [one["name"] for one in told["open"]] == ["job000"]
    with box:
        wait_until(lambda: states(sqlite_project) == ["SENT"], "it was sent")
    assert box.titles == ["shop (default): 1 failed"]


def test_a_file_of_the_project_that_is_named_like_a_module_is_not_what_the_sender_imports(
    sqlite_project: Project, webhook: Webhook
) -> None:
    for name in ("queue", "calendar", "apprise"):
        sqlite_project.write(f"{name}.py", "raise SystemExit('this is the project, not the module')\n")
    declare(sqlite_project, f"{{to: ['{webhook.address}'], gather: 1s}}")
    assert sqlite_project.dataflow("tick").returncode == 1
    wait_until(lambda: webhook.posted, "it was told")
    wait_until(lambda: all_sent(sqlite_project), "it was sent")


def test_an_smtp_server_that_hangs_delays_nobody(sqlite_project: Project, webhook: Webhook, start: Start) -> None:
    with Silence() as silent:
        to = f"{{to: ['{silent.address}', '{webhook.address}'], gather: 1s}}"
        declare(sqlite_project, to, jobs=3)
        worker = start(sqlite_project, "worker", "--slots", "1")
        wait_until(lambda: silent.connections, "a sender waits for the silent server")
        wait_until(lambda: webhook.posted, "the other address was told meanwhile")
        assert "SENDING" in states(sqlite_project)
        sqlite_project.write("ok", "")
        sqlite_project.sql("UPDATE job_status SET status = 'RESUBMIT'")
        wait_until(
            lambda: sqlite_project.sql("SELECT count(*) FROM job_status WHERE status = 'COMPLETE'") == [(3,)],
            "what came later has run",
        )
        worker.terminate()
        worker.communicate(timeout=60)
        assert worker.returncode == 0
        assert "SENDING" in states(sqlite_project)  # it still hangs; nobody waited for it
        end_sender(sqlite_project)


def test_a_sender_that_is_killed_leaves_the_message_to_another_once(sqlite_project: Project, webhook: Webhook) -> None:
    webhook.hold.clear()
    declare(sqlite_project, f"{{to: ['{webhook.address}'], gather: 1s}}")
    assert sqlite_project.dataflow("tick").returncode == 1
    wait_until(lambda: webhook.posted, "it is being sent")
    ((sender,),) = sqlite_project.sql("SELECT sender FROM alert_message")
    os.kill(int(re.search(r":(\d+) sender", sender)[1]), signal.SIGKILL)  # type: ignore[index]
    webhook.hold.set()
    assert states(sqlite_project) == ["SENDING"]
    sqlite_project.sql("UPDATE alert_message SET sender_until = '2020-01-01T00:00:00.000Z'")  # its time is over
    assert sqlite_project.dataflow("tick").returncode == 0
    wait_until(lambda: states(sqlite_project) == ["SENT"], "another has sent it")
    assert webhook.titles == ["shop (default): 1 failed"] * 2
    assert sqlite_project.sql("SELECT attempts, deaths FROM alert_message") == [(2, 1)]


# Secrets --------------------------------------------------------------------------------------------------------------
def test_no_address_is_in_the_store_the_logs_or_what_is_said(sqlite_project: Project, webhook: Webhook) -> None:
    sealed = encrypt("s3cr3t-of-the-file", PASSKEY)
    plain = webhook.address.replace("://", "://anna:s3cr3t-in-the-clear@")
    addresses = [
        plain, webhook.address.replace("/hook", "/${HOOK_TOKEN}"), f"{webhook.address}?+X-Key={sealed}",
        "json://127.0.0.1:9/s3cr3t-that-is-refused", "${WHOLE_ADDRESS}",
    ]  # fmt: skip
    env = {
        "HOOK_TOKEN": "s3cr3t-token",
        "DATAFLOW_PASSKEY": PASSKEY,
        "WHOLE_ADDRESS": f"{webhook.address}/s3cr3t-whole",
    }
    declare(sqlite_project, f"{{to: {addresses}, gather: 1s}}".replace("'", '"'))
    done = sqlite_project.dataflow("tick", env=env)
    wait_until(lambda: states(sqlite_project).count("SENT") == 4, "four were sent")
    wait_until(lambda: "WAITING" in states(sqlite_project), "one was refused")
    assert {"/hook", "/s3cr3t-token", "/hook/s3cr3t-whole"} <= set(webhook.paths)
    listed = sqlite_project.dataflow("notify", "list", env=env)
    tested = sqlite_project.dataflow("notify", "test", env=env)
    said = [done.stdout, done.stderr, listed.stdout, listed.stderr, tested.stdout, tested.stderr]
    assert tested.returncode == 1
    folder = Path(sqlite_project.store.removeprefix("sqlite:///")).parent
    files = [one for one in (*folder.rglob("*"), *(sqlite_project.folder / ".dataflow").rglob("*")) if one.is_file()]
    assert any(one.name == "state.db" for one in files)
    for one in files:
        assert b"s3cr3t" not in one.read_bytes(), one
    assert "s3cr3t" not in "".join(said)
    end_sender(sqlite_project)


def test_a_variable_that_is_missing_is_told_with_the_message(sqlite_project: Project) -> None:
    declare(sqlite_project, "{to: ['${NOBODY_SET_THIS}'], gather: 1s}")
    assert sqlite_project.dataflow("tick").returncode == 1
    wait_until(lambda: states(sqlite_project) == ["WAITING"], "it could not be sent")
    (message,) = sqlite_project.json("notify", "list")["messages"]
    assert "NOBODY_SET_THIS" in message["error"]
    end_sender(sqlite_project)


# Commands -------------------------------------------------------------------------------------------------------------
def test_notify_test_says_of_each_address_whether_it_went(sqlite_project: Project, webhook: Webhook) -> None:
    declare(sqlite_project, f"['{webhook.address}']")
    done = sqlite_project.dataflow("notify", "test")
    assert (done.returncode, done.stderr) == (0, "json (notify.0): it went\n")
    assert webhook.titles == ["shop (default): a test"]
    assert sqlite_project.dataflow("notify", "test", "job000").returncode == 0
    assert "the job job000" in webhook.posted[1]["message"]
    webhook.status = 500
    done = sqlite_project.dataflow("notify", "test")
    assert done.returncode == 1
    assert "it did not go: json://: Failed to send JSON" in done.stderr
    assert sqlite_project.dataflow("notify", "test", "job999").returncode == 2


def test_without_anybody_to_tell_it_says_how_to_name_somebody(sqlite_project: Project) -> None:
    declare(sqlite_project, "[]")
    done = sqlite_project.dataflow("notify", "test")
    assert (done.returncode, "give `notify: [mailto://" in done.stderr) == (2, True)
    assert "no message yet" in sqlite_project.dataflow("notify", "list").stderr


def test_where_apprise_is_missing_it_says_what_to_install(
    sqlite_project: Project, webhook: Webhook, tmp_path: Path
) -> None:
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "apprise.py").write_text("raise ImportError('not here')\n")
    declare(sqlite_project, f"['{webhook.address}']")
    done = sqlite_project.dataflow("notify", "test", env={"PYTHONPATH": str(tmp_path / "without")})
    assert done.returncode == 1
    assert "apprise is missing; pip install 'opendataflow[alerts]'" in done.stderr

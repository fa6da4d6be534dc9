"""`make demo`: a year of real flights goes through an outage and heals. Every command shown can be typed by hand.

python demo.py              # the year, into demo-work/ at the top of the repository
python demo.py --fortnight  # 14 days of it, as the tests do
"""

import datetime
import fcntl
import json
import os
import shutil
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from feed import FORTNIGHT, YEAR, package_data
from proof import prove
from stage import BIN, Stage

HERE = Path(__file__).resolve().parent
WORK = HERE.parent.parent / "demo-work"
NOT_COPIED = shutil.ignore_patterns("__pycache__", "demo.py", "stage.py", "proof.py", "README.md")
COUNTS = 'dataflow sql "select jobid, status, count(*) as dataids from job_status group by 1, 2"'


class Story:
    """The steps, in the order in which they are told."""

    def __init__(self, *, is_year: bool) -> None:
        self.plan = YEAR if is_year else FORTNIGHT
        self.months = 12 if is_year else 1
        short = {} if is_year else {"LAST_DAY": "2013-01-14", "LAST_MONTH": "2013-01"}
        self.stage = Stage(WORK, **short)
        self.type_along = " ".join((f"cd {WORK}; export PATH={BIN}:$PATH", *(f"{k}={v}" for k, v in short.items())))
        self.facts: dict[str, Any] = {}
        self.outage_at = self.url = self.link = ""

    # 1 --------------------------------------------------------------------------------------------------------------
    def lay_out(self) -> None:
        stage = self.stage
        stage.title("1. A project: three pipelines over the flights that left New York City in 2013")
        stage.say(f"Its folder is {WORK}. In another terminal you can type along:")
        stage.say(f"  {self.type_along}")
        stage.run("ls; ls pipelines/*")
        stage.run("python feed.py" + ("" if self.plan is YEAR else " fortnight"))
        self.facts = json.loads((WORK / "feed" / "facts.json").read_text())
        stage.run("dataflow apply 2>&1 | tail -1")
        stage.say("Registered: from now on the state of every day of every dataset is in .dataflow/state.db.")

    # 2 --------------------------------------------------------------------------------------------------------------
    def first_delivery(self) -> None:
        stage, facts = self.stage, self.facts
        stage.title(
            f"2. The first {facts['first']} daily files arrive. One is cut off, one is another day's, some are late"
        )
        stage.run(
            "mkdir -p data/flights && cp feed/planes.csv feed/airlines.csv data/ && cp feed/1/*.csv data/flights/"
        )
        time.sleep(1.1)  # `arrival: {stable: 1s}`
        stage.run("dataflow scan | grep -v ' READY'")
        stage.say("The two bad files are refused by their checks; the good ones are READY. What is known of the worst:")
        stage.run(f"dataflow why clean_flights {facts['cut_off']}")

    # 3 --------------------------------------------------------------------------------------------------------------
    def work_begins(self) -> None:
        stage, facts = self.stage, self.facts
        stage.title("3. A worker runs whatever is ready: Spark cleans the days and joins planes and airlines")
        self.worker = stage.start("dataflow worker --jobs clean_flights,monthly_delays", "worker.log")
        stage.say("Spark starts, then does 30 days in one job. Each day is checked and published by itself:")
        ready = facts["first"] - 2 - self._late_in(1)
        stage.follow("days are clean", lambda: stage.count("clean_flights", "COMPLETE"), ready)
        stage.say("No month was made of them yet: each of these lacks a day. Nobody had to say so.")

    def _first_of(self, delivery: int) -> str:
        return min(path.stem for path in (WORK / f"feed/{delivery}").iterdir())

    def _late_in(self, delivery: int) -> int:
        """How many of its days are missing in a delivery: they are late."""
        return int(self.facts[("first", "second")[delivery - 1]]) - len(list((WORK / f"feed/{delivery}").iterdir()))

    # 4 --------------------------------------------------------------------------------------------------------------
    def outage(self) -> None:
        stage = self.stage
        stage.title("4. A bad night: the list of airlines comes cut off, and then the machine loses its power")
        time.sleep(1.0)  # so that nothing of the good hours lies in the same second
        self.outage_at = datetime.datetime.now(datetime.UTC).strftime("%H:%M:%S")
        stage.run("cp feed/airlines_cut_off.csv data/airlines.csv && dataflow ready airlines full")
        stage.run("cp feed/2/*.csv data/flights/")
        stage.say("Flights of unknown airlines: the check `not_null: [airline]` stops each day before anybody sees it.")
        failed = self.facts["second"] - self._late_in(2)
        stage.follow("days FAILED", lambda: stage.count("clean_flights", "FAILED"), failed)
        stage.run("cp feed/3/*.csv data/flights/")
        stage.follow("Spark job is at work on more", lambda: min(stage.count("clean_flights", "RUNNING"), 1), 1)
        time.sleep(0.8 if self.plan is YEAR else 0.2)  # until it has claimed them all
        runners = stage.query("SELECT DISTINCT pid FROM run WHERE status = 'RUNNING'")
        stage.say("Now everything is killed: the worker, and the runner whose Spark is at work.")
        stage.kill(self.worker, *(int(pid) for (pid,) in runners))
        stage.run(COUNTS)
        stage.say(
            "RUNNING is what the dead were doing. Nothing of it was published: a day turns READY last, and at once."
        )
        stage.run(f"dataflow checks clean_flights {self._first_of(2)}", expect=13)

    # 5 --------------------------------------------------------------------------------------------------------------
    def heal(self) -> None:
        stage = self.stage
        stage.title("5. The morning after: the airlines are put right, and one command heals the night")
        stage.run("cp feed/airlines.csv data/airlines.csv && dataflow ready airlines full")
        stage.run(f"dataflow resubmit --outage {self.outage_at}..now --cascade 2>&1 | tail -2")
        stage.say("What failed is to be done again. What was killed goes back by itself, as soon as anybody looks.")
        stage.say("Meanwhile the rest of the year arrives:")
        stage.run("cp feed/4/*.csv data/flights/")
        self.worker = stage.start("dataflow worker", "worker.log")
        stage.say("The same call as every night. It does the lost, the failed and the new, oldest first:")
        bad = 2 + len(self.facts["late"])
        stage.follow("days are clean", lambda: stage.count("clean_flights", "COMPLETE"), self.facts["days"] - bad)
        stage.run("dataflow why")

    # 6 --------------------------------------------------------------------------------------------------------------
    def mended_files(self) -> None:
        stage, days, months = self.stage, self.facts["days"], self.months
        stage.title("6. The late files come, and the two bad ones are sent again as they should have been")
        stage.run("ls feed/5 && cp feed/5/*.csv data/flights/")
        stage.say("The worker still runs: it takes them in, cleans them, and makes the months that waited for them.")
        stage.follow("days are clean", lambda: stage.count("clean_flights", "COMPLETE"), days)
        stage.follow("months are summed up", lambda: stage.count("monthly_delays", "COMPLETE"), months)
        stage.run(f"dataflow why clean_flights {self.facts['cut_off']}", most_lines=40)
        stage.run("dataflow preview monthly_delays 2013-01 --rows 3")

    # 7 --------------------------------------------------------------------------------------------------------------
    def live(self) -> None:
        stage, facts = self.stage, self.facts
        stage.title(
            f"7. Live: the {facts['live']} departures of {facts['last_day']} one by one, over HTTP into a stream"
        )
        port = free_port()
        stage.start(f"dataflow serve --port {port}", "serve.log")
        self.url = stage.wait_for_text("serve.log", r"listening at (\S+)")
        self.link = stage.wait_for_text("serve.log", r"(http\S+/welcome/\S+)")
        send = f"dataflow stream send live_board feed/live.csv --url {self.url} --key new-years-eve"
        stage.export("DATAFLOW_STREAM_TOKEN", "dataflow stream token live_board")
        stage.run(send)
        stage.run(send)
        stage.say("Sent twice, as after a lost answer: by its key it was known. The worker publishes each item once:")
        live = "SELECT coalesce(sum(end_offset - start_offset), 0) FROM stream_batch b JOIN job_status s"
        done = f"{live} USING (project, jobid, dataid) WHERE s.status = 'COMPLETE'"
        stage.follow("live departures are published", lambda: int(stage.query(done)[0][0]), facts["live"])
        stage.run("dataflow preview departures_live --rows 3")

    # 8 --------------------------------------------------------------------------------------------------------------
    def look_back(self, started: float) -> None:
        stage = self.stage
        stage.title(
            "8. Is it all there? The state store is asked, and compared with the data as it was published in 2013"
        )
        stage.run(COUNTS)
        prove(stage, self.facts, self.months)
        stage.title(
            f"Done in {time.monotonic() - started:.0f} s: {self.facts['days']} days and {self.months} "
            f"{'months' if self.months > 1 else 'month'} through a bad night, all COMPLETE, in order, nothing lost and "
            "nothing published twice."
        )
        stage.say(f"What to type next ({self.type_along}):")
        for command, what in NEXT:
            stage.say(f"  {command:<58} # {what}")
        stage.say("Then: docs/tutorial.md, thirty minutes from an empty folder to a healed outage of your own.")

    def show_dashboard(self) -> None:
        """On a terminal only: the pages stay, with the worker beside them, until Ctrl-C."""
        if not self.stage.is_terminal:
            return
        self.stage.title(f"The dashboard is at {self.url}. This link lets you in as its first admin, once:")
        self.stage.say(self.link)
        self.stage.say("The worker goes on beside it. Ctrl-C ends both.")
        try:
            signal.pause()
        except KeyboardInterrupt:
            print(f"\nEnded. All of it is in {WORK}; `make demo` begins anew.")


NEXT = (
    ("dataflow status", "where everything stands"),
    ("dataflow runs --limit 5", "the latest runs"),
    ("dataflow lineage monthly_delays 2013-01", "what a month was made of, in which versions"),
    ("dataflow resubmit clean_flights 2013-01-02 --cascade", "do a day again; readers follow if it differs"),
    ("dataflow worker --once", "… and this does it, where no worker runs"),
    ("dataflow serve", "the dashboard again, when the demo is over"),
)


def free_port(wanted: int = 8321) -> int:
    """The usual port, or another one where that is taken."""
    for port in (wanted, 0):
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(one.getsockname()[1])
    raise OSError("no port is free")


def fresh_folder() -> None:
    """demo-work/ anew, unless a demo runs there now."""
    WORK.mkdir(exist_ok=True)
    lock = os.open(WORK.parent, os.O_RDONLY)  # stays open, and so locked, as long as this process lives
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit(f"Another demo runs in {WORK} now; end it with Ctrl-C first.")
    until = time.monotonic() + 20
    while WORK.exists() and time.monotonic() < until:  # a demo that was killed may still be writing its last
        shutil.rmtree(WORK, ignore_errors=True)
        time.sleep(0.1)
    shutil.copytree(HERE, WORK, ignore=NOT_COPIED)


def main() -> None:
    package_data()  # says what is missing before anything is begun
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        sys.exit("Java 17 or newer is needed for Spark: sudo apt-get install -y openjdk-17-jre-headless")
    started = time.monotonic()
    fresh_folder()
    story = Story(is_year="--fortnight" not in sys.argv[1:])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        story.lay_out()
        story.first_delivery()
        story.work_begins()
        story.outage()
        story.heal()
        story.mended_files()
        story.live()
        story.look_back(started)
        story.show_dashboard()
    except KeyboardInterrupt:
        print(f"\nEnded. What was made is in {WORK}; `make demo` begins anew.")
        sys.exit(130)
    finally:
        story.stage.stop()


if __name__ == "__main__":
    main()

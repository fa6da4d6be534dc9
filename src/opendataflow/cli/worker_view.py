"""What a worker shows: a live table on a terminal, lines elsewhere, JSON events for scripts."""

import json
import sys
import time
from typing import TYPE_CHECKING, Any

from opendataflow.cli.render import STYLES, put, say
from opendataflow.errors import StoreUnavailable
from opendataflow.runner.progress import Progress, Row, duration, line
from opendataflow.runner.report import line as outcome_line
from opendataflow.runner.runjob import Outcome
from opendataflow.store.loop import LoopStore
from opendataflow.store.tally import counts
from opendataflow.store.workers import list_limits

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

Key = tuple[str, str]
LIVE_SECONDS, LINE_SECONDS = 1.0, 10.0  # between two looks at the counts


class Lines:
    """Every failure as it comes, and how far it is every few seconds; `each`: every run."""

    every_seconds = LINE_SECONDS

    def __init__(self, project: str | None, *, jobs: tuple[str, ...] = (), each: bool = False) -> None:
        self._project, self._jobs, self._each = project, jobs, each
        self._progress = Progress()
        self._next = time.monotonic() + min(self.every_seconds, 3.0)
        self._was_busy = True
        self._shown = ""
        self._ran = self._failed = 0

    def say(self, text: str) -> None:
        say(text)

    def ended(self, key: Key, outcome: Outcome) -> None:
        """A run, or an attempt at one, is over."""
        self._ran += outcome.runid is not None
        self._failed += outcome.status == "FAILED" and outcome.runid is not None
        self.tell(key, outcome)

    def tell(self, _key: Key, outcome: Outcome) -> None:
        if self._each or outcome.status not in ("COMPLETE", "RESUBMIT") or outcome.runid is None:
            has_log = outcome.status == "FAILED" and outcome.runid is not None
            step = f"; `dataflow logs --run {outcome.runid}`" if has_log else ""
            self.say(outcome_line(outcome) + step)

    def changed(self, key: Key, limit: int | None, reason: str) -> None:
        becomes = f"is braked to {limit} at a time" if limit is not None else "is braked no longer"
        self.say(f"{key[1]} {becomes}: {reason}")

    def refresh(self, store: LoopStore, *, running: int, slots: int, is_busy: bool) -> None:
        now = time.monotonic()
        if now < self._next or not (is_busy or self._was_busy):
            return
        self._next, self._was_busy = now + self.every_seconds, is_busy
        try:
            self.show(self._rows(store, now), running=running, slots=slots)
        except StoreUnavailable:
            pass  # the worker itself says so

    def show(self, rows: list[Row], *, running: int, slots: int) -> None:
        told = line(rows)
        if told and told != self._shown:
            self._shown = told
            self.say(f"{running} of {slots} slots; {told}")

    def _rows(self, store: LoopStore, now: float) -> list[Row]:
        found = counts(store, project=self._project)["jobs"]
        if self._jobs:
            found = {name: of for name, of in found.items() if name.rpartition(".")[2] in self._jobs}
        limits = list_limits(store, project=self._project)
        brakes = {limit.jobid: limit.braked_to for limit in limits if limit.braked_to is not None}
        return self._progress.rows(found, now=now, brakes=brakes)

    def close(self) -> None:
        self.say(f"{self._ran} runs here, " + (f"{self._failed} of them failed" if self._failed else "none failed"))


class Events(Lines):
    """One JSON object a line: `ended`, `progress`, `limit`, `said`."""

    def say(self, text: str) -> None:
        self._put("said", text=text)

    def tell(self, key: Key, outcome: Outcome) -> None:
        fields = outcome._asdict()
        fields["verdict"] = outcome.verdict.as_json() if outcome.verdict else None
        self._put("ended", project=key[0], **fields)

    def changed(self, key: Key, limit: int | None, reason: str) -> None:
        self._put("limit", project=key[0], jobid=key[1], braked_to=limit, reason=reason)

    def show(self, rows: list[Row], *, running: int, slots: int) -> None:
        self._put("progress", running=running, slots=slots, jobs=[row._asdict() for row in rows])

    @staticmethod
    def _put(event: str, **fields: Any) -> None:
        put(json.dumps({"event": event, **fields}))
        sys.stdout.flush()


class Table(Lines):
    """A table that stays in its place on a terminal; failures and messages go by above it."""

    every_seconds = LIVE_SECONDS

    def __init__(self, project: str | None, *, jobs: tuple[str, ...] = ()) -> None:
        super().__init__(project, jobs=jobs)
        self._next = 0.0
        self._live: Live | None = None

    def say(self, text: str) -> None:
        if self._live is None:
            say(text)
            return
        from rich.text import Text

        self._live.console.print(Text(text))

    def show(self, rows: list[Row], *, running: int, slots: int) -> None:
        from rich.console import Console
        from rich.live import Live

        if self._live is None:
            self._live = Live(console=Console(stderr=True), auto_refresh=False, redirect_stdout=False)
            self._live.start()
        self._live.update(_table(rows, running=running, slots=slots), refresh=True)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
        super().close()


def _table(rows: list[Row], *, running: int, slots: int) -> "RenderableType":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable
    from rich.text import Text

    table = RichTable(
        title=f"{running} of {slots} slots at work here", title_justify="left", box=SIMPLE_HEAD, pad_edge=False
    )
    table.add_column("job")
    for name in ("done", "running", "failed", "held", "left", "per second", "done in", "braked to"):
        table.add_column(name, justify="right")
    for row in rows:
        rate = f"{row.rate:.1f}" if row.rate > 0 else ""
        eta = duration(row.eta_seconds) if row.eta_seconds is not None else ""
        cells = [
            (str(row.done), STYLES["COMPLETE"]),
            (str(row.running or ""), STYLES["RUNNING"]),
            (str(row.failed or ""), STYLES["FAILED"]),
            (str(row.held or ""), STYLES["HOLD"]),
            (str(row.left or ""), ""),
            (rate, ""),
            (eta, ""),
            ("" if row.braked_to is None else str(row.braked_to), STYLES["RESUBMIT"]),
        ]
        table.add_row(row.job, *(Text(text, style=style) for text, style in cells))
    return table


def new_view(project: str | None, *, as_json: bool, jobs: tuple[str, ...] = (), each: bool = False) -> Lines:
    """The view that fits where we write to."""
    if as_json:
        return Events(project, jobs=jobs)
    if sys.stderr.isatty() and not each:
        return Table(project, jobs=jobs)
    return Lines(project, jobs=jobs, each=each)

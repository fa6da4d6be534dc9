"""What a worker shows: a live table on a terminal, lines elsewhere, JSON events for scripts."""

import json
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from opendataflow.cli.paused import pause_of_all, until_text
from opendataflow.cli.render import STYLES, put_now, say
from opendataflow.domain.words import number_of
from opendataflow.errors import StoreUnavailable
from opendataflow.runner.progress import NOTHING, HeldUp, Progress, Row, duration, line
from opendataflow.runner.report import line as outcome_line
from opendataflow.runner.runjob import Outcome
from opendataflow.store.loop import LoopStore
from opendataflow.store.stuck import count_behind_failed, count_retried, list_closed
from opendataflow.store.tally import counts
from opendataflow.store.workers import list_limits

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

Key = tuple[str, str]
T = TypeVar("T")
LIVE_SECONDS, LINE_SECONDS = 1.0, 10.0  # between two looks at the counts
HELD_SECONDS = 10.0  # between two looks at what does not go on by itself, also while nothing runs
HELD_SHARE = 20  # and so many times as long as such a look took
HELD_ROWS = 5_000  # failed and waiting ones that it looks at: some hundredths of a second


class Lines:
    """Every failure as it comes, and how far it is every few seconds; `each`: every run."""

    every_seconds = LINE_SECONDS

    def __init__(self, project: str | None, *, jobs: tuple[str, ...] = (), each: bool = False) -> None:
        self._project, self._jobs, self._each = project, jobs, each
        self._progress = Progress()
        self._next = time.monotonic() + min(self.every_seconds, 3.0)
        self._was_busy = True
        self._shown = ""
        self._held_up, self._pause = NOTHING, ""
        self._next_held = 0.0
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
        now, is_resting = time.monotonic(), not (is_busy or self._was_busy)
        if now < (self._next_held if is_resting else self._next):
            return
        before = self._pause, self._held_up.reasons
        self._was_busy = is_busy
        if not is_resting:
            self._next = now + self.every_seconds
        try:
            if now >= self._next_held:
                self._look_what_is_held_up(store)
            if not is_resting or before != (self._pause, self._held_up.reasons):
                self.show(self._rows(store, now), running=running, slots=slots)
        except StoreUnavailable:
            pass  # the worker itself says so

    def show(self, rows: list[Row], *, running: int, slots: int) -> None:
        told = "; ".join(text for text in (line(rows), self._pause) if text)
        if told and told != self._shown:
            self._shown = told
            self.say(f"{running} of {number_of(slots, 'slot')}; {told}")

    def _look_what_is_held_up(self, store: LoopStore) -> None:
        started, project = time.monotonic(), self._project
        self._next_held = started + HELD_SECONDS
        self._pause = pause_of_all(store)
        reasons = {
            limit[:2]: f"paused by {limit.paused_by}{until_text(limit.paused_until)}"
            for limit in list_limits(store, project=project)
            if limit.paused_by is not None
        }
        for one in list_closed(store, project=project):
            reasons.setdefault((one.project, one.jobid), f"the limit of {one.limit_of} is 0")
        blocked = count_behind_failed(store, project=project, limit=HELD_ROWS)
        retrying = count_retried(store, project=project)
        self._held_up = HeldUp(_named(retrying), _named(blocked), _named(reasons))
        self._next_held += HELD_SHARE * (time.monotonic() - started)

    def _rows(self, store: LoopStore, now: float) -> list[Row]:
        found = counts(store, project=self._project)["jobs"]
        if self._jobs:
            found = {name: of for name, of in found.items() if name.rpartition(".")[2] in self._jobs}
        limits = list_limits(store, project=self._project)
        brakes = _named({limit[:2]: limit.braked_to for limit in limits if limit.braked_to is not None})
        return self._progress.rows(found, now=now, brakes=brakes, held_up=self._held_up)

    def close(self) -> None:
        failures = f"{self._failed} of them failed" if self._failed else "none failed"
        self.say(f"{number_of(self._ran, 'run')} here, {failures}")


def _named(of: Mapping[Key, T]) -> dict[str, T]:
    """By the names that the counts have: with their project where there are several."""
    return {name: value for (project, jobid), value in of.items() for name in (jobid, f"{project}.{jobid}")}


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
        jobs = [row._asdict() for row in rows]
        self._put("progress", running=running, slots=slots, paused=self._pause or None, jobs=jobs)

    @staticmethod
    def _put(event: str, **fields: Any) -> None:
        put_now(json.dumps({"event": event, **fields}))


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
        self._live.update(_table(rows, running=running, slots=slots, pause=self._pause), refresh=True)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
        super().close()


def _table(rows: list[Row], *, running: int, slots: int, pause: str) -> "RenderableType":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable
    from rich.text import Text

    title = Text(f"{running} of {number_of(slots, 'slot')} at work here")
    title.append(f"; {pause}" if pause else "", style=STYLES["HOLD"])
    table = RichTable(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("job")
    heads = ["done", "running", "failed", "held", "left", "per second", "done in", "braked to"]
    extra = [
        (head, [str(getattr(row, name) or "") for row in rows], style)
        for head, name, style in (
            ("to retry", "retrying", "RESUBMIT"), ("behind failed", "blocked", "FAILED"), ("", "reason", "HOLD")
        )
        if any(getattr(row, name) for row in rows)
    ]  # fmt: skip
    for name in (*heads, *(head for head, *_ in extra)):
        table.add_column(name, justify="right" if name else "left")
    for number, row in enumerate(rows):
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
            *((texts[number], STYLES[style]) for _, texts, style in extra),
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

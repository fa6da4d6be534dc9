"""What a worker shows: a live table on a terminal, lines elsewhere, JSON events for scripts."""

import json
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from opendataflow.cli.render import STYLES, put_now, say
from opendataflow.cli.workers.progress import Key, Looks, Onlooker, Seen
from opendataflow.domain.words import number_of
from opendataflow.execution.session import own_name
from opendataflow.execution.work import Outcome
from opendataflow.operations.progress import Row, duration, line
from opendataflow.project.address import Address
from opendataflow.scheduling.report import line as outcome_line
from opendataflow.store import open_store
from opendataflow.store.claims import LoopStore

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

LIVE_SECONDS, LINE_SECONDS = 1.0, 10.0  # between two looks at the counts


class Lines:
    """Every failure as it comes, and how far it is every few seconds."""

    tells_rest = False  # also of what is complete
    every_seconds = LINE_SECONDS

    def __init__(self, looks: Looks, open_store: Callable[[], LoopStore]) -> None:
        self.onlooker = Onlooker(looks, open_store, say=self.say)
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
        if outcome.status not in ("COMPLETE", "RESUBMIT") or outcome.runid is None:
            has_log = outcome.status == "FAILED" and outcome.runid is not None
            step = f"; `dataflow logs --run {outcome.runid}`" if has_log else ""
            self.say(outcome_line(outcome) + step)

    def changed(self, key: Key, limit: int | None, reason: str) -> None:
        self.say(braked_line(key, limit, reason))

    def refresh(self, *, running: int, slots: int, is_busy: bool) -> None:
        """Show what was seen, and have somebody look again when it is time; this never waits."""
        if self.onlooker.is_looking:
            return
        seen = self.onlooker.take()
        if seen is not None:
            self.show(seen, running=running, slots=slots)
        now, is_resting = time.monotonic(), not (is_busy or self._was_busy)
        if now < (self.onlooker.looks.next_held if is_resting else self._next):
            return
        self._was_busy = is_busy
        if not is_resting:
            self._next = now + self.every_seconds
        self.onlooker.ask(is_resting=is_resting)

    def show(self, seen: Seen, *, running: int, slots: int) -> None:
        told = "; ".join(text for text in (line(seen.rows), seen.pause) if text)
        if told and told != self._shown:
            self._shown = told
            self.say(f"{running} of {number_of(slots, 'slot')}; {told}")

    def close(self) -> None:
        self.onlooker.close()
        failures = f"{self._failed} of them failed" if self._failed else "none failed"
        self.say(f"{number_of(self._ran, 'run')} here, {failures}")


class Runs:
    """Every run and every message, as a drain without slots shows them; what could run no more comes last."""

    tells_rest = True

    def __init__(self, each: Callable[[Outcome], None]) -> None:
        self._each = each

    def say(self, text: str) -> None:
        say(text)

    def ended(self, _key: Key, outcome: Outcome) -> None:
        self._each(outcome)

    def changed(self, key: Key, limit: int | None, reason: str) -> None:
        say(braked_line(key, limit, reason))

    def refresh(self, *, running: int, slots: int, is_busy: bool) -> None:
        """How far it is shows in what has been said."""

    def close(self) -> None:
        pass


def braked_line(key: Key, limit: int | None, reason: str) -> str:
    becomes = f"is braked to {limit} at a time" if limit is not None else "is braked no longer"
    return f"{key[1]} {becomes}: {reason}"


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

    def show(self, seen: Seen, *, running: int, slots: int) -> None:
        jobs = [row._asdict() for row in seen.rows]
        self._put("progress", running=running, slots=slots, paused=seen.pause or None, jobs=jobs)

    @staticmethod
    def _put(event: str, **fields: Any) -> None:
        put_now(json.dumps({"event": event, **fields}))


class Table(Lines):
    """A table that stays in its place on a terminal; failures and messages go by above it."""

    every_seconds = LIVE_SECONDS

    def __init__(self, looks: Looks, open_store: Callable[[], LoopStore]) -> None:
        super().__init__(looks, open_store)
        self._next = 0.0
        self._live: Live | None = None
        self._slots = 0

    def say(self, text: str) -> None:
        if self._live is None:
            say(text)
            return
        from rich.text import Text

        self._live.console.print(Text(text))

    def show(self, seen: Seen, *, running: int, slots: int) -> None:
        from rich.console import Console
        from rich.live import Live

        self._slots = slots
        if self._live is None:
            self._live = Live(console=Console(stderr=True), auto_refresh=False, redirect_stdout=False)
            self._live.start()
        self._live.update(_table(seen.rows, running=running, slots=slots, pause=seen.pause), refresh=True)

    def close(self) -> None:
        seen = self.onlooker.last()
        if seen is not None and self._slots:
            self.show(seen, running=0, slots=self._slots)
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


def new_view(found: Address, *, as_json: bool, jobs: tuple[str, ...] = ()) -> Lines:
    """The view that fits where we write to."""
    looks = Looks(found.project, jobs=jobs)

    def open_it() -> LoopStore:
        return open_store(found.store, actor=own_name(), here=found.here)

    if as_json:
        return Events(looks, open_it)
    if sys.stderr.isatty():
        return Table(looks, open_it)
    return Lines(looks, open_it)

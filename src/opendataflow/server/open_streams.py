"""The streams that the server takes items for: what the store says of them, and their open logs."""

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

from opendataflow.domain.streams import KAFKA, Settings
from opendataflow.errors import DataflowError, StoreUnavailable
from opendataflow.intake.group import GroupWriter
from opendataflow.intake.log import Accepted, IntakeLog, Request
from opendataflow.intake.schema import StreamSchema
from opendataflow.store.claims import LoopStore
from opendataflow.store.records.streams import StreamRow, committed_end, find_stream, first_kept

FRESH_SECONDS = 1.0  # a revoked token is refused after that
NEW_SECONDS = 0.1  # a new one is known after that
AWAY_SECONDS = 60.0  # while the store is away, what it said last holds for so long
SLOW_SECONDS = 2.0  # a store that has not answered by then is away, as far as senders are concerned
UPKEEP_SECONDS = 60.0
MOST_KNOWN = 1000  # names that were asked for
_LOG = logging.getLogger("opendataflow.server")

_T = TypeVar("_T")
Answer = Accepted | Exception
Name = tuple[str | None, str]


class Facts(NamedTuple):
    """What the store said of a stream, and when."""

    row: StreamRow
    committed: int
    seen_at: float

    @property
    def settings(self) -> Settings:
        return self.row.settings


class Asking(NamedTuple):
    """A question to the store that is not answered yet."""

    answer: "asyncio.Task[Facts | None]"
    since: float


class Stream:
    """An open log with its schema."""

    def __init__(
        self, writer: "GroupWriter[asyncio.Future[Answer]]", settings: Settings, loop: asyncio.AbstractEventLoop
    ) -> None:
        """Of this loop: to ask which one runs costs a system call, and each request would."""
        self.writer, self._loop = writer, loop
        self.settings, self.schema = settings, StreamSchema(settings.schema)

    def use(self, settings: Settings) -> None:
        """Check items by these settings from now on."""
        if self.settings.schema != settings.schema:
            self.schema = StreamSchema(settings.schema)
        self.settings = settings

    async def append(self, request: Request) -> Answer:
        """Wait until the items are durable; what went wrong is the answer, not raised."""
        answer: asyncio.Future[Answer] = self._loop.create_future()
        self.writer.submit(request, answer)
        return await answer


class Streams:
    """Streams by name. Used from one event loop; the store and the disk are asked in threads."""

    def __init__(self, open_store: Callable[[], LoopStore], folder: Callable[[str, str], str]) -> None:
        """`open_store` is called in the thread that asks it; `folder` gives a stream's by project and slug."""
        self._open_store, self._folder = open_store, folder
        self._store: LoopStore | None = None
        self._asking = ThreadPoolExecutor(1, "store")
        self._opening = ThreadPoolExecutor(2, "logs")
        self._facts: dict[Name, Facts | float] = {}  # a number: when it was found that there is none
        self._refreshing: dict[Name, Asking] = {}
        self._streams: dict[tuple[str, str], Stream] = {}
        self._lock = asyncio.Lock()

    # What the store says --------------------------------------------------------------------------------------
    async def find(self, project: str | None, slug: str, *, within: float = FRESH_SECONDS) -> Facts | None:
        """What is known of the stream, at most so many seconds old; None when there is none.

        Raises StoreUnavailable when the store has been away for too long, UsageError when several projects have one.
        """
        name, now = (project, slug), time.monotonic()
        known = self._facts.get(name)
        facts = known if isinstance(known, Facts) else None
        age = now - (known if isinstance(known, float) else known.seen_at) if known is not None else float("inf")
        if age < within / 2:
            return facts
        asking = self._refreshing.get(name) or self._begin_refresh(name, now)
        if age < within:
            return facts  # the answer is there before anybody must wait for it
        if facts is None or age >= AWAY_SECONDS:
            return await asyncio.shield(asking.answer)
        await asyncio.wait({asking.answer}, timeout=max(0.0, asking.since + SLOW_SECONDS - now))
        is_away = not asking.answer.done() or isinstance(asking.answer.exception(), StoreUnavailable)
        return facts if is_away else asking.answer.result()

    def _begin_refresh(self, name: Name, now: float) -> Asking:
        asking = self._refreshing[name] = Asking(asyncio.create_task(self._refresh(name)), now)

        def ended(answer: "asyncio.Task[Facts | None]") -> None:
            self._refreshing.pop(name, None)
            _ = answer.cancelled() or answer.exception()  # whoever waits is told; nobody may

        asking.answer.add_done_callback(ended)
        return asking

    async def _refresh(self, name: Name) -> Facts | None:
        found = await self._ask(lambda store: _read_facts(store, *name))
        if len(self._facts) >= MOST_KNOWN:
            self._facts.clear()
        self._facts[name] = found if found is not None else time.monotonic()
        return found

    async def _ask(self, question: Callable[[LoopStore], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._asking, self._answer, question)

    def _answer(self, question: Callable[[LoopStore], _T]) -> _T:
        if self._store is None:
            self._store = self._open_store()
        try:
            return question(self._store)
        except StoreUnavailable:
            store, self._store = self._store, None
            store.close()
            raise

    # Their logs -----------------------------------------------------------------------------------------------
    async def get(self, facts: Facts) -> Stream:
        """The stream, its log open; what project.yml says of its items is looked at anew when it has changed."""
        row = facts.row
        found = self._streams.get((row.project, row.jobid))
        if found is None:
            found = await self._open(facts)
        if found.settings is not facts.settings:  # read anew; to compare them is dear, too
            found.use(facts.settings)
        return found

    async def _open(self, facts: Facts) -> Stream:
        row, loop = facts.row, asyncio.get_running_loop()

        def deliver(answers: list[tuple["asyncio.Future[Answer]", Answer]]) -> None:
            loop.call_soon_threadsafe(_resolve, answers)

        def opened() -> Stream:
            log = IntakeLog(self._folder(row.project, row.jobid), begin=facts.committed)
            return Stream(GroupWriter(log, deliver), facts.settings, loop)

        async with self._lock:
            found = self._streams.get((row.project, row.jobid))
            if found is None:
                found = await loop.run_in_executor(self._opening, opened)
                self._streams[row.project, row.jobid] = found
        return found

    async def keep_up(self) -> None:
        """Remove what retention says, every minute, until cancelled."""
        while True:
            await asyncio.sleep(UPKEEP_SECONDS)
            for (project, slug), stream in list(self._streams.items()):
                try:
                    await self._upkeep(project, slug, stream)
                except (OSError, DataflowError) as error:  # the next round finds the same segments
                    if not isinstance(error, StoreUnavailable):
                        _LOG.error("%s: what retention says was not removed: %s", slug, error)

    async def _upkeep(self, project: str, slug: str, stream: Stream) -> None:
        kept = await self._ask(lambda store: first_kept(store, store.get_job(slug, project=project)))
        before = time.time() - stream.settings.retention_seconds
        log = stream.writer.log
        await asyncio.get_running_loop().run_in_executor(self._opening, lambda: log.drop(committed=kept, before=before))

    async def close(self) -> None:
        """Make durable what waits, and close the logs."""
        loop = asyncio.get_running_loop()
        for stream in self._streams.values():
            await loop.run_in_executor(self._opening, stream.writer.close)
        await loop.run_in_executor(self._asking, self._close_store)
        self._asking.shutdown()
        self._opening.shutdown()

    def _close_store(self) -> None:
        if self._store is not None:
            self._store.close()


def takes_items(settings: Settings) -> bool:
    """Whether items can be sent to it; those of Kafka are read where they are."""
    return KAFKA not in settings.source


def _read_facts(store: LoopStore, project: str | None, slug: str) -> Facts | None:
    row = find_stream(store, slug, project=project)
    if row is None:
        return None
    job = store.get_job(slug, project=row.project)
    return Facts(row, committed_end(store, job), time.monotonic())


def _resolve(answers: "list[tuple[asyncio.Future[Answer], Answer]]") -> None:
    for future, answer in answers:
        if not future.done():  # its caller may have gone
            future.set_result(answer)

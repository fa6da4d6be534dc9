"""The team's store: PostgreSQL. Claim and finish are one function call each; leases use the database's clock."""

import json
import random
import select
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg.adapt import Loader
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.string import TextLoader

from opendataflow.domain.dataset import Dataset
from opendataflow.domain.job import Candidate, Job
from opendataflow.domain.runs.ending import decide_ends
from opendataflow.domain.runs.questions import Verdict
from opendataflow.domain.runs.run import Claim, Finished, LostRun, Owner, Result
from opendataflow.errors import ConfigurationError, LeaseLost, StoreUnavailable, UsageError
from opendataflow.store.base import READ_ONLY, without_password
from opendataflow.store.claims import LoopStore, Next
from opendataflow.store.postgres_calls import claim_request, claimed, find_end, finish_request, finished
from opendataflow.store.rows import (
    Params,
    Row,
    claim_key,
    lease_lost,
    new_candidate,
)
from opendataflow.store.statements import statements

CONNECT_SECONDS = 10
STATEMENT_SECONDS = 30
SILENT_SECONDS = STATEMENT_SECONDS + 5.0  # by then a server that is there has said something
TRIES = 10  # of a transaction that clashes with others
CLASH_SECONDS = 0.001  # the longest pause after the first clash; doubled for each more
IDLE_SECONDS = 10  # between two statements of a transaction
# How soon a line that is cut is noticed; an address that names them has its own.
LINE = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 20_000}
_T = TypeVar("_T")
_CLASHES = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)


class _UtcText(Loader):
    """timestamptz as the text that all stores show: 2025-11-12T02:10:00.123Z (the session's zone is UTC)."""

    def load(self, data: Any) -> str:
        text = bytes(data).decode()
        head, _, rest = text.partition("+")[0].partition(".")
        return f"{head.replace(' ', 'T')}.{rest[:3]:0<3}Z"


class _Connection(psycopg.Connection[Any]):
    """Does not wait for ever for a server that fell silent: a host behind a dead line, a stopped process."""

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        start = time.monotonic()
        try:
            return super().wait(gen, interval=interval, timeout=SILENT_SECONDS if timeout is None else timeout)
        except psycopg.OperationalError:
            if timeout is None and time.monotonic() - start >= SILENT_SECONDS:
                self.pgconn.finish()  # its answer, if it ever comes, is nobody's
                raise psycopg.OperationalError(f"no answer within {SILENT_SECONDS:g} s") from None
            raise


class _PostgresTransaction:
    def __init__(self, connection: "psycopg.Connection[Any]", named: dict[str, str]) -> None:
        self._connection = connection
        self._named = named

    def run(self, name: str, params: Params) -> int:
        return self._connection.execute(self._named[name], params).rowcount

    def run_many(self, name: str, params: list[Params]) -> None:
        if params:
            with self._connection.cursor() as cursor:
                cursor.executemany(self._named[name], params)  # without waiting for each answer

    def rows(self, name: str, params: Params) -> list[Row]:
        return self._connection.execute(self._named[name], params).fetchall()

    def next_token(self) -> int:
        return int(self.rows("next_token", {})[0][0])


class PostgresStore(LoopStore):
    dialect = "postgres"

    def __init__(self, url: str, *, actor: str, clock: Callable[[], float]) -> None:
        super().__init__(actor=actor, clock=clock)
        self.url = without_password(url)
        self._address = url
        self._open: psycopg.Connection[Any] | None = None
        self._cursor: psycopg.Cursor[Any] | None = None
        self._listens: psycopg.Connection[Any] | None = None
        self._news = False
        self._hears: psycopg.Connection[Any] | None = None
        self._aborts = False
        try:
            asked = conninfo_to_dict(url)
            self._options = str(asked.get("options") or "")
            self._line: dict[str, Any] = {name: value for name, value in LINE.items() if name not in asked}
        except psycopg.ProgrammingError:  # its text may repeat a piece of the password
            raise ConfigurationError(
                "the store's address is not one that PostgreSQL understands; "
                "special characters of a password are percent-encoded"
            ) from None
        with self._explained():
            self._connected()

    def _connected(self, *, read_only: bool = False) -> "psycopg.Connection[Any]":
        if self._open is not None and not self._open.closed and not read_only:
            return self._open
        # Settings travel with the connection request: no round trip of their own.
        settings = {
            "dataflow.actor": self.actor,
            "timezone": "UTC",
            "statement_timeout": str(STATEMENT_SECONDS * 1000),
            # Ours are short: one that waits for us was stopped, or cut off, and must not keep others waiting.
            "idle_in_transaction_session_timeout": str(IDLE_SECONDS * 1000),
            "default_transaction_read_only": "on" if read_only else "off",
        }
        if not read_only:
            # Plans live as long as the session: made on a small table, they must still seek in a large one.
            settings |= {"enable_seqscan": "off", "jit": "off", "plan_cache_mode": "force_generic_plan"}
        connection = _Connection.connect(
            self._address,
            autocommit=True,
            connect_timeout=CONNECT_SECONDS,
            **self._line,
            application_name=f"dataflow {self.actor}"[:63],
            options=" ".join([self._options, *(f"-c {name}={_escaped(value)}" for name, value in settings.items())]),
            prepare_threshold=1,
        )
        connection.adapters.register_loader("timestamptz", _UtcText)
        connection.adapters.register_loader("json", TextLoader)
        if not read_only:
            self._open = connection
        return connection

    def close(self) -> None:
        if self._open is not None:
            self._open.close()

    def sign(self, actor: str) -> None:
        super().sign(actor)
        with self._explained():
            self._connected().execute(statements("postgres", "accounts")["sign"], {"actor": actor})

    def time(self, seconds_from_now: float = 0.0) -> Any:
        return seconds_from_now  # statements add it to the database's clock

    def read(self, name: str, params: Params, *, file: str = "claims") -> list[Row]:
        with self._explained():
            return self._connected().execute(statements("postgres", file)[name], params).fetchall()

    @contextmanager
    def transaction(self, *, file: str = "claims", actor: str | None = None) -> Iterator[_PostgresTransaction]:
        hot = statements("postgres", "claims")
        named = hot if file == "claims" else {**hot, **statements("postgres", file)}
        with self._explained():
            connection = self._connected()
            with connection.transaction():
                if actor is not None:
                    connection.execute(hot["act_as"], {"actor": actor})
                yield _PostgresTransaction(connection, named)

    @contextmanager
    def bare_transaction(self) -> Iterator[_PostgresTransaction]:
        with self._explained():
            connection = self._connected()
            with connection.transaction():
                yield _PostgresTransaction(connection, statements("postgres", "registry"))

    def script(self, sql: str) -> None:
        with self._explained():
            self._connected().execute(sql)

    def select(self, sql: str) -> tuple[list[str], list[Row]]:
        with self._explained(), self._connected(read_only=True) as connection:
            try:
                # Prepared: the protocol then takes one statement only.
                cursor = connection.execute(sql, prepare=True)
                columns = [column.name for column in cursor.description or ()]
                return columns, cursor.fetchall() if columns else []
            except psycopg.errors.Error as error:
                if isinstance(error, psycopg.OperationalError) and connection.closed:
                    raise
                hint = READ_ONLY if isinstance(error, psycopg.errors.ReadOnlySqlTransaction) else ""
                raise UsageError(f"PostgreSQL says: {error}{hint}") from error

    def integrity(self) -> list[str]:
        return []  # PostgreSQL checks its own pages

    # News of work ---------------------------------------------------------------------------------------------
    def has_news(self) -> bool:
        with self._explained():
            self._hear(self._listening())
        found, self._news = self._news, False
        return found

    def wait_for_news(self, seconds: float, wake_fd: int | None = None) -> bool:
        if self.has_news():
            return True
        with self._explained():
            said = self._listening().fileno()
        readable, _, _ = select.select([said] if wake_fd is None else [said, wake_fd], [], [], max(seconds, 0.0))
        return said in readable and self.has_news()

    def news_fd(self) -> int | None:
        with self._explained():
            return self._listening().fileno()

    def _listening(self) -> "psycopg.Connection[Any]":
        """The connection, listening; what was said before it did is news, as nobody heard it."""
        connection = self._connected()
        if self._listens is not connection:
            connection.add_notify_handler(self._told)
            connection.execute(statements("postgres", "workers")["listen"])
            self._listens, self._news = connection, True
        return connection

    def hears_of_aborts(self) -> bool:
        with self._explained():
            connection = self._connected()
            if self._hears is not connection:
                connection.add_notify_handler(self._told)
                connection.execute(statements("postgres", "requests")["listen_for_aborts"])
                self._hears, self._aborts = connection, True
            self._hear(connection)
        found, self._aborts = self._aborts, False
        return found

    def _told(self, notify: "psycopg.Notify") -> None:
        self._note(notify.channel)

    def _note(self, channel: str) -> None:
        if channel == "dataflow_abort":
            self._aborts = True
        else:
            self._news = True

    def _hear(self, connection: "psycopg.Connection[Any]") -> None:
        """Take what has come since the last statement; a connection that was cut raises."""
        if select.select([connection.fileno()], [], [], 0)[0]:
            connection.pgconn.consume_input()
            while (notify := connection.pgconn.notifies()) is not None:
                self._note(notify.relname.decode())

    # The hot verbs, each one round trip ------------------------------------------------------------------------
    def _facts(self, _job: Job, row: Row, _of_dataid: Params) -> list[Row]:
        return json.loads(row[8])  # type: ignore[no-any-return]

    def claim(
        self, job: Job, candidate: Candidate, verdict: Verdict, owner: Owner, *, forced: bool = False
    ) -> Claim | None:
        wanted = Next(job, candidate, verdict, owner, forced)
        return claimed(wanted, self._call("claim", claim_request(wanted)))

    def finish(self, claim: Claim, result: Result) -> Finished:
        ends = decide_ends(claim, result.ending)
        result = self.stored_result(result)
        return finished(claim, ends, self._call("finish", finish_request(claim, result, ends)))

    def finish_and_claim(self, claim: Claim, result: Result, wanted: Next) -> tuple[Finished, Claim | None]:
        ends, result = decide_ends(claim, result.ending), self.stored_result(result)
        row = self._call("finish_and_claim", (*finish_request(claim, result, ends), *claim_request(wanted)))
        return finished(claim, ends, row[:2]), claimed(wanted, row[2:])

    def finish_and_claim_many(
        self, ends: Sequence[tuple[Claim, Result]], wanted: Sequence[Next]
    ) -> tuple[list[Finished | LeaseLost], list[Claim | None]]:
        if not ends and not wanted:
            return [], []
        ends = [(claim, self.stored_result(result)) for claim, result in ends]
        decided = [decide_ends(claim, result.ending) for claim, result in ends]
        # Two publishers move the counters of the same consumers in the same order, or they would wait for each other.
        order = sorted(range(len(ends)), key=lambda at: ends[at][0].dataid)
        requests = [finish_request(*ends[at], decided[at])[0] for at in order]
        claims = (f"[{claim}, {json.dumps(answers)}]" for claim, answers in map(claim_request, wanted))
        params = (_array(requests), _array(claims))
        sql = statements("postgres", "claims")["finish_and_claim_many"]
        rows = self.again(lambda: self._hot_cursor().execute(sql, params).fetchall())
        ended: list[Finished | LeaseLost] = [lease_lost(claim) for claim, _ in ends]
        for at, row in zip(order, rows, strict=False):
            ended[at] = find_end(ends[at][0], decided[at], row[:2])
        return ended, [claimed(one, row[2:]) for one, row in zip(wanted, rows[len(ends) :], strict=True)]

    def renew_many(self, beats: Sequence[tuple[Claim, str | None, str | None]]) -> list[LeaseLost | None]:
        if not beats:
            return []
        held = [
            {**claim_key(claim), "lease": claim.lease_seconds, "log_path": path, "log_tail": tail}
            for claim, path, tail in beats
        ]
        rows = self.again(lambda: self.read("renew_many", {"beats": json.dumps(held)}, file="workers"))
        kept = {row[0] for row in rows}
        return [None if claim.runid in kept else lease_lost(claim) for claim, _, _ in beats]

    def list_claimable_all(
        self, jobs: Sequence[Job], per_job: int, *, ending: Mapping[tuple[str, str], int] | None = None
    ) -> dict[tuple[str, str], list[Candidate]]:
        known = {(job.project, job.jobid): job for job in jobs}
        asked = [{"project": key[0], "jobid": key[1], "ending": (ending or {}).get(key, 0)} for key in known]
        found: dict[tuple[str, str], list[Candidate]] = {}
        params = {"jobs": json.dumps(asked), "limit": per_job}
        for project, jobid, earlier, *row in self.read("claimable_of_all", params) if asked else []:
            job = known[project, jobid]
            facts = self._facts(job, row, {})
            candidate = new_candidate(job, row, facts, whole_location=self.whole_location, earlier=earlier)
            found.setdefault((project, jobid), []).append(candidate)
        return found

    # Clashes of the slower verbs are done again too.
    def wake_parked(self) -> None:
        self.again(super().wake_parked)

    def expect(self, job: Job, dataids: Iterable[str]) -> None:
        names = list(dataids)
        self.again(lambda: super(PostgresStore, self).expect(job, names))

    def expect_one(self, job: Job, dataid: str) -> None:
        self.again(lambda: super(PostgresStore, self).expect_one(job, dataid))

    def skip_missed(self, job: Job, latest: str) -> int:
        return self.again(lambda: super(PostgresStore, self).skip_missed(job, latest))

    def map_new(self, job: Job, *, limit: int = 1000) -> None:
        self.again(lambda: super(PostgresStore, self).map_new(job, limit=limit))

    def open_slots(self, dataset: Dataset, names: Iterable[str]) -> int:
        names = list(names)
        return self.again(lambda: super(PostgresStore, self).open_slots(dataset, names))

    def recount(self, job: Job, dataid: str | None = None) -> None:
        self.again(lambda: super(PostgresStore, self).recount(job, dataid))

    def refuse(self, job: Job, dataid: str, verdict: Verdict, *, park: bool) -> None:
        self.again(lambda: super(PostgresStore, self).refuse(job, dataid, verdict, park=park))

    def renew(self, claim: Claim, *, log_path: str | None = None, log_tail: str | None = None) -> None:
        self.again(lambda: super(PostgresStore, self).renew(claim, log_path=log_path, log_tail=log_tail))

    def recover(self, lost: LostRun, *, host: str, note: str) -> bool:
        return self.again(lambda: super(PostgresStore, self).recover(lost, host=host, note=note))

    def _call(self, name: str, params: tuple[str, ...]) -> Row:
        sql = statements("postgres", "claims")[name]
        return self.again(lambda: self._hot_cursor().execute(sql, params).fetchone() or ())

    def _hot_cursor(self) -> "psycopg.Cursor[Any]":
        """One cursor for all hot calls: making one costs as much as sending one."""
        connection = self._connected()
        if self._cursor is None or self._cursor.connection is not connection:
            self._cursor = connection.cursor()
        return self._cursor

    def again(self, action: Callable[[], _T]) -> _T:
        """Do it, and after a clash with another transaction once more: the database undid all of it.

        What still clashes after TRIES is a StoreUnavailable: no caller sees a deadlock.
        """
        for attempt in range(TRIES):
            try:
                with self._explained():
                    return action()
            except _CLASHES as error:
                if attempt == TRIES - 1:
                    raise StoreUnavailable(f"the store {self.url} is too busy: {TRIES} tries clashed") from error
                time.sleep(random.uniform(0.0, CLASH_SECONDS * 2**attempt))  # noqa: S311
        raise AssertionError

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except _CLASHES:
            raise
        except (psycopg.errors.DuplicateTable, psycopg.errors.InvalidSchemaName) as error:
            raise ConfigurationError(
                f"{self.url}: {error.diag.message_primary}; the store needs a schema of its own "
                "(CREATE SCHEMA …), apart from the tables of the original OpenDataFlow"
            ) from error
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise StoreUnavailable(f"the store {self.url} cannot be used: {reason}") from error


def _array(texts: Iterable[str]) -> str:
    return f"[{', '.join(texts)}]"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace(" ", "\\ ")

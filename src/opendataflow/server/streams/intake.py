"""`POST /v1/streams/PIPELINE`: items in, their ids back once they are durable."""

import asyncio
import logging
import time
from collections.abc import Iterable

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from opendataflow.domain.streams import event_id
from opendataflow.errors import ConfigurationError, DataflowError, StoreUnavailable, UsageError
from opendataflow.intake.entry import check_key
from opendataflow.intake.log import Accepted
from opendataflow.intake.log import Request as Append
from opendataflow.intake.refusals import ItemsRefused, LogFull, NotJson
from opendataflow.server.open_streams import NEW_SECONDS, Facts, Stream, Streams, takes_items
from opendataflow.server.problems import problem
from opendataflow.store.records.streams import is_token

LINES = ("application/x-ndjson", "application/ndjson", "application/jsonl")
JSON = ("application/json", "")
LARGE = 1 << 18  # a body of so many bytes is parsed in a thread, so that the others need not wait
PARSED_AT_ONCE = 2  # large bodies: what is made of one may take thirty times its size
MOST_HELD = 256 << 20  # bytes of bodies in memory, also of those that have come in part
TOO_MUCH = "too much is being sent at once; send it again"
MOST_IDS = 1000  # that are written out one by one
RETRY_SECONDS = "5"
SILENCE_SECONDS = 10.0  # after what is not well has been logged
_LAST = [f"{number:03d}" for number in range(1000)]  # digits of a number
_PREFIX = "/v1/streams/"
_JSON_TYPE = (b"content-type", b"application/json")
_LOG = logging.getLogger("opendataflow.server")


Headers = dict[bytes, str]


class _Refused(Exception):
    """An answer that ends the request."""

    def __init__(self, answer: Response) -> None:
        self.answer = answer


def refused(status: int, detail: str, **more: object) -> _Refused:
    return _Refused(problem(status, detail, **more))  # type: ignore[arg-type]


class _Gone(Exception):
    """The sender went away before all of its body had come."""


class Intake:
    """An ASGI application of its own. Its routes are open: each stream has a token."""

    is_open = True

    def __init__(self, streams: Streams, project: str | None) -> None:
        """Of these streams; an address without a project means this one."""
        self.streams, self.project = streams, project
        self._held = 0
        self._parsing = asyncio.Semaphore(PARSED_AT_ONCE)
        self._told_at: dict[str, float] = {}

    def routes(self) -> Iterable[Route]:
        """What it answers to, for whoever asks which addresses and methods there are."""
        for names in ("{pipeline}", "{project}/{pipeline}"):
            yield Route(_PREFIX + names, self, methods=["POST"])

    def is_for(self, scope: Scope) -> bool:
        """Whether the request brings items."""
        return scope["type"] == "http" and scope["method"] == "POST" and _find_name(scope["path"]) is not None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take in the items of a request, all of them or none."""
        try:
            answer = await self._answer(scope, receive)
        except Exception:
            await problem(500, "an internal error; see the server's log")(scope, receive, send)
            raise
        if isinstance(answer, Response):
            await answer(scope, receive, send)
        elif answer:
            headers = [_JSON_TYPE, (b"content-length", b"%d" % len(answer))]
            await send({"type": "http.response.start", "status": 202, "headers": headers})
            await send({"type": "http.response.body", "body": answer})

    async def _answer(self, scope: Scope, receive: Receive) -> bytes | Response:
        """What the sender is told: the body of a 202, or a refusal. Nothing: the sender is gone."""
        held = 0
        try:
            headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
            facts = await self._authorized(scope["path"], headers)
            lines = _is_lines(headers)
            key = headers.get(b"idempotency-key")
            if key is not None:
                check_key(key)
            body = await self._read_body(receive, headers, facts.settings.body_bytes)
            held = len(body)
            stream = await self.streams.get(facts)
            if held < LARGE:
                items = stream.schema.parse(body, lines=lines)
            else:
                async with self._parsing:
                    items = await run_in_threadpool(stream.schema.parse, body, lines=lines)
            _check_backlog(stream, facts, items.count)
            answer = await stream.append(Append(items.data, items.count, key))
            if isinstance(answer, Exception):
                raise answer
            return _accepted(facts.row.jobid, answer)
        except _Refused as error:
            return error.answer
        except _Gone:
            return b""
        except ItemsRefused as error:
            errors = [{"index": one.index, "field": one.field, "reason": one.reason} for one in error.problems]
            return problem(422, str(error), errors=errors)
        except NotJson as error:
            return problem(400, str(error))
        except LogFull as error:
            return self._not_now("the disk is full", error, status=507)
        except ConfigurationError as error:
            return self._not_now("the store does not fit", error)
        except UsageError as error:
            return problem(422, str(error))
        except StoreUnavailable as error:
            return self._not_now("the store cannot be reached", error)
        except (OSError, DataflowError) as error:
            return self._not_now("the log cannot be written", error)
        finally:
            self._held -= held

    def _not_now(self, what: str, error: Exception, *, status: int = 503) -> Response:
        """What is not well here is for the operator to read, and for the sender to wait for."""
        now = time.monotonic()
        if now - self._told_at.get(what, -SILENCE_SECONDS) >= SILENCE_SECONDS:
            self._told_at[what] = now
            _LOG.error("%s: %s: %s", what, type(error).__name__, error)
        return _later(status, f"{what}; nothing was accepted, send it again")

    async def _authorized(self, path: str, headers: Headers) -> Facts:
        """What is known of the stream that the request may write to."""
        scheme, _, token = headers.get(b"authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            detail = (
                "give the stream's token: `Authorization: Bearer TOKEN`; `dataflow stream token PIPELINE` makes one"
            )
            raise _Refused(problem(401, detail, headers={"WWW-Authenticate": "Bearer"}))
        named, slug = _find_name(path) or (None, "")
        project = named or self.project
        facts = await self.streams.find(project, slug)
        if facts is None or not is_token(facts.row, token.strip()):
            facts = await self.streams.find(project, slug, within=NEW_SECONDS)  # it may be new
        if facts is None or not is_token(facts.row, token.strip()):
            # Whoever has no token does not learn which streams there are.
            detail = f"there is no stream {slug!r} with this token; `dataflow stream status` lists streams, "
            raise refused(403, f"{detail}`dataflow stream token {slug}` makes a new token")
        if not takes_items(facts.settings):
            raise refused(404, f"{slug!r} takes no items: it reads them from {facts.settings.origin}")
        return facts

    async def _read_body(self, receive: Receive, headers: Headers, most: int) -> bytes:
        """The whole body, which counts as held from its first bytes on until the caller lets it go."""
        told = headers.get(b"content-length", "")
        expected = int(told) if told.isdecimal() and len(told) < 20 else 0
        too_large = f"the body has more than {most:,} bytes; send fewer items at once"
        if expected > most:
            raise refused(413, too_large)
        if self._held + expected > MOST_HELD:
            raise _Refused(_later(503, TOO_MUCH))
        parts: list[bytes] = []
        size, more = 0, True
        try:
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise _Gone
                parts.append(message.get("body", b""))
                size, more = size + len(parts[-1]), message.get("more_body", False)
                self._held += len(parts[-1])
                if size > most:
                    raise refused(413, too_large)
                if self._held > MOST_HELD:
                    raise _Refused(_later(503, TOO_MUCH))
            return parts[0] if len(parts) == 1 else b"".join(parts)
        except BaseException:
            self._held -= size
            raise


def _find_name(path: str) -> tuple[str | None, str] | None:
    """The project, if it is named, and the pipeline of `/v1/streams/[PROJECT/]PIPELINE`; None for other addresses."""
    if not path.startswith(_PREFIX):
        return None
    first, slash, second = path[len(_PREFIX) :].partition("/")
    if not first or "/" in second or bool(slash) != bool(second):
        return None
    return (first, second) if slash else (None, first)


def _is_lines(headers: Headers) -> bool:
    """Whether the body is one object a line; refuses what is neither that nor JSON."""
    told, _, parameters = headers.get(b"content-type", "").partition(";")
    kind = told.strip().lower()
    charset = parameters.strip().lower().replace('"', "")
    if headers.get(b"content-encoding", "identity").lower() != "identity":
        raise refused(415, "compressed bodies are not taken; send the items as they are")
    if kind not in (*JSON, *LINES) or (charset.startswith("charset=") and charset != "charset=utf-8"):
        raise refused(415, f"send {JSON[0]} or {LINES[0]}, in UTF-8; this is {told.strip()[:100]!r}")
    return kind in LINES


def _check_backlog(stream: Stream, facts: Facts, count: int) -> None:
    waiting = stream.writer.log.end - facts.committed
    if waiting + count > facts.settings.backlog:
        detail = f"{waiting:,} items wait for being processed, and at most {facts.settings.backlog:,} may"
        raise _Refused(_later(429, f"{detail}; send it later, or see `dataflow stream status {facts.row.jobid}`"))


def _accepted(slug: str, answer: Accepted) -> bytes:
    first, last = event_id(slug, answer.first), event_id(slug, answer.end - 1)
    repeated = ', "repeated": true' if answer.repeated else ""
    ids = f', "ids": [{_ids(slug, answer.first, answer.end)}]' if answer.count <= MOST_IDS else ""
    # A slug needs no escape.
    text = f'{{"count": {answer.count}, "first": "{first}", "last": "{last}"{repeated}{ids}}}'
    return text.encode()


def _ids(slug: str, first: int, end: int) -> str:
    """`"leads-1000", "leads-1001"`: put together from what is there, since there may be hundreds in an answer."""
    if first < len(_LAST):
        return ", ".join(f'"{event_id(slug, number)}"' for number in range(first, end))
    parts = []
    while first < end:
        head, last = divmod(first, len(_LAST))
        upto = min(last + end - first, len(_LAST))
        begin = f'"{event_id(slug, head)}'
        parts.append(begin + f'", {begin}'.join(_LAST[last:upto]) + '"')
        first += upto - last
    return ", ".join(parts)


def _later(status: int, detail: str) -> Response:
    return problem(status, detail, headers={"Retry-After": RETRY_SECONDS})

"""Every route has an owner: the least role that may call it. What declares none is not served at all.

    @router.get("/runs")
    async def runs(user: Viewer, context: Ctx) -> …

A browser brings a session's cookie, and with everything that changes something the session's CSRF token, in the header
`X-CSRF-Token` or the form field `csrf`. A script brings `Authorization: Bearer TOKEN`.
"""

import hmac
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote

from fastapi import Depends, FastAPI
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from opendataflow.server.context import Context, get_context
from opendataflow.server.stores import Stores
from opendataflow.store.records.accounts import Role, find_session, find_token, touch_session, touch_token
from opendataflow.store.records.streams import hash_token

COOKIE = "dataflow_session"
SAFE = ("GET", "HEAD", "OPTIONS")
OUTSIDE = ("cross-site", "same-site")  # how browsers say that a request did not come from a page of ours
KNOWN_SECONDS = 0.9  # for which whoever was let in is known: what is taken away holds within a second
MOST_KNOWN = 1000
STRANGE = "the page is too old, or this did not come from one of ours; load it again"


class User(NamedTuple):
    name: str
    role: Role
    csrf: str = ""  # empty: it came with a token
    session: str = ""  # the id of its session
    tokenid: int | None = None

    def may(self, role: Role) -> bool:
        return self.role >= role

    @property
    def actor(self) -> str:
        """As the history names who did it."""
        return f"{self.name} (web)" if self.csrf else f"{self.name} (api)"


class NotSignedIn(Exception):
    """A page was asked for without a session: the browser is sent to the login, and back to `then` afterwards."""

    def __init__(self, then: str) -> None:
        self.then = then


class Known:
    """Who was let in a moment ago, so that pages which ask often do not ask the store each time."""

    def __init__(self) -> None:
        self._users: dict[str, tuple[float, User]] = {}

    def find(self, name: str) -> User | None:
        seen_at, user = self._users.get(name, (0.0, None))
        return user if time.monotonic() - seen_at < KNOWN_SECONDS else None

    def keep(self, name: str, user: User, asked_at: float) -> None:
        """`asked_at`: when the store was asked; it may have taken a while to answer."""
        if len(self._users) >= MOST_KNOWN:
            self._users.clear()
        self._users[name] = (asked_at, user)

    def forget(self) -> None:
        """Something has changed: the store is asked again."""
        self._users.clear()


async def find_user(request: Request, context: Context) -> User | None:
    """Whoever the request comes from; None: nobody we know."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    is_token = scheme.lower() == "bearer"
    secret = token.strip() if is_token else request.cookies.get(COOKIE)
    if not secret:
        return None
    known: Known = request.app.state.known
    name = f"{is_token} {hash_token(secret)}"
    user = known.find(name)
    if user is None:
        asked_at = time.monotonic()
        user = await (_of_token if is_token else _of_session)(context.stores, name, secret)
        if user is not None:
            known.keep(name, user, asked_at)
    return user


async def _of_token(stores: Stores, name: str, token: str) -> User | None:
    found = await stores.ask(lambda store: find_token(store, token))
    if found is None:
        return None
    if found.is_stale:
        stores.note(name, lambda store: touch_token(store, found.tokenid))
    return User(found.username, found.role, tokenid=found.tokenid)


async def _of_session(stores: Stores, name: str, secret: str) -> User | None:
    found = await stores.ask(lambda store: find_session(store, secret))
    if found is None:
        return None
    if found.is_stale:
        stores.note(name, lambda store: touch_session(store, secret))
    return User(found.username, found.role, found.csrf, found.id)


class Owner:
    """The dependency that lets in whoever has the role, or more."""

    def __init__(self, role: Role) -> None:
        self.role = role

    async def __call__(self, request: Request) -> User:
        user = await self.let_in(request)
        if user.csrf and request.method not in SAFE:
            await check_csrf(request, user.csrf)
        return user

    async def let_in(self, request: Request) -> User:
        """Whoever has the role; the body of the request is not read."""
        user = await find_user(request, get_context(request))
        if user is None:
            if _path(request).startswith(("/v1/", "/metrics")) or request.method not in SAFE:
                detail = "sign in, or give a token: `Authorization: Bearer TOKEN`; `dataflow token new` makes one"
                raise HTTPException(401, detail, headers={"WWW-Authenticate": "Bearer"})
            then = _path(request) + (f"?{request.url.query}" if request.url.query else "")
            raise NotSignedIn(quote(then, safe="/"))
        if not user.may(self.role):
            raise HTTPException(403, f"this needs the role {self.role.word}, and {user.name} is {user.role.word}")
        return user


def _path(request: Request) -> str:
    """The address without a proxy's part."""
    return request.url.path.removeprefix(request.scope.get("root_path", "")) or "/"


async def check_csrf(request: Request, expected: str) -> None:
    """Refuse what another site has a browser send: it does not know what our pages know."""
    given = request.headers.get("x-csrf-token", "")
    if not given and "form" in request.headers.get("content-type", ""):
        given = str((await request.form()).get("csrf", ""))
    is_ours = hmac.compare_digest(given.encode(), expected.encode())
    if not is_ours or request.headers.get("sec-fetch-site") in OUTSIDE:
        raise HTTPException(403, STRANGE)


def local(path: str) -> str:
    """A page of ours to go on with: never an address elsewhere, however a browser reads it."""
    is_ours = path.startswith("/") and not path.startswith("//") and "\\" not in path and path.isprintable()
    return path if is_ours else "/"


Viewer = Annotated[User, Depends(Owner(Role.VIEWER))]
Operator = Annotated[User, Depends(Owner(Role.OPERATOR))]
Admin = Annotated[User, Depends(Owner(Role.ADMIN))]


def open_to_all(endpoint: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Mark a route that nobody owns: the login, health, and what checks a token of its own."""
    endpoint.is_open = True  # type: ignore[attr-defined]
    return endpoint


def owners(app: FastAPI) -> Iterator[tuple[str, str, str]]:
    """Every route: method, path, and the role it needs ("everybody" for open ones). Raises for one without an owner."""
    for route in app.routes:
        if isinstance(route, Mount):
            yield "GET", f"{route.path}/…", "everybody"
            continue
        if not isinstance(route, Route | APIRoute):
            raise TypeError(f"{route} is neither a route nor a folder of files")
        role = _owner_of(route)
        for method in sorted((route.methods or set()) - {"HEAD"}):
            yield method, route.path, role


def ask_first(app: FastAPI) -> None:
    """Ask who it is before anything is read of what they send: nobody learns whether it was well-formed."""
    for route in app.routes:
        if isinstance(route, APIRoute) and (found := _owners(route)):
            route.app = _asking(route.app, max(found, key=lambda one: one.role))


def _asking(inner: ASGIApp, owner: Owner) -> ASGIApp:
    async def asking(scope: Scope, receive: Receive, send: Send) -> None:
        await owner.let_in(Request(scope))
        await inner(scope, receive, send)

    return asking


def _owners(route: APIRoute) -> list[Owner]:
    return [one.call for one in route.dependant.dependencies if isinstance(one.call, Owner)]


def _owner_of(route: Route | APIRoute) -> str:
    if isinstance(route, APIRoute):
        found = _owners(route)
        if found:
            return max(one.role for one in found).word
    if getattr(route.endpoint, "is_open", False):
        return "everybody"
    raise TypeError(f"{route.path} says nobody may call it: give it an owner")

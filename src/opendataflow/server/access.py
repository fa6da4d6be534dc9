"""Every route has an owner: the least role that may call it. What declares none is not served at all.

    @router.get("/runs")
    async def runs(user: Viewer, context: Ctx) -> …

A browser brings a session's cookie, and with everything that changes something the session's CSRF token, in the header
`X-CSRF-Token` or the form field `csrf`. A script brings `Authorization: Bearer TOKEN`.
"""

import hmac
from collections.abc import Awaitable, Callable, Iterator
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote

from fastapi import Depends, FastAPI
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Mount, Route

from opendataflow.server.context import Context, get_context
from opendataflow.store.accounts import Role, find_session, find_token

COOKIE = "dataflow_session"
SAFE = ("GET", "HEAD", "OPTIONS")


class User(NamedTuple):
    name: str
    role: Role
    csrf: str = ""  # empty: it came with a token

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


async def find_user(request: Request, context: Context) -> User | None:
    """Whoever the request comes from; None: nobody we know."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        found = await context.stores.ask(lambda store: find_token(store, token.strip()))
        return User(*found) if found else None
    secret = request.cookies.get(COOKIE)
    if not secret:
        return None
    session = await context.stores.ask(lambda store: find_session(store, secret))
    return User(session.username, session.role, session.csrf) if session else None


class Owner:
    """The dependency that lets in whoever has the role, or more."""

    def __init__(self, role: Role) -> None:
        self.role = role

    async def __call__(self, request: Request) -> User:
        user = await find_user(request, get_context(request))
        if user is None:
            if _path(request).startswith("/v1/") or request.method not in SAFE:
                detail = "sign in, or give a token: `Authorization: Bearer TOKEN`; `dataflow token new` makes one"
                raise HTTPException(401, detail, headers={"WWW-Authenticate": "Bearer"})
            then = _path(request) + (f"?{request.url.query}" if request.url.query else "")
            raise NotSignedIn(quote(then, safe="/?=&"))
        if not user.may(self.role):
            raise HTTPException(403, f"this needs the role {self.role.word}, and {user.name} is {user.role.word}")
        if user.csrf and request.method not in SAFE:
            await _check_csrf(request, user)
        return user


def _path(request: Request) -> str:
    """The address without a proxy's part."""
    return request.url.path.removeprefix(request.scope.get("root_path", "")) or "/"


async def _check_csrf(request: Request, user: User) -> None:
    given = request.headers.get("x-csrf-token", "")
    if not given and "form" in request.headers.get("content-type", ""):
        given = str((await request.form()).get("csrf", ""))
    if not hmac.compare_digest(given.encode(), user.csrf.encode()):
        raise HTTPException(403, "the page is too old, or this did not come from one of ours; load it again")


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


def _owner_of(route: Route | APIRoute) -> str:
    if isinstance(route, APIRoute):
        found = [one.call.role for one in route.dependant.dependencies if isinstance(one.call, Owner)]
        if found:
            return max(found).word
    if getattr(route.endpoint, "is_open", False):
        return "everybody"
    raise TypeError(f"{route.path} says nobody may call it: give it an owner")

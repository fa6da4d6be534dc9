"""Signing in and out: the login, and links that let somebody choose a password.

Whoever is not signed in yet has no session to take a CSRF token from: these pages give a random cookie, and their forms
send what is made of it. So no other site can sign a browser in as somebody else.
"""

import secrets
from typing import Any, NamedTuple

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from opendataflow.errors import UsageError
from opendataflow.server.access import COOKIE, User, Viewer, check_csrf, find_user, local, open_to_all
from opendataflow.server.accounts.passwords import Passwords, TooBusy, is_outdated, why_weak
from opendataflow.server.context import Context, Ctx
from opendataflow.server.problems import NotThere
from opendataflow.server.templates import private, render
from opendataflow.store.claims import LoopStore
from opendataflow.store.records.accounts import (
    MOST_SECONDS,
    as_username,
    close_session,
    csrf_of,
    end_sessions,
    find_account,
    open_session,
    record_action,
    replace_password,
)
from opendataflow.store.records.login_links import GONE, Link, LinkGone, find_link, use_link
from opendataflow.store.records.logins import DEVICE_SECONDS, Attempt, TooManyAttempts, begin_attempt, succeed

GUEST, DEVICE = "dataflow_guest", "dataflow_device"
MOST_BODY = 16 << 10
WRONG = "this user name and password do not belong together"
router = APIRouter(include_in_schema=False)


class Proved(NamedTuple):
    """An account whose password was given."""

    username: str
    password_hash: str
    attempt: Attempt


# Cookies --------------------------------------------------------------------------------------------------------------
def set_cookie(request: Request, answer: Response, name: str, value: str, seconds: float, site: Any = "lax") -> None:
    """One that scripts cannot read, for our part of the host only, and over https only where we are told so."""
    context: Context = request.app.state.context
    answer.set_cookie(
        name, value, max_age=int(seconds), path=request.scope.get("root_path", "") or "/", httponly=True,
        secure=context.is_secure, samesite=site,
    )  # fmt: skip


def drop_cookie(request: Request, answer: Response, name: str) -> None:
    set_cookie(request, answer, name, "", 0)


def as_guest(request: Request, template: str, *, status: int = 200, **facts: Any) -> Response:
    """A page for somebody who is not signed in, with the cookie that its form is checked by."""
    secret = request.cookies.get(GUEST) or secrets.token_urlsafe(32)
    answer = render(request, template, user=None, status=status, csrf=csrf_of(secret), **facts)
    set_cookie(request, answer, GUEST, secret, 86_400, site="strict")
    return private(answer)


async def read_guest(request: Request) -> dict[str, str]:
    """The fields of a guest's form; 403 unless it is one of ours."""
    length = request.headers.get("content-length", "")
    if not length.isdecimal() or int(length) > MOST_BODY:
        raise HTTPException(413, "this form is too long")
    guest = request.cookies.get(GUEST)
    if not guest:
        raise HTTPException(403, "the browser sent no cookie back: let it keep ours, and where we say so come by https")
    await check_csrf(request, csrf_of(guest))
    return {name: str(value) for name, value in (await request.form()).items()}


def address_of(request: Request) -> str:
    return request.client.host if request.client else ""


# Login ----------------------------------------------------------------------------------------------------------------
@router.get("/login")
@open_to_all
async def login_page(request: Request, context: Ctx) -> Response:
    then = local(request.query_params.get("then", "/"))
    if await find_user(request, context) is not None:
        return RedirectResponse(request.scope.get("root_path", "") + then, 303)
    return as_guest(request, "login.html", then=then, username="", wrong="")


@router.post("/login")
@open_to_all
async def login(request: Request, context: Ctx) -> Response:
    form = await read_guest(request)
    then, typed = local(form.get("then", "/")), form.get("username", "")

    def again(status: int, wrong: str) -> Response:
        return as_guest(request, "login.html", status=status, then=then, username=typed, wrong=wrong)

    try:
        proved = await prove(request, context, typed, form.get("password", ""))
        if proved is None:
            return again(401, WRONG)
        return await _signed_in(request, context, proved, then)
    except TooManyAttempts as error:
        answer = again(429, str(error))
        answer.headers["Retry-After"] = str(error.seconds)
        return answer
    except TooBusy:
        answer = again(503, "many are signing in just now; try again in a moment")
        answer.headers["Retry-After"] = "2"
        return answer


async def prove(request: Request, context: Context, username: str, password: str) -> Proved | None:
    """The account, if this is its password. Takes as long, and counts as much, where there is no such account."""
    passwords: Passwords = request.app.state.passwords
    name, device = as_username(username), request.cookies.get(DEVICE, "")
    address = address_of(request)
    attempt = await context.stores.ask(
        lambda store: begin_attempt(store, name or username, address, device), writes=True
    )
    account = await context.stores.ask(lambda store: find_account(store, name or ""))
    known = account.password_hash if account else None
    is_right = await passwords.is_right(known, password)
    if account is None or known is None or not is_right or account.disabled_at is not None:
        return None
    if is_outdated(known):
        fresh, was = await passwords.hash(password), known
        if await context.stores.ask(
            lambda s: replace_password(s, account.username, was=was, password_hash=fresh), writes=True
        ):
            known = fresh
    return Proved(account.username, known, attempt)


async def _signed_in(request: Request, context: Context, proved: Proved, then: str) -> Response:
    """A new session, never one that the browser came with."""
    name, was = proved.username, request.cookies.get(COOKIE)
    address, agent = address_of(request), request.headers.get("user-agent", "")

    def sign_in(store: LoopStore) -> tuple[str, str]:
        secret = open_session(store, name, password_hash=proved.password_hash, address=address, agent=agent)
        if was:
            close_session(store, was)
        record_action(store, name, "sign-in", name, {"address": address})
        return secret, succeed(store, proved.attempt, name)

    secret, device = await context.stores.ask(sign_in, actor=f"{name} (web)")
    answer = private(RedirectResponse(request.scope.get("root_path", "") + then, 303))
    set_cookie(request, answer, COOKIE, secret, MOST_SECONDS)
    set_cookie(request, answer, DEVICE, device, DEVICE_SECONDS)
    drop_cookie(request, answer, GUEST)
    return answer


@router.post("/logout")
async def logout(request: Request, user: Viewer, context: Ctx) -> Response:
    """End this session; with `everywhere` all of the account's."""
    check_person(user)
    secret = request.cookies.get(COOKIE, "")
    form = await request.form()

    def sign_out(store: LoopStore) -> None:
        if form.get("everywhere"):
            end_sessions(store, user.name)
        close_session(store, secret)
        record_action(store, user.name, "sign-out", user.name, {"everywhere": bool(form.get("everywhere"))})

    await context.stores.ask(sign_out, actor=user.actor)
    answer = private(RedirectResponse(request.scope.get("root_path", "") + "/login", 303))
    drop_cookie(request, answer, COOKIE)
    return answer


def check_person(user: User) -> None:
    """What only somebody at a browser does: not whoever got hold of a token."""
    if not user.csrf:
        raise HTTPException(403, "a token cannot do this: sign in")


# Links ----------------------------------------------------------------------------------------------------------------
async def _get_link(context: Context, secret: str) -> Link:
    link = await context.stores.ask(lambda store: find_link(store, secret))
    if link is None:
        raise NotThere(GONE)
    return link


@router.get("/welcome/{secret}")
@open_to_all
async def welcome_page(request: Request, secret: str, context: Ctx) -> Response:
    """Looking uses nothing up: programs that read mail look, too."""
    link = await _get_link(context, secret)
    return as_guest(request, "welcome.html", link=link, username=link.username, wrong="")


@router.post("/welcome/{secret}")
@open_to_all
async def welcome(request: Request, secret: str, context: Ctx) -> Response:
    form = await read_guest(request)
    link = await _get_link(context, secret)
    typed = link.username or form.get("username", "")

    def again(status: int, wrong: str) -> Response:
        return as_guest(request, "welcome.html", status=status, link=link, username=typed, wrong=wrong)

    name, password = as_username(typed), form.get("password", "")
    if name is None:
        return again(422, "a user name has letters, digits and . _ @ + -, at most 64, a letter or digit first")
    if weak := why_weak(password, name):
        return again(422, weak)
    if password != form.get("again", ""):
        return again(422, "the two passwords differ")
    passwords: Passwords = request.app.state.passwords
    try:
        hashed = await passwords.hash(password)
    except TooBusy:
        return again(503, "many are signing in just now; try again in a moment")

    def choose(store: LoopStore) -> Attempt:
        used = use_link(store, secret, username=name, password_hash=hashed)
        record_action(store, name, "link-used", name, {"kind": used.kind, "role": used.role.word})
        return Attempt("", (), "")

    try:
        attempt = await context.stores.ask(choose, actor=f"{name} (web)")
    except LinkGone as error:
        raise NotThere(str(error)) from None
    except UsageError as error:
        return again(409, str(error))
    return await _signed_in(request, context, Proved(name, hashed, attempt), "/")

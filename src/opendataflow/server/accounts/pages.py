"""One's own account; for admins, all of them; and what was done by whom."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from opendataflow.server.access import COOKIE, Admin, Operator, User, Viewer
from opendataflow.server.accounts.login import DEVICE, check_person, prove, set_cookie
from opendataflow.server.accounts.passwords import Passwords, TooBusy, why_weak
from opendataflow.server.context import Context, Ctx
from opendataflow.server.templates import render, with_said
from opendataflow.store.claims import LoopStore
from opendataflow.store.records.accounts import (
    list_accounts,
    list_actions,
    list_sessions,
    list_tokens,
    record_action,
    replace_password,
)
from opendataflow.store.records.login_links import list_links
from opendataflow.store.records.logins import DEVICE_SECONDS, TooManyAttempts, succeed

PAGE = 100
router = APIRouter(include_in_schema=False)


@router.get("/account")
async def account_page(request: Request, user: Viewer, context: Ctx) -> Response:
    return await _account(request, user, context)


async def _account(request: Request, user: User, context: Context, *, status: int = 200, wrong: str = "") -> Response:
    sessions = await context.stores.ask(lambda store: list_sessions(store, user.name))
    tokens = await context.stores.ask(lambda store: list_tokens(store, username=user.name))
    return render(
        request, "account.html", user=user, status=status, sessions=sessions, tokens=tokens, wrong=wrong
    )  # fmt: skip


@router.post("/account/password")
async def change_password(request: Request, user: Viewer, context: Ctx) -> Response:
    """Another password, for whoever knows the one before; the account's other sessions end."""
    check_person(user)
    form = {name: str(value) for name, value in (await request.form()).items()}
    fresh = form.get("password", "")
    weak = why_weak(fresh, user.name) or ("the two passwords differ" if fresh != form.get("again", "") else None)
    if weak:
        return await _account(request, user, context, status=422, wrong=weak)
    passwords: Passwords = request.app.state.passwords
    try:
        proved = await prove(request, context, user.name, form.get("current", ""))
        hashed = await passwords.hash(fresh) if proved else ""
    except TooManyAttempts as error:
        answer = await _account(request, user, context, status=429, wrong=str(error))
        answer.headers["Retry-After"] = str(error.seconds)
        return answer
    except TooBusy:
        return await _account(request, user, context, status=503, wrong="too much is going on; try again in a moment")
    if proved is None:
        return await _account(request, user, context, status=403, wrong="this is not your password of now")
    secret, was, attempt = request.cookies.get(COOKIE, ""), proved.password_hash, proved.attempt

    def change(store: LoopStore) -> str | None:
        if not replace_password(store, user.name, was=was, password_hash=hashed, keep=secret):
            return None
        record_action(store, user.name, "password", user.name, {})
        return succeed(store, attempt, user.name)

    device = await context.stores.ask(change, actor=user.actor)
    if device is None:
        return await _account(request, user, context, status=409, wrong="the password was changed elsewhere just now")
    told = with_said("/account", user, "your password is changed; other browsers are signed out")
    answer = RedirectResponse(request.scope.get("root_path", "") + told, 303)
    set_cookie(request, answer, DEVICE, device, DEVICE_SECONDS)
    return answer


@router.get("/users")
async def users_page(
    request: Request, user: Admin, context: Ctx, after: Annotated[str, Query(max_length=64)] = ""
) -> Response:
    found = await context.stores.ask(lambda store: list_accounts(store, after=after, limit=PAGE + 1))
    links = await context.stores.ask(list_links)
    tokens = await context.stores.ask(lambda store: list_tokens(store, username=None, limit=PAGE))
    more = found[PAGE - 1].username if len(found) > PAGE else ""
    return render(request, "users.html", user=user, accounts=found[:PAGE], more=more, links=links, tokens=tokens)


@router.get("/actions-log")
async def actions_page(
    request: Request, user: Operator, context: Ctx, by: Annotated[str, Query(max_length=64)] = "",
    before: Annotated[int | None, Query(ge=1, le=1 << 62)] = None,
) -> Response:  # fmt: skip
    found = await context.stores.ask(
        lambda store: list_actions(store, username=by or None, before=before, limit=PAGE + 1)
    )
    more = found[PAGE - 1].id if len(found) > PAGE else None
    return render(request, "actions_log.html", user=user, actions=found[:PAGE], more=more, by=by)

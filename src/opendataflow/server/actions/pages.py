"""The confirmation of an action: what will happen, then yes or no. It works without scripts, too."""

from typing import Any

from fastapi import APIRouter
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from opendataflow.errors import DataflowError, StoreUnavailable
from opendataflow.server.access import Owner, User, Viewer, local
from opendataflow.server.action import Acting, Action, Asked, Done, Plan
from opendataflow.server.actions.registry import ACTIONS
from opendataflow.server.cached import forget
from opendataflow.server.context import Context, Ctx
from opendataflow.server.templates import private, render, with_said
from opendataflow.store.records.accounts import record_action

router = APIRouter(include_in_schema=False)
OURS = ("csrf", "then")


def get_action(name: str, user: User) -> Action[Any]:
    """The action, for whoever may do it."""
    found = ACTIONS.get(name)
    if found is None:
        raise HTTPException(404, f"there is no action {name!r}; there are {', '.join(sorted(ACTIONS))}")
    if not user.may(found.role):
        raise HTTPException(403, f"{name} needs the role {found.role.word}, and {user.name} is {user.role.word}")
    return found


def read_asked(action: Action[Any], given: Any) -> Asked:
    """What was asked for, or 422 with each field and reason."""
    try:
        asked: Asked = action.model.model_validate(given)
    except ValidationError as error:
        raise HTTPException(422, "; ".join(told(error))) from None
    return asked


def told(error: ValidationError) -> list[str]:
    return [f"{'.'.join(map(str, one['loc'])) or 'the body'}: {one['msg']}" for one in error.errors()]


def grouped(pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """The fields of a form or a query: what comes several times is a list; what is empty was not given."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in OURS or value == "":
            continue
        found[name] = value if name not in found else [*(_listed(found[name])), value]
    return found


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


async def plan_of(context: Context, user: User, action: Action[Any], asked: Asked) -> Plan:
    def describe(store: Any) -> Plan:
        return action.describe(Acting(store, context.address, user), asked)

    return await context.stores.ask(describe, actor=user.actor)


async def do(context: Context, user: User, action: Action[Any], asked: Asked) -> Done:
    """Do it, and write down who did it."""

    def perform(store: Any) -> Done:
        done = action.perform(Acting(store, context.address, user), asked)
        record_action(store, user.name, action.name, done.target, asked.model_dump(exclude=set(action.secret)))
        return done

    try:
        return await context.stores.ask(perform, actor=user.actor)
    finally:
        forget(context.stores)


@router.get("/actions/{name}")
async def confirm(request: Request, name: str, user: Viewer, context: Ctx) -> Response:
    action = get_action(name, user)
    pairs = request.query_params.multi_items()
    given = grouped(pairs)
    plan = await plan_of(context, user, action, read_asked(action, given))
    asks = {field.name for field in plan.fields}
    kept = [(key, value) for key, value in pairs if key not in OURS and key not in asks and value != ""]
    return render(
        request, "action.html", user=user, action=action, plan=plan, fields=plan.fields, given=kept,
        then=local(request.query_params.get("then", "/")),
    )  # fmt: skip


@router.post("/actions/{name}")
async def perform(request: Request, name: str, user: Viewer, context: Ctx) -> Response:
    action = get_action(name, user)
    form = await request.form()
    pairs = [(key, str(value)) for key, value in form.multi_items()]
    then = local(str(form.get("then", "/")))
    asked = read_asked(action, grouped(pairs))
    try:
        done = await do(context, user, action, asked)
    except StoreUnavailable:
        raise
    except DataflowError as error:
        plan = Plan(f"{error}", possible=False)
        return render(
            request, "action.html", user=user, status=409, action=action, plan=plan, fields=(), given=(), then=then
        )
    target = local(done.then or then)
    if done.once:
        shown = render(
            request, "once.html", user=user, action=action, says=done.says, once=once_of(request, done), then=target
        )
        return private(shown)
    base = request.scope.get("root_path", "")
    return RedirectResponse(base + with_said(target, user, done.says), 303)


def once_of(request: Request, done: Done) -> str:
    """The secret as it is shown: a page of ours with its whole address."""
    if not done.once.startswith("/"):
        return done.once
    base = str(request.base_url).rstrip("/")
    context: Context = request.app.state.context
    return (f"https:{base.partition(':')[2]}" if context.is_secure else base) + done.once


__all__ = ["Owner", "do", "get_action", "once_of", "plan_of", "read_asked", "router"]

"""`POST /v1/actions/NAME`: do it; `POST /v1/actions/NAME/plan`: only say what would happen."""

from typing import Any

from fastapi import APIRouter, Body
from pydantic import BaseModel
from starlette.requests import Request

from opendataflow.server.access import Viewer
from opendataflow.server.actions.pages import do, get_action, once_of, plan_of, read_asked
from opendataflow.server.actions.registry import ACTIONS
from opendataflow.server.context import Ctx

router = APIRouter(tags=["actions"])


class Described(BaseModel):
    name: str
    title: str
    role: str
    asks: dict[str, Any]  # JSON Schema


class Planned(BaseModel):
    says: str
    possible: bool
    heads: list[str]
    rows: list[list[Any]]


class Performed(BaseModel):
    says: str
    result: Any
    once: str | None = None  # a secret that is told this once


@router.get("/v1/actions")
async def list_actions(user: Viewer) -> list[Described]:
    """The actions that the caller may do, with what each asks for."""
    return [
        Described(name=one.name, title=one.title, role=one.role.word, asks=one.model.model_json_schema())
        for one in ACTIONS.values()
        if user.may(one.role)
    ]


@router.post("/v1/actions/{name}/plan")
async def plan(name: str, user: Viewer, context: Ctx, asked: dict[str, Any] = Body()) -> Planned:  # noqa: B008
    """What the action would do now; nothing is changed."""
    action = get_action(name, user)
    found = await plan_of(context, user, action, read_asked(action, asked))
    return Planned(
        says=found.says, possible=found.possible, heads=list(found.heads), rows=[list(row) for row in found.rows]
    )


@router.post("/v1/actions/{name}")
async def perform(
    request: Request, name: str, user: Viewer, context: Ctx, asked: dict[str, Any] = Body()  # noqa: B008
) -> Performed:  # fmt: skip
    """Do the action."""
    action = get_action(name, user)
    done = await do(context, user, action, read_asked(action, asked))
    return Performed(says=done.says, result=done.result, once=once_of(request, done) or None)

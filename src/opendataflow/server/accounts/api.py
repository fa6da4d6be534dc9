"""`/v1/me`, `/v1/users`, `/v1/tokens`, `/v1/actions-log`: who there is, and what they did. Changes are actions."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel

from opendataflow.server.access import Admin, Operator, Viewer
from opendataflow.server.context import Ctx
from opendataflow.store.records.accounts import Role, list_accounts, list_actions, list_tokens

router = APIRouter(tags=["accounts"])
Word = Literal["viewer", "operator", "admin"]
Limit = Annotated[int, Query(ge=1, le=1000)]
Number = Annotated[int | None, Query(ge=0, le=1 << 62)]
Name = Annotated[str, Query(max_length=64, pattern="^[^\\x00]*$")]


class Me(BaseModel):
    username: str
    role: Word
    by: Literal["session", "token"]


class UserRow(BaseModel):
    username: str
    role: Word
    created_at: str
    disabled_at: str | None
    seen_at: str | None
    sessions: int
    tokens: int


class TokenRow(BaseModel):
    tokenid: int
    name: str
    username: str
    scope: Word
    created_at: str
    expires_at: str | None
    last_used_at: str | None
    revoked_at: str | None
    is_expired: bool


class ActionRow(BaseModel):
    id: int
    at: str
    username: str
    action: str
    target: str
    detail: dict[str, Any]


@router.get("/v1/me")
async def me(user: Viewer) -> Me:
    """Who the caller is, and what they may do."""
    return Me(username=user.name, role=_word(user.role), by="session" if user.csrf else "token")


@router.get("/v1/users")
async def users(user: Admin, context: Ctx, after: Name = "", limit: Limit = 100) -> list[UserRow]:
    """Accounts by name; the next page is `after` the last one's."""
    found = await context.stores.ask(lambda store: list_accounts(store, after=after, limit=limit))
    return [UserRow(**{**one._asdict(), "role": one.role.word}) for one in found]


@router.get("/v1/tokens")
async def tokens(
    user: Viewer, context: Ctx, everybody: bool = False, revoked: bool = False, after: Number = None, limit: Limit = 100
) -> list[TokenRow]:
    """The caller's tokens, without secrets; for an admin those of `everybody`. The next page is `after` the last."""
    whose = None if everybody and user.may(Role.ADMIN) else user.name
    found = await context.stores.ask(
        lambda store: list_tokens(store, username=whose, revoked=revoked, after=after or 0, limit=limit)
    )
    return [TokenRow(**{**one._asdict(), "scope": one.scope.word}) for one in found]


@router.get("/v1/actions-log")
async def actions_log(
    user: Operator, context: Ctx, by: Name = "", before: Number = None, limit: Limit = 100
) -> list[ActionRow]:  # fmt: skip
    """What was done by whom, the newest first; the next page is `before` the last one's id."""
    found = await context.stores.ask(lambda store: list_actions(store, username=by or None, before=before, limit=limit))
    return [ActionRow(**one._asdict()) for one in found]


def _word(role: Role) -> Word:
    words: dict[Role, Word] = {Role.VIEWER: "viewer", Role.OPERATOR: "operator", Role.ADMIN: "admin"}
    return words[role]

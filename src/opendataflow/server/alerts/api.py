"""`/v1/alerts`: what is wrong and was told, and the messages that told it; `/v1/health`: how the server itself is."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from opendataflow.server.access import Viewer
from opendataflow.server.alerts.facts import get_message, messages, open_alerts, undelivered
from opendataflow.server.context import Ctx
from opendataflow.server.health import Check, check

router = APIRouter(tags=["alerts"])
ProjectQuery = Annotated[str | None, Query(description="Only of this project.", max_length=200)]
Limit = Annotated[int, Query(ge=1, le=1000, description="At most so many.")]
Before = Annotated[int | None, Query(ge=1, le=2**63 - 1, description="The cursor: those with a lower number.")]
MessageId = Annotated[int, Path(ge=1, le=2**63 - 1, description="The message's number.")]


class Alert(BaseModel):
    alertid: int
    project: str
    to: str = Field(description="The kind of each address, and where in project.yml it stands")
    event: str = Field(description="failed, late or stuck")
    subject: str = Field(description="job or dataset")
    owner: str = Field(description="The project of the job or dataset")
    name: str
    dataid: str
    reason: str
    at: str
    message_state: str


class AlertList(BaseModel):
    items: list[Alert]
    next: int | None = Field(description="The cursor of those after them; null at the end")
    undelivered: int = Field(description="Messages that could not be sent so far")


class MessageItem(BaseModel):
    messageid: int
    project: str
    to: str
    state: str = Field(description="GATHERING, SENDING, WAITING (to be tried again), SENT or GIVEN_UP")
    events: list[str]
    created_at: str
    due_at: str
    attempts: int
    sent_at: str | None
    error: str = Field(description="Of the last attempt")
    title: str


class MessageDetail(MessageItem):
    body: str


class MessageList(BaseModel):
    items: list[MessageItem]
    next: int | None


@router.get("/v1/alerts")
async def list_open(
    user: Viewer, context: Ctx, project: ProjectQuery = None, limit: Limit = 100, before: Before = None
) -> AlertList:
    """What is wrong now and was told to somebody, or is about to be; the newest first."""
    part, number = await context.stores.ask(
        lambda store: (open_alerts(store, project=project, limit=limit, before=before), undelivered(store))
    )
    return AlertList(items=[Alert(**one) for one in part.items], next=part.next, undelivered=number)


@router.get("/v1/alerts/messages")
async def list_sent(
    user: Viewer, context: Ctx, project: ProjectQuery = None, limit: Limit = 100, before: Before = None
) -> MessageList:
    """The messages, the newest first, also those that wait to be sent or could not be."""
    part = await context.stores.ask(lambda store: messages(store, project=project, limit=limit, before=before))
    return MessageList(items=[MessageItem(**one) for one in part.items], next=part.next)


@router.get("/v1/alerts/messages/{messageid}")
async def one_message(messageid: MessageId, user: Viewer, context: Ctx) -> MessageDetail:
    """One message with its text."""
    return MessageDetail(**await context.stores.ask(lambda store: get_message(store, messageid)))


class Health(BaseModel):
    status: str = Field(description="ok or not well")
    checks: list[Check]


@router.get("/v1/health", tags=["health"])
async def health_detail(user: Viewer, context: Ctx, response: Response) -> Health:
    """What the server needs: the store, its schema, the disk; and how far streams are behind. 503: it cannot work."""
    found = await check(context)
    if any(one.is_grave and not one.is_ok for one in found):
        response.status_code = 503
    return Health(status="ok" if all(one.is_ok for one in found) else "not well", checks=found)

"""The pages of streams."""

import json
import shlex
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from opendataflow.server.access import Viewer
from opendataflow.server.context import Ctx
from opendataflow.server.streams.facts import batches_of, failed_of, list_stands, one_stream
from opendataflow.server.templates import render, segment
from opendataflow.store.claims import LoopStore
from opendataflow.store.records.accounts import Role

router = APIRouter(include_in_schema=False)
PAGE_BATCHES = 30
PAGE_ITEMS = 20
PLOT_HEIGHT = 70
Offset = Annotated[int, Query(ge=0, le=10**15)]


@router.get("/streams")
async def list_all(request: Request, user: Viewer, context: Ctx) -> Response:
    found = await context.stores.ask(lambda store: list_stands(store, context.address, project=None))
    several = len({one["project"] for one in found}) > 1
    return render(request, "streams.html", user=user, streams=found, several=several)


@router.get("/streams/{project}/{slug}")
async def show(
    request: Request,
    project: str,
    slug: str,
    user: Viewer,
    context: Ctx,
    offset: Offset = 0,
    first: Offset = 0,
    replayed: bool = False,
) -> Response:
    def ask(store: LoopStore) -> Any:
        return (
            one_stream(store, context.address, project, slug),
            batches_of(store, project, slug, limit=PAGE_BATCHES, offset=offset),
            failed_of(store, context.address, project, slug, first=first, limit=PAGE_ITEMS, replayed=replayed),
        )  # fmt: skip

    found, batches, failed = await context.stores.ask(ask)
    address = f"{str(request.base_url).rstrip('/')}/v1/streams/{segment(project)}/{segment(slug)}"
    if context.is_secure:
        address = f"https:{address.partition(':')[2]}"
    for one in failed["items"]:
        one["text"] = json.dumps(one["item"], ensure_ascii=False, indent=1)
    return render(
        request, "stream.html", user=user, stream=found, batches=batches, failed=failed, first=first, address=address,
        curl=_curl(address, found["example"]), replayed=replayed, bars=_bars(found["rates"]), height=PLOT_HEIGHT,
        can_act=user.may(Role.OPERATOR),
    )  # fmt: skip


def _curl(address: str, item: dict[str, Any]) -> str:
    """One line that sends an item; the token stays in the sender's environment."""
    body = shlex.quote(json.dumps(item))
    return (
        f'curl -H "Authorization: Bearer $TOKEN" -H "Content-Type: application/json" -d {body} {shlex.quote(address)}'
    )


def _bars(rates: list[dict[str, Any]]) -> dict[str, Any]:
    """The plot: a bar for each step, as high as its rate."""
    most = max((one["rate"] for one in rates), default=0.0)
    bars = [
        {"x": number * 10 + 1, "height": round(PLOT_HEIGHT * one["rate"] / most, 1) if most else 0, **one}
        for number, one in enumerate(rates)
    ]
    return {"bars": bars, "most": most, "width": len(rates) * 10}

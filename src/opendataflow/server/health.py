"""Whether the server can work: `/health/ready` says so to everybody, `/v1/health` says to viewers what is wrong."""

import asyncio
import os
import shutil
import time

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from opendataflow.errors import DataflowError
from opendataflow.server.access import open_to_all
from opendataflow.server.context import Context, get_context
from opendataflow.store.open import SCHEMA_VERSION
from opendataflow.store.records.streams import FAILED
from opendataflow.streams.state import GONE, LAGS_SECONDS, all_streams

LEAST_BYTES, LEAST_PART = 200 * 2**20, 0.02  # free on the disk of the work folder
READY_SECONDS = 2.0  # for which an answer holds: everybody may ask
ANSWER_SECONDS = 10.0

router = APIRouter(include_in_schema=False)


class Check(BaseModel):
    name: str
    is_ok: bool
    is_grave: bool  # without it the server cannot work
    says: str


async def check(context: Context) -> list[Check]:
    """The store, its schema, the disk, the streams."""
    found = [await _check_store(context), await asyncio.to_thread(_check_disk, context.address.work)]
    if found[0].is_ok:
        found.append(await _check_streams(context))
    return found


async def _check_store(context: Context) -> Check:
    began = time.monotonic()
    try:
        asked = context.stores.ask(lambda store: store.check_schema(SCHEMA_VERSION))
        await asyncio.wait_for(asked, ANSWER_SECONDS)
    except DataflowError as error:
        return Check(name="store", is_ok=False, is_grave=True, says=str(error))
    except TimeoutError:
        says = f"the store has not answered within {ANSWER_SECONDS:g} s"
        return Check(name="store", is_ok=False, is_grave=True, says=says)
    took = (time.monotonic() - began) * 1000
    return Check(name="store", is_ok=True, is_grave=True, says=f"schema {SCHEMA_VERSION}, answered in {took:.0f} ms")


def _check_disk(work: str) -> Check:
    while not os.path.isdir(work) and os.path.dirname(work) != work:
        work = os.path.dirname(work)  # it is made when something is written
    use = shutil.disk_usage(work)
    is_ok = use.free >= LEAST_BYTES and use.free >= use.total * LEAST_PART
    says = f"{use.free / 2**30:.1f} GB of {use.total / 2**30:.1f} GB are free where logs and streams are kept"
    return Check(name="disk", is_ok=is_ok, is_grave=False, says=says)


async def _check_streams(context: Context) -> Check:
    streams = await context.stores.ask(lambda store: all_streams(store, context.address, project=None))
    behind = [one for one in streams if one.state in (FAILED, GONE) or one.lag_seconds > LAGS_SECONDS]
    told = [f"{one.project}.{one.stream} is {one.state}, {one.lag_items} items behind" for one in behind[:5]]
    says = "; ".join(told) or (f"{len(streams)} streams, none behind" if streams else "there are none")
    return Check(name="streams", is_ok=not behind, is_grave=False, says=says)


class _Ready:
    """The last answer, for everybody who asks at about the same time."""

    def __init__(self) -> None:
        self.is_ready, self.at = False, float("-inf")
        self.lock = asyncio.Lock()


@router.get("/health/ready")
@open_to_all
async def ready(request: Request) -> Response:
    """200 when it can work, 503 when the store cannot be used; no more than that, as everybody may ask."""
    state = request.app.state
    if not hasattr(state, "ready"):
        state.ready = _Ready()
    last: _Ready = state.ready
    async with last.lock:
        if time.monotonic() - last.at > READY_SECONDS:
            last.is_ready = (await _check_store(get_context(request))).is_ok
            last.at = time.monotonic()
    told = {"status": "ready" if last.is_ready else "not ready"}
    return JSONResponse(told, 200 if last.is_ready else 503)

"""What every route needs: where the state is, and how to ask it."""

from typing import Annotated, NamedTuple

from fastapi import Depends
from starlette.requests import Request

from opendataflow.project.address import Address
from opendataflow.server.open_streams import Streams
from opendataflow.server.stores import Stores


class Context(NamedTuple):
    address: Address
    stores: Stores
    streams: Streams
    is_secure: bool = False  # browsers reach it by https only: cookies say so


def get_context(request: Request) -> Context:
    found: Context = request.app.state.context
    return found


Ctx = Annotated[Context, Depends(get_context)]

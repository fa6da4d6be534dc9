"""`POST /v1/hooks/git/{project}`: a forge tells of a push, signed with the project's secret. A child pulls."""

import asyncio
import secrets

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request

from opendataflow.deploy.webhook import find_hook_secret, is_theirs, read_push
from opendataflow.deploy.work import lost_tasks, start_work
from opendataflow.errors import SecretError, UsageError
from opendataflow.server.access import open_to_all
from opendataflow.server.context import Ctx
from opendataflow.store.claims import LoopStore
from opendataflow.store.records.git import find_git_project, new_task

router = APIRouter(tags=["projects"])


AT_ONCE = 8  # bodies, which may be large, of senders whom nobody knows yet; the others wait
BODY_SECONDS = 30.0  # for a body to come


class Heard(BaseModel):
    said: str
    task: int | None = None


async def _read_body(request: Request) -> bytes:
    async with request.app.state.hooks:
        try:
            async with asyncio.timeout(BODY_SECONDS):
                return await request.body()
        except TimeoutError:
            raise HTTPException(408, f"the body did not come within {BODY_SECONDS:.0f} s") from None


@router.post("/v1/hooks/git/{project}", status_code=202)
@open_to_all
async def hear(request: Request, project: str, context: Ctx) -> Heard:
    """A push to a git project's branch: it is pulled soon after. The body is signed (`X-Hub-Signature-256`,
    `X-Gitea-Signature`, `X-Forgejo-Signature`), or the secret is in `X-Gitlab-Token`."""
    headers = {name.lower(): value for name, value in request.headers.items()}
    body = await _read_body(request)

    def check(store: LoopStore) -> str:
        try:
            secret = find_hook_secret(store, project)
        except SecretError:
            raise HTTPException(503, "the webhook's secret cannot be opened here; see the server's passkey") from None
        # Whoever does not know the secret does not learn which projects there are.
        if not is_theirs(secret or secrets.token_urlsafe(32), body, headers) or secret is None:
            raise HTTPException(401, "the signature does not fit; give the forge the project's present secret")
        known = find_git_project(store, project)
        return known.branch if known else ""

    branch = await context.stores.ask(check)
    try:
        push = read_push(body, headers)
    except UsageError as error:
        raise HTTPException(422, str(error)) from None
    if push.branch != branch:
        what = f"{push.event} is no push to a branch" if push.branch is None else f"{push.branch} is not followed"
        return Heard(said=f"nothing is to be done: {what}")

    def ask(store: LoopStore) -> tuple[int, bool]:
        return new_task(store, "hook", project=project, by="webhook", join=True, lost=lost_tasks(store))

    task, is_new = await context.stores.ask(ask, actor="webhook")
    if is_new:
        start_work(task)
    return Heard(said=f"{project} is being pulled", task=task)

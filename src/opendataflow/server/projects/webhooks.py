"""`POST /v1/hooks/git/{project}`: a forge tells of a push, signed with the project's secret. A child pulls."""

import secrets

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request

from opendataflow.deploy.webhook import find_hook_secret, is_theirs, is_wrong_token, may_be_theirs, read_push
from opendataflow.deploy.work import lost_tasks, start_work
from opendataflow.errors import SecretError, UsageError
from opendataflow.server.access import open_to_all
from opendataflow.server.accounts.login import address_of
from opendataflow.server.context import Ctx
from opendataflow.store.claims import LoopStore
from opendataflow.store.records.git import find_git_project, new_task

router = APIRouter(tags=["projects"])


MOST_HELD = 208 << 20  # bytes of bodies in memory, of senders whom nobody knows yet
UNSIGNED = "the signature does not fit; give the forge the project's present secret"


class Heard(BaseModel):
    said: str
    task: int | None = None


@router.post("/v1/hooks/git/{project}", status_code=202)
@open_to_all
async def hear(request: Request, project: str, context: Ctx) -> Heard:
    """A push to a git project's branch: it is pulled soon after. The body is signed (`X-Hub-Signature-256`,
    `X-Gitea-Signature`, `X-Forgejo-Signature`), or the secret is in `X-Gitlab-Token`."""
    headers = {name.lower(): value for name, value in request.headers.items()}
    if not may_be_theirs(headers):
        raise HTTPException(401, UNSIGNED)

    def find(store: LoopStore) -> str | None:
        try:
            return find_hook_secret(store, project)
        except SecretError:
            raise HTTPException(503, "the webhook's secret cannot be opened here; see the server's passkey") from None

    # Whoever does not know the secret does not learn which projects there are.
    secret = await context.stores.ask(find)
    known = secret or secrets.token_urlsafe(32)
    if is_wrong_token(known, headers):
        raise HTTPException(401, UNSIGNED)
    body = await request.app.state.hook_bodies.read(request, address_of(request))
    if not is_theirs(known, body, headers) or secret is None:
        raise HTTPException(401, UNSIGNED)

    def check(store: LoopStore) -> str:
        found = find_git_project(store, project)
        return found.branch if found else ""

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

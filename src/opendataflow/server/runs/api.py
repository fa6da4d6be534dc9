"""Runs over the API: the list, one run, its log, what it made; a job on a dataid; requests."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query
from pydantic import BaseModel
from starlette.responses import Response, StreamingResponse

from opendataflow.domain.runs.run import RunStatus
from opendataflow.server.access import Viewer
from opendataflow.server.context import Context, Ctx
from opendataflow.server.problems import NotThere
from opendataflow.server.runs.facts import (
    RunsAsked,
    download_of,
    find_log,
    find_made,
    find_runs,
    get_shown,
    one_run,
    read_log,
    why,
)
from opendataflow.store.claims import LoopStore
from opendataflow.store.records.requests import find_request, list_requests

router = APIRouter(tags=["runs"])
HIGHEST = 2**62
RunNumber = Annotated[int, Path(ge=0, le=HIGHEST)]
Name = Annotated[str, Path(max_length=500)]
Filter = Annotated[str | None, Query(max_length=500, pattern=r"^[^\x00]*$")]


class RunFacts(BaseModel):
    runid: int
    project: str
    jobid: str
    dataid: str
    attempt: int
    forced: bool
    status: str
    owner: str
    claimed_at: str
    ended_at: str | None
    exit_code: int | None
    message: str
    seconds: float | None


class RunsFacts(BaseModel):
    runs: list[RunFacts]
    next: int | None  # `before` of the next page; null: there is none


class AnswerFacts(BaseModel):
    question: str
    yes: bool
    code: str
    evidence: str


class InputFacts(BaseModel):
    project: str
    dataset: str
    dataid: str
    version: int | None


class OutputFacts(BaseModel):
    project: str
    dataset: str
    dataid: str
    version: int
    location: str | None
    files: int | None
    bytes: int | None
    rows: int | None
    fingerprint: str | None
    validated_at: str | None
    created_at: str
    status: str | None
    current: bool  # consumers read this very version


class CheckFacts(BaseModel):
    dataset: str
    check: str
    result: str
    detail: str | None


class StepFacts(BaseModel):
    position: int
    name: str
    digest: str | None
    status: str
    output: str
    error: str
    rows: int | None
    seconds: float | None


class ChangeFacts(BaseModel):
    at: str
    old_status: str | None
    new_status: str | None
    runid: int | None
    actor: str


class OneRunFacts(RunFacts):
    lease_until: str | None
    expired: bool
    abort_asked_by: str | None
    answers: list[AnswerFacts]
    inputs: list[InputFacts]
    outputs: list[OutputFacts]
    checks: list[CheckFacts]
    commit: str | None
    engine: str | None
    application: str | None
    transformations: list[StepFacts]
    sharing: str  # why the job's chunks share no Spark job although it says so; empty where they may
    history: list[ChangeFacts]
    log_bytes: int | None  # null: its file is not on the server's host
    can_abort: bool


class LogFacts(BaseModel):
    text: str
    next: int  # `from` of the next call
    whole: bool  # false: only the tail that the store has
    replaces: bool  # the text is all there is, not what came since
    more: bool
    status: str


class DataidRun(BaseModel):
    runid: int
    attempt: int
    forced: bool
    status: str
    owner: str
    claimed_at: str
    ended_at: str | None
    exit_code: int | None
    message: str
    seconds: float | None


class LinkFacts(BaseModel):
    project: str
    dataset: str


class StaleFacts(BaseModel):
    """Published data that is older than what it should be made from."""

    project: str
    jobid: str
    dataid: str
    kind: str  # direct: by itself; upstream: something that it reads is stale
    by: list[str]  # input, code, checks, upstream
    reasons: list[str]
    since: str
    runid: int
    commit: str | None


class DamageFacts(BaseModel):
    """A published chunk that is gone or is not what was published any more."""

    chunk: str
    finding: str
    seen_at: str
    fix: str


class WhyFacts(BaseModel):
    project: str
    jobid: str
    dataid: str
    kind: str
    is_stream: bool
    status: str
    detail: str
    sharing: str  # why its chunks share no Spark job although it says so; empty where they may
    asked: str
    answers: list[AnswerFacts]
    runs: list[DataidRun]
    history: list[ChangeFacts]
    log_tail: str
    stale: StaleFacts | None
    damage: list[DamageFacts]
    fix: str
    inputs: list[LinkFacts]
    outputs: list[LinkFacts]


class RequestFacts(BaseModel):
    id: int
    kind: str
    project: str
    name: str
    status: str
    asked_by: str
    asked_at: str
    ended_at: str | None
    exit_code: int | None
    output: str


def asked_runs(
    project: Filter = None,
    job: Filter = None,
    dataid: Filter = None,
    status: Annotated[RunStatus | None, Query()] = None,
    since: Filter = None,
    until: Filter = None,
    before: Annotated[int | None, Query(ge=0, le=HIGHEST)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> RunsAsked:
    """Which runs: `since` and `until` are a time, a date (UTC), or 2h (ago); `before` is the cursor."""
    return RunsAsked(project, job, dataid, status and status.value, since, until, before, limit)


@router.get("/v1/runs")
async def list_runs(_user: Viewer, context: Ctx, asked: Annotated[RunsAsked, Depends(asked_runs)]) -> RunsFacts:
    """Runs, the newest first."""
    return RunsFacts.model_validate(await context.stores.ask(lambda store: find_runs(store, asked)))


@router.get("/v1/runs/{runid}")
async def get_run(_user: Viewer, context: Ctx, runid: RunNumber) -> OneRunFacts:
    """Everything about one run: the five answers with evidence, what it read and made, its steps, its history."""
    found = await context.stores.ask(lambda store: one_run(store, context.address, runid))
    return OneRunFacts.model_validate(found)


async def log_facts(context: Context, runid: int, start: int) -> dict[str, Any]:
    """A part of a run's log. The status is read before the file: what comes after that is for the next look."""

    def look(store: LoopStore) -> dict[str, Any]:
        row = get_shown(store, runid)
        is_over = row["status"] != RunStatus.RUNNING
        return {**read_log(find_log(context.address, row), row, start=start, is_over=is_over), "status": row["status"]}

    return await context.stores.ask(look)


@router.get("/v1/runs/{runid}/log")
async def get_log(
    _user: Viewer, context: Ctx, runid: RunNumber,
    start: Annotated[int, Query(alias="from", ge=-HIGHEST, le=HIGHEST, description="Below 0: from the end.")] = 0,
) -> LogFacts:  # fmt: skip
    """A run's output from a byte on, at most 256 KiB at a time; where its file is elsewhere, its last part."""
    return LogFacts.model_validate(await log_facts(context, runid, start))


async def send_output(context: Context, runid: int) -> Response:
    made = await context.stores.ask(lambda store: find_made(store, runid))
    download = await asyncio.to_thread(download_of, made)  # what a slow disk holds up is this answer only
    return StreamingResponse(download.parts, media_type="application/octet-stream", headers=download.headers)


@router.get("/v1/runs/{runid}/output", response_class=StreamingResponse)
async def get_output(_user: Viewer, context: Ctx, runid: RunNumber) -> Response:
    """What the run published: its only file, or a zip."""
    return await send_output(context, runid)


@router.get("/v1/jobs/{project}/{job}/{dataid:path}")
async def get_why(_user: Viewer, context: Ctx, project: Name, job: Name, dataid: Name) -> WhyFacts:
    """Why a dataid ran, failed or did not run: the five answers, what blocks it, its runs, the next step."""
    return WhyFacts.model_validate(await context.stores.ask(lambda store: why(store, project, job, dataid)))


async def request_facts(context: Context, number: int) -> dict[str, Any]:
    found = await context.stores.ask(lambda store: find_request(store, number))
    if found is None:
        raise NotThere(f"there is no request {number}")
    return found


@router.get("/v1/requests")
async def get_requests(
    _user: Viewer, context: Ctx, project: Filter = None, name: Filter = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 20,
) -> list[RequestFacts]:  # fmt: skip
    """What was done for people by child processes, such as validations; the newest first, without their output."""
    found = await context.stores.ask(lambda store: list_requests(store, project=project, name=name, limit=limit))
    return [RequestFacts.model_validate(one) for one in found]


@router.get("/v1/requests/{number}")
async def get_request(_user: Viewer, context: Ctx, number: RunNumber) -> RequestFacts:
    """One of them, with what it said."""
    return RequestFacts.model_validate(await request_facts(context, number))

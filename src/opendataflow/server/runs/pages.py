"""Pages of runs: the list with its durations, one run with its log, a job on a dataid, a request."""

import asyncio
import os
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from opendataflow.domain.runs.run import RunStatus
from opendataflow.errors import UsageError
from opendataflow.project.address import Address
from opendataflow.server.access import Viewer
from opendataflow.server.context import Ctx
from opendataflow.server.downloads import Download, blocks
from opendataflow.server.runs.api import Name, RunNumber, log_facts, request_facts, send_output
from opendataflow.server.runs.durations import draw_durations
from opendataflow.server.runs.facts import TAIL_BYTES, RunsAsked, find_log, find_runs, get_shown, one_run, why
from opendataflow.server.templates import render

router = APIRouter(include_in_schema=False)
LIMIT = 50
HIGHEST = 2**62
Text = Annotated[str, Query(max_length=500, pattern=r"^[^\x00]*$")]


def asked_by_form(
    project: Text = "", job: Text = "", dataid: Text = "", status: Text = "", since: Text = "", until: Text = "",
    before: Annotated[int | None, Query(ge=0, le=HIGHEST)] = None,
) -> RunsAsked:  # fmt: skip
    """As a form sends it: what is empty was not given."""
    return RunsAsked(
        project.strip() or None, job.strip() or None, dataid.strip() or None, status.strip() or None,
        since.strip() or None, until.strip() or None, before, LIMIT,
    )  # fmt: skip


@router.get("/runs")
async def runs(
    request: Request, user: Viewer, context: Ctx, asked: Annotated[RunsAsked, Depends(asked_by_form)]
) -> Response:
    wrong = ""
    found: dict[str, Any] = {"runs": [], "next": None}
    if asked.status is not None and asked.status not in list(RunStatus):
        wrong = f"{asked.status!r} is not a run's status; known are {', '.join(RunStatus)}"
    else:
        try:
            found = await context.stores.ask(lambda store: find_runs(store, asked))
        except UsageError as error:
            wrong = str(error)
    return render(
        request, "runs.html", user=user, asked=asked, statuses=[str(one) for one in RunStatus], wrong=wrong,
        drawn=draw_durations(found["runs"]), **found,
    )  # fmt: skip


@router.get("/runs/{runid}")
async def run(request: Request, user: Viewer, context: Ctx, runid: RunNumber) -> Response:
    facts = await context.stores.ask(lambda store: one_run(store, context.address, runid))
    log = await log_facts(context, runid, -TAIL_BYTES)
    return render(request, "run.html", user=user, run=facts, log=log)


@router.get("/runs/{runid}/log")
async def log_file(_user: Viewer, context: Ctx, runid: RunNumber) -> Response:
    """The whole log as a file; of one that grows, what is there now."""
    row = await context.stores.ask(lambda store: get_shown(store, runid))
    found = await asyncio.to_thread(_log_of, context.address, row)
    return StreamingResponse(found.parts, media_type="text/plain; charset=utf-8", headers=found.headers)


def _log_of(address: Address, row: dict[str, Any]) -> Download:
    place = find_log(address, row)
    name = f"{row['jobid']}_{row['dataid']}_run_{row['runid']}.log"
    if place is None:
        text = row["log_tail"].encode()
        return Download(name, len(text), iter([text]))
    size = os.path.getsize(place)
    return Download(name, size, blocks(place, root=os.path.join(address.work, "logs"), upto=size))


@router.get("/runs/{runid}/output")
async def output(_user: Viewer, context: Ctx, runid: RunNumber) -> Response:
    return await send_output(context, runid)


@router.get("/jobs/{project}/{job}/{dataid:path}")
async def job_on_dataid(
    request: Request, user: Viewer, context: Ctx, project: Name, job: Name, dataid: Name
) -> Response:
    told = await context.stores.ask(lambda store: why(store, project, job, dataid))
    return render(request, "why.html", user=user, told=told)


@router.get("/requests/{number}")
async def one_request(request: Request, user: Viewer, context: Ctx, number: RunNumber) -> Response:
    return render(request, "request.html", user=user, asked=await request_facts(context, number))

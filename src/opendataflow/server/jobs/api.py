"""`/v1/jobs`: jobs and pipelines with their counts, schedules, limits, code and latest runs; and their dataids."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field

from opendataflow.domain.job import JobStatus
from opendataflow.operations.staleness import report_stale
from opendataflow.server.access import Viewer
from opendataflow.server.context import Ctx
from opendataflow.server.jobs.facts import JobsAsked, count_dataids, dataids_of, find_jobs, one_job
from opendataflow.server.runs.api import StaleFacts

router = APIRouter(tags=["jobs"])
ProjectId = Annotated[str, Path(max_length=500, description="The project's id.")]
JobId = Annotated[str, Path(max_length=500, description="The job or pipeline.")]
Limit = Annotated[int, Query(ge=1, le=1_000)]
Offset = Annotated[int, Query(ge=0, le=1_000_000)]
Name = Annotated[str | None, Query(max_length=500, pattern=r"^[^\x00]*$")]


class LastRun(BaseModel):
    runid: int
    dataid: str
    status: str
    claimed_at: str
    ended_at: str | None
    seconds: float | None


class JobItem(BaseModel):
    project: str
    job: str
    kind: str
    counts: dict[str, int] = Field(description="Dataids by status.")
    schedule: str | None = Field(description="The clock that it goes by.")
    schedule_is_set: bool = Field(description="A person set it, instead of what project.yml declares.")
    next_at: str | None
    last_run: LastRun | None
    running: int
    limit: int | None = Field(description="At most so many runs at once; null: no limit.")
    paused_by: str | None
    paused_until: str | None


class JobPage(BaseModel):
    items: list[JobItem]
    total: int
    limit: int
    offset: int
    all_paused_by: str | None
    all_paused_until: str | None


class Linked(BaseModel):
    project: str
    dataset: str
    map: str
    clock: str | None
    path: str | None
    format: str | None
    partitions: Any


class Scheduled(BaseModel):
    clock: str | None
    declared: str | None
    is_set: bool
    set_by: str | None
    set_at: str | None
    reason: str
    told: str
    next_slot: str | None
    next_at: str | None


class Transformation(BaseModel):
    position: int
    name: str
    path: str
    code: str | None = Field(description="As it is in the project's folder; null: it cannot be read there.")
    problem: str
    status: str | None = Field(description="In the pipeline's last run: PENDING, RUNNING, DONE, ERROR.")
    run: int | None
    dataid: str | None
    output: str | None
    error: str | None
    rows: int | None
    seconds: float | None


class JobRun(BaseModel):
    runid: int
    dataid: str
    attempt: int
    status: str
    owner: str
    claimed_at: str
    ended_at: str | None
    exit_code: int | None
    message: str
    seconds: float | None


class Change(BaseModel):
    at: str
    what: str
    was: str | None
    becomes: str | None
    reason: str
    actor: str


class StaleCount(BaseModel):
    direct: int = Field(description="An input, the code or a check is newer.")
    upstream: int = Field(description="Only what they read is stale.")


class StaleCountOfJob(StaleCount):
    project: str
    jobid: str


class StaleList(BaseModel):
    stale: list[StaleFacts]
    jobs: list[StaleCountOfJob]
    complete: bool = Field(description="false: what was published last is not worked in yet.")


class JobDetail(BaseModel):
    project: str
    job: str
    kind: str
    script: str | None
    is_stream: bool
    sealed_stream: str | None
    partitions: Any
    inputs: list[Linked]
    outputs: list[Linked]
    items: dict[str, str] = Field(description="Its environment items; what sounds like a secret is masked.")
    engine: str | None
    checks: list[str]
    retries: int
    backoff_seconds: float
    timeout_seconds: float | None
    lease_seconds: float
    order: str
    catchup: str
    schedule: Scheduled
    declared_limit: int | None
    scaled_to: int | None
    braked_to: int | None
    max_runs: int | None
    running: int
    paused_by: str | None
    paused_until: str | None
    all_paused_by: str | None
    all_paused_until: str | None
    counts: dict[str, int]
    transformations: list[Transformation]
    runs: list[JobRun] = Field(description="The latest; `/v1/runs` has all.")
    changes: list[Change] = Field(description="Of its limits, pauses and schedule, the newest first.")
    stale: StaleCount = Field(description="Published dataids that are older than what they should be made from.")


class DataidItem(BaseModel):
    dataid: str
    status: str
    waiting: int = Field(description="Inputs that are not READY.")
    attempts: int
    runid: int | None
    parked_until: str | None
    modified: str


class DataidPage(BaseModel):
    items: list[DataidItem]
    limit: int
    offset: int
    more: bool


@router.get("/v1/stale")
async def list_stale(
    _user: Viewer, context: Ctx, project: Name = None,
    name: Annotated[Name, Query(description="Only this job, or the one that makes this dataset.")] = None,
    limit: Limit = 100,
) -> StaleList:  # fmt: skip
    """Published data that is older than an input, the code or a check that it should be made from."""
    return StaleList.model_validate(
        await context.stores.ask(lambda store: report_stale(store, name, project=project, limit=limit))
    )


@router.get("/v1/jobs")
async def list_jobs(
    user: Viewer,
    context: Ctx,
    project: Name = None,
    name: Name = None,
    status: Annotated[JobStatus | None, Query(description="Only jobs of which some dataid stands so.")] = None,
    paused: bool = False,
    limit: Limit = 100,
    offset: Offset = 0,
) -> JobPage:
    """Jobs and pipelines of all projects, by name."""
    wanted = "paused" if paused else None if status is None else str(status)
    asked = JobsAsked(project, name, wanted, limit, offset)
    counts = await count_dataids(context.stores)
    return JobPage.model_validate(await context.stores.ask(lambda store: find_jobs(store, asked, counts)))


@router.get("/v1/jobs/{project}/{job}")
async def get_job(project: ProjectId, job: JobId, user: Viewer, context: Ctx) -> JobDetail:
    """Everything about a job: what it reads and writes, its code, schedule, limits, and latest runs."""
    counts = await count_dataids(context.stores)
    return JobDetail.model_validate(await context.stores.ask(lambda store: one_job(store, project, job, counts)))


@router.get("/v1/dataids/{project}/{job}")
async def list_dataids(
    project: ProjectId,
    job: JobId,
    user: Viewer,
    context: Ctx,
    status: JobStatus | None = None,
    limit: Limit = 100,
    offset: Offset = 0,
) -> DataidPage:
    """A job's dataids with their statuses, the latest first."""
    wanted = None if status is None else str(status)
    found = await context.stores.ask(
        lambda store: dataids_of(store, project, job, status=wanted, limit=limit, offset=offset)
    )
    return DataidPage.model_validate(found)

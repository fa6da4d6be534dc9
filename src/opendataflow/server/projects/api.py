"""`/v1/projects`: where each project comes from, its versions, what was refused, and what is done to it now."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field

from opendataflow.server.access import Viewer
from opendataflow.server.context import Ctx
from opendataflow.server.projects.facts import find_project, find_projects, find_task
from opendataflow.store.records.git import NEWEST

router = APIRouter(tags=["projects"])


class Refused(BaseModel):
    commit: str
    subject: str | None
    at: str | None
    errors: int


class Project(BaseModel):
    project: str
    name: str
    home: str | None = Field(description="The folder its jobs run from.")
    url: str | None = Field(description="Of its repository; none: it was registered from a folder.")
    branch: str | None
    commit: str | None = Field(description="The version in place.")
    subject: str | None
    switched_at: str | None
    switched_by: str | None
    checked_at: str | None = Field(description="When the repository was last looked at.")
    refused: Refused | None = Field(description="The newest commit, if it is not good enough.")


class Problem(BaseModel):
    severity: str
    file: str
    line: int
    message: str
    next_step: str


class Task(BaseModel):
    taskid: int
    kind: str = Field(description="add, pull, hook or rollback.")
    project: str | None
    url: str | None
    branch: str | None
    commit: str | None
    state: str = Field(description="WAITING, RUNNING, DONE, REFUSED, FAILED or LOST.")
    step: str
    said: str
    problems: list[Problem]
    asked_at: str
    asked_by: str
    ended_at: str | None
    is_open: bool


class Version(BaseModel):
    versionid: int
    commit: str
    author: str
    subject: str
    committed_at: str
    how: str
    switched_at: str
    switched_by: str
    left_at: str | None


class Projects(BaseModel):
    items: list[Project]
    tasks: list[Task] = Field(description="Work that goes on, or never came to a project.")
    total: int
    limit: int
    offset: int


class WholeProject(Project):
    root: str | None
    added_at: str | None
    added_by: str | None
    username: str | None
    credential: str | None = Field(description="token or key: that one is kept; it is never shown.")
    has_hook: bool
    problems: list[Problem] = Field(description="All that is wrong with the refused commit.")
    versions: list[Version]
    next_before: int | None
    tasks: list[Task]


@router.get("/v1/projects")
async def list_projects(
    user: Viewer,
    context: Ctx,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> Projects:
    """The projects of this store."""

    def ask(store: Any) -> dict[str, Any]:
        return find_projects(store, limit=limit, offset=offset)

    return Projects.model_validate(await context.stores.ask(ask))


@router.get("/v1/projects/{project}")
async def get_project(
    user: Viewer,
    context: Ctx,
    project: str,
    before: Annotated[int, Query(ge=1, le=NEWEST)] = NEWEST,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> WholeProject:
    """A project with its versions, newest first."""

    def ask(store: Any) -> dict[str, Any]:
        return find_project(store, project, before=before, limit=limit)

    return WholeProject.model_validate(await context.stores.ask(ask))


@router.get("/v1/project-tasks/{taskid}")
async def get_task(user: Viewer, context: Ctx, taskid: Annotated[int, Path(ge=1, le=NEWEST)]) -> Task:
    """How far a piece of work on a repository is, or how it ended."""
    return Task.model_validate(await context.stores.ask(lambda store: find_task(store, taskid)))

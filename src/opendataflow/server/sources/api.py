"""`/v1/sources`: where datasets come from and go to; binding, testing, sampling and downloading them."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from opendataflow.operations.source_facts import Described
from opendataflow.server.access import Admin, Operator, Viewer
from opendataflow.server.context import Ctx
from opendataflow.server.sources.actions import SAMPLE_ROWS, bind_source, download, run_test, sample, tell
from opendataflow.server.sources.facts import get_source, sources_page

router = APIRouter(tags=["sources"])
_CSV: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/csv": {"schema": {"type": "string"}}}, "description": "All rows, streamed."}
}
_BUSY: dict[int | str, dict[str, Any]] = {
    429: {"description": "Too many sources are being looked at; see Retry-After."}
}

ProjectId = Annotated[str, Path(description="The project's id.", max_length=200)]
DatasetId = Annotated[str, Path(description="The dataset, as pipelines name it.", max_length=200)]
Dataid = Annotated[str | None, Query(description="Only the rows of this chunk.", max_length=200)]


class LastTest(BaseModel):
    at: str
    by: str
    answered: bool
    said: str


class SourceItem(BaseModel):
    project: str
    dataset: str
    kind: str = Field(description="csv files, PostgreSQL, SQLite, BigQuery, …; `open`: nobody said where it is")
    place: str = Field(description="Path or address, without user and password")
    bound: list[str] = Field(description="Fields that were bound in this store")
    written_by: list[str]
    read_by: list[str]
    last_test: LastTest | None


class SourceList(BaseModel):
    items: list[SourceItem]
    total: int
    limit: int
    offset: int


class SourceField(BaseModel):
    name: str
    value: str | None = Field(description="None: open. Of a secret only that it is set")
    origin: str = Field(description="declared, bound, convention or open")
    where: str
    may_bind: bool


class SourceDetail(SourceItem):
    partitions: Any = Field(description="As project.yml writes it")
    columns: dict[str, str] = Field(description="The declared schema")
    fields: list[SourceField]
    note: str = Field(description="Why project.yml could not be read here, if it could not")


class BindBody(BaseModel):
    """Fields as project.yml calls them; null unbinds one. Secrets are kept encrypted, and never given back."""

    model_config = ConfigDict(extra="forbid")
    values: dict[str, Any] = Field(min_length=1, max_length=50, examples=[{"table": "customers"}])
    dry_run: bool = False


class BoundAnswer(BaseModel):
    says: str
    bound: list[str]
    unbound: list[str]
    changes: list[str] = Field(description="To what is registered")
    waits_for: list[str] = Field(description="What is wrong with project.yml: nothing is registered until it is right")


class TestAnswer(BaseModel):
    answered: bool
    said: str
    milliseconds: float | None


class SampleAnswer(BaseModel):
    columns: list[str]
    rows: list[list[Any]]


def _item(one: Described) -> dict[str, Any]:
    tested = one.tested
    last = LastTest(at=tested[0], by=tested[1], answered=tested[2], said=tested[3]) if tested is not None else None
    return {
        "project": one.project, "dataset": one.dataset, "kind": one.kind, "place": one.place, "bound": list(one.bound),
        "written_by": list(one.makers), "read_by": list(one.readers), "last_test": last,
    }  # fmt: skip


@router.get("/v1/sources", summary="List sources and destinations")
async def list_all(
    user: Viewer,
    context: Ctx,
    project: Annotated[str | None, Query(description="Only of this project.", max_length=200)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> SourceList:
    """Every dataset with its place, what was bound, how it last answered, and who reads and writes it."""
    found = await context.stores.ask(lambda store: sources_page(store, project=project, limit=limit, offset=offset))
    items = [SourceItem(**_item(one)) for one in found.items]
    return SourceList(items=items, total=found.total, limit=limit, offset=offset)


@router.get("/v1/sources/{project}/{dataset}", summary="One source")
async def show(user: Viewer, context: Ctx, project: ProjectId, dataset: DatasetId) -> SourceDetail:
    """Its fields, and where each value comes from: project.yml, or who bound it here."""
    found = await context.stores.ask(lambda store: get_source(store, project, dataset))
    fields = [
        SourceField(name=one.name, value=one.value or None, origin=one.origin, where=one.where, may_bind=one.may_bind)
        for one in found.fields
    ]
    return SourceDetail(
        **_item(found.listed), partitions=found.partitions, columns=found.columns, fields=fields, note=found.unreadable
    )


@router.put("/v1/sources/{project}/{dataset}", summary="Create or bind a source")
async def put(user: Admin, context: Ctx, project: ProjectId, dataset: DatasetId, body: BindBody) -> BoundAnswer:
    """Give it what project.yml leaves open, or make a dataset that project.yml does not name. All, or nothing."""
    done = await context.stores.ask(
        lambda store: bind_source(store, user, project, dataset, body.values, dry_run=body.dry_run), actor=user.actor
    )
    return BoundAnswer(
        says=tell(done, dry_run=body.dry_run), bound=list(done.bound), unbound=list(done.unbound),
        changes=list(done.changes), waits_for=list(done.waits_for),
    )  # fmt: skip


@router.post("/v1/sources/{project}/{dataset}/test", summary="Test the connection", responses=_BUSY)
async def test(user: Operator, context: Ctx, project: ProjectId, dataset: DatasetId) -> TestAnswer:
    """Whether it can be read now; what is wrong is said in a sentence. The answer is kept."""
    done = await run_test(context, user, project, dataset)
    return TestAnswer(answered=done.answered, said=done.said, milliseconds=done.milliseconds)


@router.get("/v1/sources/{project}/{dataset}/sample", summary="Its first rows", responses=_BUSY)
async def show_sample(
    user: Operator,
    context: Ctx,
    project: ProjectId,
    dataset: DatasetId,
    rows: Annotated[int, Query(ge=1, le=10_000)] = SAMPLE_ROWS,
    dataid: Dataid = None,
) -> SampleAnswer:
    """As many as 300 rows unless more are asked for; of files, those of what is published."""
    found = await sample(context, project, dataset, rows=rows, dataid=dataid)
    return SampleAnswer(columns=found.columns, rows=found.rows)


@router.get(
    "/v1/sources/{project}/{dataset}/rows.csv", summary="Download all rows", response_class=Response,
    responses={**_CSV, **_BUSY},
)  # fmt: skip
async def rows_csv(
    request: Request,
    user: Operator,
    context: Ctx,
    project: ProjectId,
    dataset: DatasetId,
    dataid: Dataid = None,
    safe: Annotated[
        bool, Query(description="For spreadsheets: texts that would be taken for a formula get a ' in front.")
    ] = False,
) -> Response:
    """CSV of all rows, streamed; an answer that breaks off is not whole."""
    return await download(context, request.receive, project, dataset, dataid=dataid, safe=safe)

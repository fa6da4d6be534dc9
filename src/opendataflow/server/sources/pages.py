"""The pages of sources: the list, one source with its fields and forms, its sample, its download."""

from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from opendataflow.errors import DataflowError, StoreUnavailable, UsageError
from opendataflow.operations.bind import Bound
from opendataflow.project.bound import SECRETS
from opendataflow.server.access import Admin, Operator, User, Viewer
from opendataflow.server.context import Ctx
from opendataflow.server.sources.actions import SAMPLE_ROWS, Sampled, bind_source, download, run_test, sample, tell
from opendataflow.server.sources.children import Failed
from opendataflow.server.sources.facts import FieldFacts, fields_of, get_source, sources_page
from opendataflow.server.templates import render, with_said
from opendataflow.store.claims import LoopStore
from opendataflow.store.records.accounts import Role
from opendataflow.store.records.sources import project_names

router = APIRouter(include_in_schema=False)
PAGE_ROWS = 200
GROUPS = (
    ("Files", ("path", "format")),
    ("Database", ("url", "table", "query", "username", "password", "partition_column")),
    ("Both", ("partitions", "schema", "options")),
)
FORMATS = ("", "csv", "json", "parquet", "orc", "text")
LONG = ("query", "schema", "options", "driver_options")
HINTS = {
    "path": "in/{dataid}.csv, below the environment's root",
    "url": "postgresql://reader@db:5432/crm, sqlite:///crm.db, bigquery://project/dataset",
    "table": "public.customers",
    "query": "SELECT … instead of a table",
    "partitions": "none, daily:2025-01-01, hourly:…, shards:1..100, values:a,b",
    "partition_column": "which column tells the dataid",
    "schema": "{id: int, name: string}",
    "options": "{header: true, sep: ;}",
    "url_env": "the variable that holds the whole address",
}


@router.get("/sources")
async def list_all(
    request: Request,
    user: Viewer,
    context: Ctx,
    project: str | None = None,
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> Response:
    def ask(store: LoopStore) -> Any:
        return sources_page(store, project=project or None, limit=PAGE_ROWS, offset=offset), project_names(store)

    page, projects = await context.stores.ask(ask)
    return render(
        request, "sources.html", user=user, page=page, projects=projects, project=project or "", offset=offset,
        limit=PAGE_ROWS, is_admin=user.may(Role.ADMIN),
    )  # fmt: skip


@router.get("/sources/new")
async def new(request: Request, user: Admin, context: Ctx, project: str = "") -> Response:
    projects = await context.stores.ask(project_names)
    return _form(request, user, projects=projects, project=project)


@router.post("/sources/new")
async def create(request: Request, user: Admin, context: Ctx) -> Response:
    form = await request.form()
    given = {name: str(value) for name, value in form.items() if name not in ("csrf", "project", "dataset", "check")}
    project, dataset = str(form.get("project", "")), str(form.get("dataset", "")).strip()
    values = {name: value for name, value in given.items() if value.strip()}
    is_dry = "check" in form
    try:
        done = await context.stores.ask(
            lambda store: bind_source(store, user, project, dataset, values, dry_run=is_dry), actor=user.actor
        )
    except StoreUnavailable:
        raise
    except DataflowError as error:
        projects = await context.stores.ask(project_names)
        return _form(request, user, projects=projects, project=project, dataset=dataset, given=given, wrong=str(error))
    if is_dry:
        projects = await context.stores.ask(project_names)
        return _form(request, user, projects=projects, project=project, dataset=dataset, given=given, done=done)
    return _to(request, user, project, dataset, tell(done))


@router.get("/sources/{project}/{dataset}")
async def show(request: Request, user: Viewer, context: Ctx, project: str, dataset: str) -> Response:
    return await _show(request, user, context, project, dataset)


@router.post("/sources/{project}/{dataset}")
async def change(request: Request, user: Admin, context: Ctx, project: str, dataset: str) -> Response:
    """Bind what is filled in, unbind what was emptied; a password that is not given stays as it is."""
    form = await request.form()
    given = {name: str(value) for name, value in form.items() if name not in ("csrf", "check")}
    is_dry = "check" in form

    def act(store: LoopStore) -> Bound | None:
        fields, _ = fields_of(store, project, dataset)
        values = _changed(fields, given)
        return bind_source(store, user, project, dataset, values, dry_run=is_dry) if values else None

    try:
        done = await context.stores.ask(act, actor=user.actor)
    except StoreUnavailable:
        raise
    except DataflowError as error:
        return await _show(request, user, context, project, dataset, given=given, wrong=str(error))
    if is_dry:
        return await _show(request, user, context, project, dataset, given=given, done=done)
    return _to(request, user, project, dataset, tell(done) if done else "Nothing was changed.")


@router.post("/sources/{project}/{dataset}/test")
async def test(request: Request, user: Operator, context: Ctx, project: str, dataset: str) -> Response:
    await run_test(context, user, project, dataset)
    return _to(request, user, project, dataset, "")


@router.get("/sources/{project}/{dataset}/sample")
async def show_sample(
    request: Request,
    user: Operator,
    context: Ctx,
    project: str,
    dataset: str,
    rows: Annotated[int, Query(ge=1, le=10_000)] = SAMPLE_ROWS,
    dataid: str = "",
) -> Response:
    found, wrong = Sampled([], []), ""
    try:
        found = await sample(context, project, dataset, rows=rows, dataid=dataid or None)
    except Failed as error:
        wrong = str(error)
    return render(
        request, "source_sample.html", user=user, status=409 if wrong else 200, project=project, dataset=dataset,
        rows=rows, dataid=dataid, sample=found, wrong=wrong,
    )  # fmt: skip


@router.get("/sources/{project}/{dataset}/rows.csv")
async def rows_csv(
    request: Request, user: Operator, context: Ctx, project: str, dataset: str, dataid: str = "", safe: bool = False
) -> Response:
    return await download(context, request.receive, project, dataset, dataid=dataid or None, safe=safe)


# Both forms -----------------------------------------------------------------------------------------------------------
def _changed(fields: list[FieldFacts], given: dict[str, str]) -> dict[str, str | None]:
    values: dict[str, str | None] = {}
    for one in fields:
        text = given.get(one.name, "").replace("\r\n", "\n").strip()
        if f"forget_{one.name}" in given and one.origin == "bound":
            values[one.name] = None
        elif text and text != one.value:
            values[one.name] = text
        elif not text and one.origin == "bound" and one.name in given and one.name not in SECRETS:
            values[one.name] = None
    unknown = next((name for name in given if name.removeprefix("forget_") not in {one.name for one in fields}), None)
    if unknown is not None:
        raise UsageError(f"{unknown}: there is no such field")
    return values


async def _show(
    request: Request, user: Any, context: Any, project: str, dataset: str, *, given: dict[str, str] | None = None,
    wrong: str = "", done: Bound | None = None,
) -> Response:  # fmt: skip
    facts = await context.stores.ask(lambda store: get_source(store, project, dataset))
    return render(
        request, "source.html", user=user, status=409 if wrong else 200, facts=facts, project=project, dataset=dataset,
        is_operator=user.may(Role.OPERATOR), is_admin=user.may(Role.ADMIN), **_inputs(facts.fields, given),
        wrong=wrong, planned=tell(done, dry_run=True) if done else "",
    )  # fmt: skip


def _form(
    request: Request, user: Any, *, projects: list[str], project: str, dataset: str = "",
    given: dict[str, str] | None = None, wrong: str = "", done: Bound | None = None,
) -> Response:  # fmt: skip
    from opendataflow.project.bound import FIELDS

    fields = [FieldFacts(name, "", "open", "", True) for name in FIELDS]
    return render(
        request, "source_new.html", user=user, status=409 if wrong else 200, projects=projects, project=project,
        dataset=dataset, **_inputs(fields, given), wrong=wrong, planned=tell(done, dry_run=True) if done else "",
    )  # fmt: skip


def _inputs(fields: list[FieldFacts], given: dict[str, str] | None) -> dict[str, Any]:
    """What the forms ask for: the usual fields first; what was given wrongly is kept, but no secret."""
    made = [
        {
            "name": one.name, "is_secret": one.name in SECRETS, "is_bound": one.origin == "bound",
            "is_long": one.name in LONG, "hint": HINTS.get(one.name, ""),
            "value": _kept(one, given or {}),
        }
        for one in fields
        if one.may_bind
    ]  # fmt: skip
    known = {str(one["name"]): one for one in made}
    groups = [(title, [known.pop(name) for name in names if name in known]) for title, names in GROUPS]
    return {"groups": [one for one in groups if one[1]], "others": list(known.values()), "formats": FORMATS}


def _kept(one: FieldFacts, given: dict[str, str]) -> str:
    if one.name in SECRETS:
        return ""
    return given.get(one.name, one.value if one.origin == "bound" else "")


def _to(request: Request, user: User, project: str, dataset: str, said: str) -> Response:
    path = f"/sources/{quote(project, safe='')}/{quote(dataset, safe='')}"
    return RedirectResponse(request.scope.get("root_path", "") + (with_said(path, user, said) if said else path), 303)

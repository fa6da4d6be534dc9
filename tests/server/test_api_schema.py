"""Schemathesis tries the whole API as its description says, and otherwise, as each role and as nobody: never a 5xx."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from support.projects import Project
from support.web import Site

# Of each operation; with SQLite as the store half of them, but in `make faults`.
EXAMPLES = int(os.environ.get("DATAFLOW_FUZZ_EXAMPLES", "4"))
FEWER = EXAMPLES if "DATAFLOW_EVERY_FAULT" in os.environ else (EXAMPLES + 1) // 2
SLOW = ("/test", "/sample", "/rows.csv")  # each look at a source is a process of its own
SLOW_EXAMPLES = 1
NOT_OURS = ("/health", "/v1/streams/")  # open, and the intake, which test_intake_fuzz.py tries
SIGNED = "/v1/hooks/"  # by the forge; tokens mean nothing there
NO_RUNNING = ("/v1/actions/validate",)  # starts Spark where it finds something
PROJECT = """
name: shop
datasets:
  orders: {path: "orders/{dataid}.csv", format: csv, partitions: {daily: 2025-01-01}}
  totals: {path: totals, format: csv, partitions: {daily: 2025-01-01}}
  crm: {url: "sqlite:///nothing.db", table: customers}
jobs:
  load: {script: jobs/load.sh, inputs: [orders], outputs: [totals]}
pipelines:
  - slug: clean
    sources: [rates]
    destination: cleaned
    transformations: []
  - slug: leads
    mode: stream
    destination: leads
    stream: {schema: {email: string}}
"""
ROLES: tuple[str | None, ...] = (None, "viewer", "operator", "admin")
KNOWN: dict[str, Any] = {
    "project": "shop", "dataset": "orders", "job": "load", "dataid": "2025-01-01", "runid": 1, "number": 1,
    "messageid": 1, "slug": "leads", "pipeline": "clean", "name": "orders",
}  # fmt: skip


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A store to be thrown away, with something of everything in it."""
    folder = tmp_path_factory.mktemp("tried")
    server = request.getfixturevalue("postgres_server") if request.param == "postgres" else None
    store = server.new_database() if server is not None else f"sqlite:///{folder / 'state.db'}"
    project = Project(folder / "project", store)
    project.script("jobs/load.sh", 'test "$dataid" = 2025-01-01 && mkdir -p "$totals_location" && '
                   'printf "a,b\\n1,2\\n" > "$totals_location/x.csv"')  # fmt: skip
    for day in ("2025-01-01", "2025-01-02", "2025-01-03"):
        project.write(f"orders/{day}.csv", "a,b\n1,2\n")
    project.write("sources/rates.csv", "a,b\n1,2\n")
    project.apply(PROJECT)
    for day in ("2025-01-01", "2025-01-02", "2025-01-03"):
        assert project.dataflow("ready", "orders", day).returncode == 0
    assert project.dataflow("run", "load", "2025-01-01").returncode == 0
    assert project.dataflow("run", "load", "2025-01-02").returncode == 1
    with Site(project, DATAFLOW_PASSKEY="a passkey") as running:
        yield running
        _, said = running.stop()
        assert "Traceback" not in said, said


def operations(site: Site) -> list[Any]:
    import schemathesis

    description = site.script("viewer").get("/v1/openapi.json").json
    schema = schemathesis.openapi.from_dict(description)
    schema.config.update(base_url=site.url)
    found = [one.ok() for one in schema.get_all_operations()]
    return [one for one in found if not one.path.startswith(NOT_OURS)]


def known(values: Any, is_wanted: bool) -> Any:
    """Names that there are instead of those that were made up."""
    if not is_wanted or not isinstance(values, dict):
        return values
    return {name: KNOWN.get(name, value) for name, value in values.items()}


def test_every_answer_is_as_described_for_each_role_and_nobody_gets_any(site: Site) -> None:
    """Each request is sent as nobody, as a viewer, an operator and an admin, in this order."""
    statuses: dict[str | None, set[int]] = {role: set() for role in ROLES}
    wrong: list[str] = []
    tokens: dict[str | None, str | None] = {}
    with requests.Session() as session:
        for operation in operations(site):
            if not tokens or operation.path.startswith("/v1/actions/"):  # one of them revokes tokens
                tokens = {role: role and site.script(role).token for role in ROLES}
            try:
                tried(site, operation, tokens, session, statuses)
            except AssertionError as error:  # the others are tried, too
                wrong.append(str(error).partition("\nassert ")[0][:1500])
    assert wrong == []
    assert statuses[None] == {401}
    for role in ("viewer", "operator", "admin"):
        assert {200, 404, 422} <= statuses[role]
    assert 403 in statuses["viewer"] & statuses["operator"]


def is_no_address(response: requests.Response) -> bool:
    """Whoever asks: there is no route to it, or it holds a null character."""
    return "null character" in response.text or '"detail": "Not Found"' in response.text


def tried(
    site: Site, operation: Any, tokens: dict[str | None, str | None], session: requests.Session,
    statuses: dict[str | None, set[int]],
) -> None:  # fmt: skip
    """Ask so often as everybody; each answer is as the server describes it. Adds the statuses that each got."""
    import schemathesis
    from schemathesis.specs.openapi import checks

    promised = [
        checks.content_type_conformance, checks.response_schema_conformance, checks.status_code_conformance,
    ]  # fmt: skip
    modes = [operation.as_strategy(generation_mode=mode) for mode in schemathesis.GenerationMode]
    is_signed = operation.path.startswith(SIGNED)
    examples = FEWER if site.project.store.startswith("sqlite") else EXAMPLES
    may_know = not operation.path.startswith(NO_RUNNING) or operation.path.endswith("/plan")

    @seed(20250101)
    @settings(
        max_examples=SLOW_EXAMPLES if operation.path.endswith(SLOW) else examples, deadline=None, database=None,
        suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.generate],
    )  # fmt: skip
    @given(st.one_of(modes), st.booleans())
    def each(case: schemathesis.Case, is_known: bool) -> None:
        is_known = is_known and may_know
        case.path_parameters = known(case.path_parameters or {}, is_known)
        case.query = known(case.query or {}, is_known)
        case.body = known(case.body, is_known)
        for role, token in tokens.items():
            asked = case.as_transport_kwargs(base_url=site.url)
            asked["headers"].pop("Authorization", None)
            if token is not None:
                asked["headers"]["Authorization"] = f"Bearer {token}"
            with session.request(**asked, timeout=60, allow_redirects=False) as response:
                assert response.content is not None  # all of it: the connection is free again
            request = response.request
            what = f"as {role}: {request.method} {request.url} {request.body!r}: {response.text[:500]}"
            assert response.status_code < 500, what
            if not is_no_address(response):
                assert (response.status_code == 401) == (token is None or is_signed), what
                statuses[role].add(response.status_code)
            case.validate_response(response, checks=promised)

    each()


def test_the_description_is_whole(site: Site) -> None:
    assert site.visitor(None).get("/v1/openapi.json").status == 401
    told = site.script("viewer").get("/v1/openapi.json").json
    names: list[str] = []
    for path, methods in told["paths"].items():
        for verb, one in methods.items():
            where = f"{verb} {path}"
            names.append(one["operationId"])
            assert one.get("summary"), where
            assert one.get("tags"), where
            if not path.startswith(NOT_OURS):
                assert {"401", "403", "404", "409", "422"} <= set(one["responses"]), where
                assert "Needs the role" in one["description"] or "everybody" in one["description"], where
    assert len(names) == len(set(names))
    assert all(tag["description"] for tag in told["tags"])

"""Schemathesis tries what the server's own description says, hypothesis what nobody would send: never a 5xx."""

import json
from collections.abc import Iterator

import pytest
import requests
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from opendataflow.intake.reader import IntakeReader
from opendataflow.server.openapi import DESCRIPTION
from support.projects import Project
from support.servers import LEADS, Client, Server, new_token

EXAMPLES = 20
QUIETLY = settings(
    max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)  # fmt: skip


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("fuzzed")
    project = Project(folder / "project", f"sqlite:///{folder / 'state.db'}")
    project.apply(LEADS)
    with Server(project) as server:
        yield server
        assert server.stop() == (0, ""), "no error was logged"


@pytest.fixture(scope="module")
def token(fuzzed: Server) -> str:
    return new_token(fuzzed.project)


def test_whatever_is_sent_is_answered_as_the_server_describes_it(fuzzed: Server, token: str) -> None:
    import schemathesis
    from schemathesis.specs.openapi import checks

    schema = schemathesis.openapi.from_dict(DESCRIPTION)  # the intake's part of /v1/openapi.json
    schema.config.update(base_url=fuzzed.url)
    promised = [
        checks.content_type_conformance, checks.response_schema_conformance, checks.status_code_conformance,
    ]  # fmt: skip
    statuses: set[int] = set()
    for found in schema.get_all_operations():
        operation = found.ok()
        modes = [operation.as_strategy(generation_mode=mode) for mode in schemathesis.GenerationMode]

        @QUIETLY
        @given(st.one_of(modes), st.booleans())
        def each(case: schemathesis.Case, to_leads: bool) -> None:
            if to_leads:
                names = {"pipeline": "leads", "project": "crm"}
                case.path_parameters = {name: names[name] for name in case.path_parameters or {}}
            asked = case.as_transport_kwargs(base_url=fuzzed.url, headers={"Authorization": f"Bearer {token}"})
            with session.request(**asked, timeout=30) as response:
                assert response.content is not None  # all of it: the connection is free again
            statuses.add(response.status_code)
            assert response.status_code < 500, response.text
            case.validate_response(response, checks=promised)

        with requests.Session() as session:
            each()
    assert {200, 403, 422} <= statuses


VALUE = (
    st.text() | st.none() | st.integers() | st.floats() | st.sampled_from(["O'Hara", "a\nb", "; rm -rf /", "${HOME}"])
)
OBJECT = st.dictionaries(st.sampled_from(["email", "name", "age", "nmae"]), VALUE)
NASTY = [
    b"\xff\xfe", b'{"email": "\xc3\x28", "name": "x"}', b"[" * 50_000, b'{"email": ' * 500,
    b'{"email": NaN, "name": "x"}',
    b'{"email": "a", "name": "b", "age": ' + b"9" * 5000 + b"}", b'{"email": "a", "name": "b", "age": 1e400}',
    b'{"email": "a", "name": "b", "email": "c"}', b'{"email": "\\ud800", "name": "b"}', b"null", b'"x"',
    b"\x00" * 100,
    b'{"__class__": "os.system", "email": "a", "name": "b"}',
]  # fmt: skip


def test_no_body_is_a_5xx_and_what_is_accepted_fits_the_schema(fuzzed: Server, token: str) -> None:
    reader = IntakeReader(str(fuzzed.project.folder / ".dataflow" / "streams" / "crm" / "leads"))
    accepted = reader.durable_end()
    kinds = ["application/json", "application/x-ndjson"]

    @settings(QUIETLY, max_examples=200)
    @example(b'{"email": "a", "name": "b"}', kinds[0], 40)
    @given(
        st.sampled_from(NASTY) | st.binary() | (OBJECT | st.lists(OBJECT)).map(lambda one: json.dumps(one).encode()),
        st.sampled_from(kinds), st.integers(0, 40),
    )  # fmt: skip
    def each(body: bytes, kind: str, cut: int) -> None:
        nonlocal accepted
        status, told = client.post(body[: -cut or None] if cut < 10 else body, content_type=kind)
        assert status in (202, 400, 422), told
        accepted += told["count"] if status == 202 else 0

    with Client(fuzzed.port, token) as client:
        each()
    assert reader.durable_end() == accepted
    found = list(reader.items(reader.first_offset(), accepted))
    assert {"email": "a", "name": "b"} in [one.item for one in found]
    for one in found:
        assert {"email", "name"} <= one.item.keys() <= {"email", "name", "age"}
        assert all(isinstance(one.item[name], str) for name in ("email", "name"))
        assert isinstance(one.item.get("age"), int | None)

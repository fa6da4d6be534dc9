"""Who may call what: every route with its role, called for real as somebody who may not; cookies, headers, proxies."""

import asyncio
import http.client
import importlib.util
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from opendataflow.server.access import COOKIE, Viewer, local, open_to_all, owners
from opendataflow.server.http_limits import HEADERS, MOST_BODY
from opendataflow.server.stores import Stores
from opendataflow.store import open_store
from opendataflow.store.operations import Key, resubmit
from opendataflow.store.records.accounts import Role, add_account, add_token
from support.people import Person
from support.projects import Project
from support.servers import LEADS, new_token
from support.web import Site, Visitor

ROOT = Path(__file__).resolve().parents[2]
# What needs neither session nor token: a new line here is a decision.
OPEN = {
    ("GET", "/health"), ("GET", "/health/ready"),
    ("GET", "/static/…"),
    ("GET", "/login"), ("POST", "/login"),
    ("GET", "/welcome/{secret}"), ("POST", "/welcome/{secret}"),  # the secret of a link
    ("POST", "/v1/streams/{pipeline}"), ("POST", "/v1/streams/{project}/{pipeline}"),  # a stream's token
    ("POST", "/v1/hooks/git/{project}"),  # a signature
}  # fmt: skip
ROLES = ("viewer", "operator", "admin")


def _script() -> Any:
    spec = importlib.util.spec_from_file_location("routes", ROOT / "scripts/routes.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPT = _script()
ROUTES: list[tuple[str, str, str]] = SCRIPT.routes()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("access")
    project = Project(folder / "project", f"sqlite:///{folder / 'state.db'}")
    project.apply(LEADS)
    with Site(project) as server:
        yield server
        assert server.stop() == (0, ""), "no error was logged"


def filled(path: str) -> str:
    """An address of the route: its names stand for something that may or may not be there."""
    names = {"project": "crm", "pipeline": "leads", "job": "leads", "dataset": "leads", "slug": "leads"}
    return re.sub(r"\{(\w+)(?::\w+)?\}", lambda found: names.get(found[1], "1"), path).replace("…", "style.css")


# The table ------------------------------------------------------------------------------------------------------------
def test_every_route_and_action_is_documented_with_the_role_it_needs() -> None:
    text = (ROOT / "docs/reference/http-api.md").read_text()
    written = text[text.index(SCRIPT.HEAD) :]
    assert written == SCRIPT.tables(), "run scripts/routes.py, and look at what it changes"


def test_nothing_else_is_open_to_everybody() -> None:
    found = {(method, path) for method, path, role in ROUTES if role == "everybody"}
    assert found - OPEN == set()
    assert {(method, path) for method, path in OPEN if "hooks" not in path} - found == set()


def test_a_route_without_an_owner_is_not_served() -> None:
    app = FastAPI(openapi_url=None)

    async def forgotten() -> None: ...

    async def known() -> None: ...

    async def owned(user: Viewer) -> None: ...

    app.add_api_route("/owned", owned)
    app.add_api_route("/open", open_to_all(known))
    assert {one[1:] for one in owners(app)} == {("/owned", "viewer"), ("/open", "everybody")}
    app.add_api_route("/forgotten", forgotten)
    with pytest.raises(TypeError, match="/forgotten says nobody may call it"):
        list(owners(app))


# Called for real ------------------------------------------------------------------------------------------------------
OWNED = [one for one in ROUTES if one[2] != "everybody"]


@pytest.mark.parametrize(("method", "path", "role"), OWNED, ids=str)
def test_nobody_gets_anywhere(site: Site, method: str, path: str, role: str) -> None:
    address = filled(path)
    for stranger in (
        Visitor(site.url), Visitor(site.url, token="odf_guessed"), Visitor(site.url, secret="guessed"),
        Visitor(site.url, token="x" * 5000),
    ):  # fmt: skip
        answer = stranger.ask(method, address, None if method == "GET" else {})
        if method == "GET" and not path.startswith(("/v1/", "/metrics")):
            assert answer.status == 303
            assert answer.headers["location"].startswith("/login?then=/")
        else:
            assert answer.status == 401
            assert answer.headers["www-authenticate"] == "Bearer"
            assert "sign in, or give a token" in answer.words


@pytest.fixture(scope="module")
def people(site: Site) -> dict[str, Visitor]:
    return {role: site.visitor(role) for role in ROLES}


@pytest.mark.parametrize(("method", "path", "role"), OWNED, ids=str)
def test_a_smaller_role_is_refused(site: Site, people: dict[str, Visitor], method: str, path: str, role: str) -> None:
    for smaller in ROLES[: ROLES.index(role)]:
        answer = people[smaller].ask(method, filled(path), None if method == "GET" else {})
        assert answer.status == 403
        assert f"this needs the role {role}, and the-{smaller} is {smaller}" in answer.words


@pytest.fixture(scope="module")
def tokens(site: Site) -> dict[str, Visitor]:
    """An admin's tokens of each scope; and those that open nothing here."""
    store = open_store(site.project.store, actor="tests")
    try:
        add_account(store, "the-admin", Role.ADMIN)
        found = {role: add_token(store, "the-admin", role, Role[role.upper()]) for role in ROLES}
        found["revoked"] = add_token(store, "the-admin", "revoked", Role.ADMIN)
        found["expired"] = add_token(store, "the-admin", "expired", Role.ADMIN, seconds=-1)
        add_account(store, "the-disabled", Role.ADMIN)
        found["disabled"] = add_token(store, "the-disabled", "disabled", Role.ADMIN)
    finally:
        store.close()
    site.project.sql("UPDATE api_token SET revoked_at = created_at WHERE name = 'revoked'")
    site.project.sql("UPDATE account SET disabled_at = created_at WHERE username = 'the-disabled'")
    found["stream"] = new_token(site.project)
    return {name: Visitor(site.url, token=token) for name, token in found.items()}


@pytest.mark.parametrize(("method", "path", "role"), OWNED, ids=str)
def test_a_token_opens_what_its_scope_opens_and_no_more(
    site: Site, tokens: dict[str, Visitor], method: str, path: str, role: str
) -> None:
    body = None if method == "GET" else {}
    for name in ("revoked", "expired", "disabled", "stream"):
        assert tokens[name].ask(method, filled(path), body).status in (401, 303), name
    for smaller in ROLES[: ROLES.index(role)]:
        assert tokens[smaller].ask(method, filled(path), body).status == 403


@pytest.mark.parametrize(("method", "path"), [one[:2] for one in OWNED if one[0] != "GET"], ids=str)
def test_a_page_of_another_site_changes_nothing(site: Site, people: dict[str, Visitor], method: str, path: str) -> None:
    admin = people["admin"]
    cookie = {"cookie": f"{COOKIE}={admin.secret}"}
    # Without our token, with a wrong one, in the ways a foreign form can send; with the right one from a foreign page.
    for headers in (
        {}, {"x-csrf-token": "wrong"}, {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"}, {"content-type": "multipart/form-data; boundary=x"},
        {"x-csrf-token": admin.csrf, "sec-fetch-site": "cross-site"},
    ):  # fmt: skip
        sent = {"content-type": "application/json", **cookie, **headers}
        body = b"{}" if sent["content-type"] == "application/json" else b""
        answer = Visitor(site.url).ask(method, filled(path), body, **sent)
        assert answer.status == 403, (headers, answer.text)
        assert "this did not come from one of ours" in answer.words


@pytest.mark.parametrize("path", [path for method, path, _ in OWNED if method == "GET"])
def test_looking_changes_nothing_and_breaks_nothing(site: Site, people: dict[str, Visitor], path: str) -> None:
    if "rows.csv" in path or "sample" in path:
        pytest.skip("reads a source: tests of sources do that")
    before = site.project.sql("SELECT count(*) FROM web_action")
    answer = people["admin"].get(filled(path))
    assert answer.status in (200, 303, 404, 409, 422), answer.text
    assert site.project.sql("SELECT count(*) FROM web_action") == before


# Answers --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "path", ["/login", "/account", "/nothing", "/v1/me", "/v1/nothing", "/health", "/static/live.js"]
)
def test_every_answer_has_the_security_headers(site: Site, people: dict[str, Visitor], path: str) -> None:
    for answer in (people["viewer"].get(path), Visitor(site.url).get(path)):
        found = {name.lower(): value for name, value in answer.headers.items()}
        for name, value in HEADERS:
            assert found[name.decode()] in (value.decode(), "no-referrer")
        assert "strict-transport-security" not in found
        assert "cache-control" in found
        assert "server" not in found
    assert "unsafe-inline" not in found["content-security-policy"]


def test_no_page_has_inline_scripts_or_styles(people: dict[str, Visitor]) -> None:
    for path in ("/account", "/users", "/actions-log", "/actions/user-link", "/actions/token-new"):
        text = people["admin"].get(path).text
        assert re.findall(r"<script(?![^>]*\ssrc=)|<style|\sstyle=|\son\w+=|javascript:", text) == []


def test_a_body_that_is_too_large_is_not_read(site: Site) -> None:
    """Also before anybody knows who sends it."""
    for path in ("/login", "/v1/actions/user-link", "/actions/user-link"):
        connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=30)
        connection.putrequest("POST", path)
        connection.putheader("Content-Length", str(10 << 30))
        connection.endheaders()
        assert connection.getresponse().status == 413
        connection.close()
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=30)
    parts = (b" " * 65536 for _ in range(MOST_BODY // 65536 + 2))
    headers = {"content-type": "application/json"}
    connection.request("POST", "/v1/actions/user-link", parts, headers, encode_chunked=True)
    assert connection.getresponse().status in (401, 413), "refused before it is read, or while it is"
    connection.close()


@pytest.mark.parametrize("path", ["/v1/users?after=%00", "/v1/%00", "/actions-log?by=a%00", "/welcome/%00", "/%00"])
def test_a_null_character_is_refused(site: Site, path: str) -> None:
    assert site.script("admin").get(path).status == 400


@pytest.mark.parametrize("path", ["/", "/a?b=c&d=%2F", "/a/b#c", "/datasets/crm/a%20b", "/ä"])
def test_a_page_of_ours_is_gone_back_to(path: str) -> None:
    assert local(path) == path


def test_what_a_user_does_is_in_the_history_under_their_name(project: Project) -> None:
    """On both stores, also when the same connection serves others in between."""
    daily = "{path: a, partitions: {daily: 2025-01-01}}"
    project.apply(f"name: crm\ndatasets: {{a: {daily}}}\njobs: {{make: {{script: make.sh, outputs: [a]}}}}\n")
    actors = ["anna (web)", None, "bob (api)", None] * 4
    store = open_store(project.store, actor="tests")
    for number in range(len(actors)):
        store.expect_one(store.get_job("make"), f"2025-01-{number + 1:02d}")
    store.close()
    project.sql("UPDATE job_status SET status = 'FAILED'")
    stores = Stores(lambda: open_store(project.store, actor="the server"))

    async def act() -> None:
        for number, actor in enumerate(actors):
            keys = [Key("crm", "make", f"2025-01-{number + 1:02d}")]
            await stores.ask(lambda one, keys=keys: resubmit(one, keys), actor=actor)

    asyncio.run(act())
    stores.close()
    found = project.sql("SELECT actor FROM history WHERE kind = 'job' AND new_status = 'RESUBMIT' ORDER BY dataid")
    assert [row[0] for row in found] == ["anna (web)", "the server", "bob (api)", "the server"] * 4


# Behind a proxy -------------------------------------------------------------------------------------------------------
@contextmanager
def proxy(port: int, *, strips: str = "") -> Iterator[str]:
    """A reverse proxy, which takes a prefix away or leaves it; its address."""

    class Handler(BaseHTTPRequestHandler):
        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            inner = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
            path = (self.path.removeprefix(strips) or "/") if strips else self.path
            inner.request(self.command, path, body, {**headers, "X-Forwarded-For": "203.0.113.9"})
            answer = inner.getresponse()
            text = answer.read()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("connection", "content-length", "date"):
                    self.send_header(name, value)
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)
            inner.close()

        do_GET = do_POST = _pass_on

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("strips", ["/flow", ""], ids=["the prefix is stripped", "the prefix is left"])
def test_it_works_behind_a_proxy_path(sqlite_project: Project, strips: str) -> None:
    sqlite_project.apply(LEADS)
    with (
        Site(sqlite_project, options=["--root-path", "/flow", "--secure", "--proxy", "127.0.0.1"]) as site,
        proxy(site.port, strips=strips) as at,
    ):
        assert site.said["admin_link"].startswith(f"{site.url}/flow/welcome/")
        person = Person(f"{at}/flow")
        first = person.get("/account?x=1")
        assert first.headers["location"] == "/flow/login?then=/account%3Fx%3D1"
        answer = person.choose(site.said["admin_link"].rpartition("/flow")[2])
        assert (answer.status, answer.headers["location"]) == (303, "/flow/")
        assert all(re.search(r"Path=/flow; SameSite=\w+; Secure$", one) for one in person.set)
        page = person.get("/account")
        assert page.headers["strict-transport-security"] == "max-age=31536000"
        assert "203.0.113.9" in page.words, "the address that the proxy tells"
        links = re.findall(r'(?:href|src|action)="([^"#]*)"', page.text)
        assert len(links) > 10
        assert [link for link in links if not link.startswith("/flow/")] == []
        for link in links:
            if "/static/" in link:
                assert Visitor(at).get(link).status == 200
        made = person.submit("/actions/user-link", username="bob", then="/users")
        assert re.search(r'value="https://[^"]+/flow/welcome/', made.text)
        assert 'href="/flow/users"' in made.text
        login = Person(f"{at}/flow")
        assert login.login(then="/users").headers["location"] == "/flow/users"
        sent = Visitor(at, token=new_token(sqlite_project)).post(
            "/flow/v1/streams/leads", {"email": "a@b.c", "name": "A"}
        )
        assert sent.status == 202
        assert person.submit("/logout").headers["location"] == "/flow/login"
        assert Visitor(site.url).get("/health").status == Visitor(site.url).get("/flow/health").status == 200
        assert Visitor(site.url).get("/flowers/health").status == 404
        assert site.stop() == (0, "")


def test_roles_grow() -> None:
    assert [role.word for role in sorted(Role)] == list(ROLES)


def test_a_page_says_only_what_we_had_it_say(site: Site, people: dict[str, Visitor]) -> None:
    viewer = people["viewer"]
    made = viewer.submit("/actions/token-new", name="said", then="/account")
    assert made.status == 200
    tokens = {one["name"]: one["tokenid"] for one in viewer.get("/v1/tokens").json}
    done = viewer.submit("/actions/token-revoke", tokenid=tokens["said"], then="/account?x=1")
    told = done.headers["location"]
    assert told.startswith("/account?x=1&said=")
    assert "the token 'said' is revoked" in viewer.get(told).words
    assert "is revoked" not in people["admin"].get(told).words.replace("it is revoked", ""), "made for somebody else"
    assert "call this number" not in viewer.get("/account?said=call+this+number").words
    assert "call this number" not in viewer.get(told + "+call+this+number").words

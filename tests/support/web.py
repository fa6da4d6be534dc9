"""A real `dataflow serve` as people and scripts see it: signed in by role, over HTTP or in a real Chromium."""

import json
import os
import re
import shutil
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from opendataflow.server.access import COOKIE
from opendataflow.store import open_store
from opendataflow.store.records.accounts import Role, add_account, add_token, find_session, open_session
from support.servers import Server

CHROMIUM_OPTIONS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str
    cookies: tuple[str, ...] = ()

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def words(self) -> str:
        """What the page says, without its tags."""
        body = re.sub(r"<(script|style|head)\b.*?</\1>", " ", self.text, flags=re.DOTALL)
        import html

        return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())


def _answer(status: int, headers: Any, body: bytes) -> Answer:
    return Answer(status, dict(headers.items()), body.decode(), headers.get_all("set-cookie") or [])


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class Visitor:
    """Somebody with a browser's cookie, with a token, or with nothing."""

    def __init__(self, url: str, *, secret: str = "", csrf: str = "", token: str = "") -> None:
        self.url, self.secret, self.csrf, self.token = url, secret, csrf, token
        self._open = urllib.request.build_opener(_NoRedirect()).open

    def ask(self, method: str, path: str, body: Any = None, *, form: bool = False, **headers: str) -> Answer:
        sent = {"accept": "text/html" if not path.startswith("/v1") else "application/json"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        if self.secret:
            sent["cookie"] = f"{COOKIE}={self.secret}"
        if self.token:
            sent["authorization"] = f"Bearer {self.token}"
        data = None
        if form:
            data = urllib.parse.urlencode({"csrf": self.csrf, **(body or {})}, doseq=True).encode()
            sent["content-type"] = "application/x-www-form-urlencoded"
        elif body is not None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            sent.setdefault("content-type", "application/json")
            if self.csrf:
                sent.setdefault("x-csrf-token", self.csrf)
        request = urllib.request.Request(self.url + path, data, sent, method=method)  # noqa: S310
        try:
            with self._open(request, timeout=60) as answer:
                return _answer(answer.status, answer.headers, answer.read())
        except urllib.error.HTTPError as error:
            return _answer(error.code, error.headers, error.read())

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        """JSON, as scripts send it."""
        return self.ask("POST", path, {} if body is None else body, **headers)

    def submit(self, path: str, **fields: Any) -> Answer:
        """A form, as a browser sends it, with the session's CSRF token."""
        return self.ask("POST", path, fields, form=True)

    def act(self, name: str, **asked: Any) -> Any:
        """An action over the API, which must succeed."""
        answer = self.post(f"/v1/actions/{name}", asked)
        assert answer.status == 200, answer.text
        return answer.json


class Site(Server):
    """The server of a project, and visitors to it."""

    def visitor(self, role: str | None) -> Visitor:
        """Signed in with an account of that role, as a browser; None: nobody."""
        if role is None:
            return Visitor(self.url)
        store = open_store(self.project.store, actor="tests")
        try:
            add_account(store, f"the-{role}", Role[role.upper()])
            secret = open_session(store, f"the-{role}")
            session = find_session(store, secret)
            assert session is not None
            return Visitor(self.url, secret=secret, csrf=session.csrf)
        finally:
            store.close()

    def script(self, role: str) -> Visitor:
        """With a token of that role."""
        store = open_store(self.project.store, actor="tests")
        try:
            add_account(store, f"the-{role}", Role[role.upper()])
            return Visitor(self.url, token=add_token(store, f"the-{role}", "tests", Role[role.upper()]))
        finally:
            store.close()


class _Chromium:
    """A real Chromium, started when it is first asked for."""

    def __init__(self) -> None:
        self._playwright: Any = None
        self._browser: Any = None

    def get(self) -> Any:
        if self._browser is not None and not self._browser.is_connected():
            self.close()
        if self._browser is None:
            from playwright.sync_api import sync_playwright

            path = os.environ.get("DATAFLOW_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
            assert path, "Chromium is needed: apt-get install -y chromium"
            self._playwright = sync_playwright().start()
            self._browser = self._playwright.chromium.launch(executable_path=path, args=CHROMIUM_OPTIONS)
        return self._browser

    def close(self) -> None:
        if self._browser is not None:
            self._browser.close()
        if self._playwright is not None:
            self._playwright.stop()
        self._playwright = self._browser = None


CHROMIUM = _Chromium()


@contextmanager
def browser(site: Site, role: str | None = "operator", **options: Any) -> Iterator[Any]:
    """A page of a real Chromium, signed in. `options` are those of a Playwright context: viewport, color_scheme, …

    What the page's scripts raise, and what the Content-Security-Policy refuses, fails the test.
    """
    context = CHROMIUM.get().new_context(base_url=site.url, **options)
    try:
        if role is not None:
            secret = site.visitor(role).secret
            context.add_cookies([{"name": COOKIE, "value": secret, "url": site.url}])
        page = context.new_page()
        wrong: list[str] = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        page.set_default_timeout(60_000)
        yield page
        page.close()
    finally:
        context.close()
    assert wrong == []

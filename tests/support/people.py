"""People with browsers: they keep cookies, fill in forms as the pages give them, and follow where they are sent."""

import html
import re
import urllib.parse

from opendataflow.server.access import COOKIE
from support.web import Answer, Visitor

PASSWORD = "correct horse battery"
OTHER = "a staple is no battery"


class Person(Visitor):
    """Starts as nobody."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.cookies: dict[str, str] = {}
        self.set: list[str] = []  # Set-Cookie, as it last came

    def ask(self, method: str, path: str, body: object = None, *, form: bool = False, **headers: str) -> Answer:
        if self.cookies:
            headers.setdefault("cookie", "; ".join(f"{name}={value}" for name, value in self.cookies.items()))
        answer = super().ask(method, path, body, form=form, **headers)
        self.set = answer.cookies
        for one in answer.cookies:
            name, _, value = one.partition(";")[0].partition("=")
            self.cookies[name] = value.strip('"')
            if not self.cookies[name]:
                del self.cookies[name]
        found = re.search(r'(?:name="csrf" value|data-csrf)="([^"]+)"', answer.text)
        self.csrf = html.unescape(found[1]) if found else self.csrf
        return answer

    @property
    def session(self) -> str:
        return self.cookies.get(COOKIE, "")

    def choose(self, link: str, username: str = "anna", password: str = PASSWORD, again: str | None = None) -> Answer:
        """Open a link and fill in its form."""
        path = urllib.parse.urlsplit(link).path
        opened = self.get(path)
        if opened.status != 200:
            return opened
        fields = {"username": username, "password": password, "again": password if again is None else again}
        return self._then(self.submit(path, **fields))

    def login(self, username: str = "anna", password: str = PASSWORD, then: str = "/", **headers: str) -> Answer:
        self.get(f"/login?{urllib.parse.urlencode({'then': then})}")
        fields = {"username": username, "password": password, "then": then}
        return self._then(self.ask("POST", "/login", fields, form=True, **headers))

    def _then(self, answer: Answer) -> Answer:
        """A browser that was let in goes on to a page, whose forms have the session's token."""
        came = self.set
        if answer.status == 303:
            self.get("/account")
        self.set = came
        return answer

"""Accounts over HTTP: links, login, throttling, sessions, tokens, the commands."""

import re
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from opendataflow.server.access import COOKIE
from opendataflow.server.accounts.login import DEVICE, GUEST
from opendataflow.store.records.logins import OF_PAIR
from support.people import OTHER, PASSWORD, Person
from support.processes import wait_for
from support.projects import Project
from support.web import Site, Visitor


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server with the admin anna, who chose her password by the link."""
    folder = tmp_path_factory.mktemp("accounts")
    project = Project(folder / "project", f"sqlite:///{folder / 'state.db'}")
    project.apply("name: crm\n")
    with Site(project, options=("--proxy", "127.0.0.1")) as server:
        assert Person(server.url).choose(server.said["admin_link"]).status == 303
        yield server
        assert server.stop() == (0, ""), "no error was logged"


@pytest.fixture
def anna(site: Site) -> Person:
    site.project.sql("DELETE FROM login_failure")
    person = Person(site.url)
    assert person.login().status == 303
    return person


def new_link(site: Site, name: str, role: str = "viewer") -> str:
    done = site.project.dataflow("user", "link", name, "--role", role, "--url", site.url)
    assert done.returncode == 0, done.stderr
    return str(done.stdout.strip())


@pytest.fixture
def bob(site: Site, anna: Person) -> Person:
    """A viewer, signed in; each time with a new password."""
    site.project.dataflow("user", "enable", "bob")
    person = Person(site.url)
    assert person.choose(new_link(site, "bob"), "bob").status == 303
    assert site.project.dataflow("user", "role", "bob", "viewer").returncode == 0
    return person


# Links ---------------------------------------------------------------------------------------------------------------
def test_looking_at_a_link_uses_nothing_up(site: Site) -> None:
    link = new_link(site, "carl").removeprefix(site.url)
    for _ in range(3):
        page = Person(site.url).get(link)
        assert page.status == 200
        assert page.headers["cache-control"] == "no-store"
        assert page.headers["referrer-policy"] == "no-referrer"
    assert Person(site.url).choose(link, "ignored").status == 303
    assert Person(site.url).get(link).status == 404


@pytest.mark.parametrize(
    ("password", "again", "said"),
    [
        ("short", None, "at least 10 characters"),
        ("aaaaaaaaaaaaaaaa", None, "too easy to guess"),
        ("dianadianadiana", None, "too easy to guess"),
        (PASSWORD, OTHER, "the two passwords differ"),
        ("x" * 2000, None, "at most 1000 characters"),
    ],
)
def test_a_weak_password_is_refused_and_the_link_still_works(
    site: Site, password: str, again: str | None, said: str
) -> None:
    link = new_link(site, "diana")
    person = Person(site.url)
    answer = person.choose(link, "diana", password, again)
    assert answer.status == 422
    assert said in answer.words
    assert password not in answer.text
    assert Person(site.url).get(link.removeprefix(site.url)).status == 200


# Login ----------------------------------------------------------------------------------------------------------------
def test_a_session_is_a_cookie_that_scripts_cannot_read(site: Site) -> None:
    person = Person(site.url)
    answer = person.login("ANNA ", PASSWORD, then="/account?a=1&b=2")
    assert (answer.status, answer.headers["location"]) == (303, "/account?a=1&b=2")
    cookies = {one.partition("=")[0]: one for one in person.set}
    assert cookies.keys() == {COOKIE, DEVICE, GUEST}
    for name in (COOKIE, DEVICE):
        assert re.search(r"; HttpOnly; Max-Age=\d+; Path=/; SameSite=lax$", cookies[name])
    assert person.get("/account").status == 200


def test_a_page_leads_to_the_login_and_back(site: Site) -> None:
    answer = Person(site.url).get("/actions-log?by=anna&before=9")
    assert (answer.status, answer.headers["location"]) == (303, "/login?then=/actions-log%3Fby%3Danna%26before%3D9")
    page = Person(site.url).get(answer.headers["location"])
    assert 'name="then" value="/actions-log?by=anna&amp;before=9"' in page.text


@pytest.mark.parametrize(
    "then",
    ["//evil.example", "https://evil.example", "/\\evil.example", "\\\\evil.example", "/\t/evil.example",
     "javascript:alert(1)", "/\n/evil.example", " //evil.example", "", "/\u2028/evil.example"],
)  # fmt: skip
def test_the_login_leads_nowhere_else(site: Site, anna: Person, then: str) -> None:
    assert Person(site.url).login(then=then).headers["location"] == "/"
    signed_in = anna.get(f"/login?then={quote(then)}")
    assert (signed_in.status, signed_in.headers["location"]) == (303, "/")


@pytest.mark.parametrize("name", ["anna", "nobody", "not a name", "", "carl' OR '1'='1"])
def test_a_wrong_password_and_an_unknown_name_are_told_the_same(site: Site, anna: Person, name: str) -> None:
    answer = Person(site.url).login(name, "not the password")
    assert answer.status == 401
    assert "this user name and password do not belong together" in answer.words
    assert "not the password" not in answer.text


def test_an_unknown_name_takes_as_long(site: Site, anna: Person) -> None:
    def seconds(name: str) -> float:
        person, found = Person(site.url), []
        person.get("/login")
        for _ in range(5):
            start = time.perf_counter()
            assert person.submit("/login", username=name, password="not the password").status == 401
            found.append(time.perf_counter() - start)
        return min(found)

    known, unknown = seconds("anna"), seconds("nobody")
    assert unknown > known / 2


def test_a_login_form_of_another_site_is_refused(site: Site) -> None:
    person = Person(site.url)
    fields = {"username": "anna", "password": PASSWORD}
    assert person.ask("POST", "/login", fields, form=True).status == 403, "no page was loaded before"
    person.get("/login")
    stolen = person.csrf
    other = Person(site.url)
    other.get("/login")
    other.csrf = stolen
    assert other.ask("POST", "/login", fields, form=True).status == 403, "the token of somebody else"
    assert person.ask("POST", "/login", fields, form=True, sec_fetch_site="cross-site").status == 403
    assert person.ask("POST", "/login", fields, form=True, sec_fetch_site="same-site").status == 403
    assert person.ask("POST", "/login", fields, form=True, sec_fetch_site="same-origin").status == 303


def test_a_session_is_never_one_that_the_browser_came_with(site: Site, anna: Person) -> None:
    before = anna.session
    fixed = Person(site.url)
    fixed.cookies[COOKIE] = "chosen-by-somebody-else"
    assert fixed.login().status == 303
    assert fixed.session not in ("chosen-by-somebody-else", before)
    again = Person(site.url)
    again.get("/login")
    again.cookies[COOKIE] = before
    assert again.submit("/login", username="anna", password=PASSWORD).status == 303
    wait_for(lambda: anna.get("/account").status == 303, "a new login ends the one before")


def test_too_many_failures_are_refused_also_with_the_right_password(site: Site, anna: Person) -> None:
    stranger = Person(site.url)
    assert [stranger.login("anna", "wrong password").status for _ in range(OF_PAIR)] == [401] * OF_PAIR
    refused = stranger.login("anna", PASSWORD)
    assert refused.status == 429
    assert 800 < int(refused.headers["retry-after"]) <= 900
    assert "try again in 15 minutes" in refused.words
    elsewhere = Person(site.url)
    assert elsewhere.login("anna", PASSWORD, x_forwarded_for="192.0.2.7").status == 303, "another address, by the proxy"
    known = Person(site.url)
    known.cookies[DEVICE] = anna.cookies[DEVICE]
    assert known.login("anna", PASSWORD).status == 303, "a browser that was here before"
    site.project.sql("DELETE FROM login_failure")


def test_a_flood_of_logins_leaves_the_pages_answering(site: Site, anna: Person) -> None:
    people = [Person(site.url) for _ in range(30)]
    threads = [
        threading.Thread(target=person.login, args=(f"flood{number}", "wrong password"))
        for number, person in enumerate(people)
    ]
    for thread in threads:
        thread.start()
    answers = 0
    while any(thread.is_alive() for thread in threads):
        assert anna.get("/v1/me").status == 200
        answers += 1
    assert answers > 10, "they wait neither for the logins nor behind them"
    site.project.sql("DELETE FROM login_failure")


# Sessions -------------------------------------------------------------------------------------------------------------
def test_logging_out_ends_the_session_itself(site: Site, anna: Person) -> None:
    thief = Visitor(site.url, secret=anna.session)
    assert thief.get("/account").status == 200
    anna.get("/account")
    assert anna.get("/logout").status == 405
    assert anna.submit("/logout").headers["location"] == "/login"
    assert anna.session == ""
    assert thief.get("/account").status == 303, "the cookie is worth nothing, at once"


def test_signing_out_everywhere_ends_all_sessions(site: Site, anna: Person) -> None:
    other = Person(site.url)
    other.login()
    anna.get("/account")
    assert anna.submit("/logout", everywhere="yes").status == 303
    assert other.get("/account").status == 303


def test_one_session_of_several_is_ended(site: Site, bob: Person) -> None:
    other = Person(site.url)
    other.login("bob", user_agent="Lynx/2.9")
    page = bob.get("/account")
    assert "Lynx/2.9" in page.words
    [ended] = re.findall(r"/actions/session-end\?session=([0-9a-f]{16})", page.text)
    assert bob.submit("/actions/session-end", session=ended).status == 303
    assert (other.get("/account").status, bob.get("/account").status) == (303, 200)


def test_a_new_password_ends_the_other_sessions_and_asks_for_the_old_one(site: Site, bob: Person) -> None:
    other = Person(site.url)
    assert other.login("bob").status == 303
    bob.get("/account")
    for fields, status in (
        ({"current": "wrong password", "password": OTHER, "again": OTHER}, 403),
        ({"current": PASSWORD, "password": "short", "again": "short"}, 422),
        ({"current": PASSWORD, "password": OTHER, "again": PASSWORD}, 422),
        ({"current": PASSWORD, "password": OTHER, "again": OTHER}, 303),
    ):
        assert bob.submit("/account/password", **fields).status == status
    assert (other.get("/account").status, bob.get("/account").status) == (303, 200)
    assert Person(site.url).login("bob", PASSWORD).status == 401
    assert Person(site.url).login("bob", OTHER).status == 303


def test_a_reset_link_ends_all_sessions_once_it_is_used(site: Site, anna: Person, bob: Person) -> None:
    anna.get("/users")
    page = anna.submit("/actions/user-link", username="bob", role="admin", then="/users")
    assert page.status == 200
    assert page.headers["cache-control"] == "no-store"
    found = re.search(r'value="(http://[^"]+/welcome/[\w-]+)"', page.text)
    assert found is not None
    assert bob.get("/account").status == 200
    assert Person(site.url).choose(found[1], "ignored", OTHER).status == 303
    assert bob.get("/account").status == 303
    again = Person(site.url)
    assert again.login("bob", OTHER).status == 303
    assert again.get("/v1/me").json == {"username": "bob", "role": "viewer", "by": "session"}, "the role stays"


def test_a_disabled_account_is_out(site: Site, anna: Person, bob: Person) -> None:
    token = Visitor(site.url, token=bob.post("/v1/actions/token-new", {"name": "t"}).json["once"])
    assert token.get("/v1/me").json["by"] == "token"
    assert anna.get("/users").status == 200
    assert anna.submit("/actions/user-disable", username="bob").status == 303
    assert (bob.get("/account").status, token.get("/v1/me").status) == (303, 401), "at once on the same server"
    assert Person(site.url).login("bob").status == 401
    anna.post("/v1/actions/user-enable", {"username": "bob"})
    assert token.get("/v1/me").status == 200
    done = site.project.dataflow("user", "disable", "bob")
    assert done.returncode == 0, done.stderr
    wait_for(lambda: token.get("/v1/me").status == 401, "it is out, though it was disabled elsewhere")
    assert Person(site.url).login("bob").status == 401
    assert site.project.dataflow("user", "enable", "bob").returncode == 0


def test_the_last_admin_cannot_be_taken_away(site: Site, anna: Person) -> None:
    for name, more in (("user-disable", {}), ("user-role", {"role": "viewer"})):
        answer = anna.post(f"/v1/actions/{name}", {"username": "anna", **more})
        assert answer.status == 409
        assert "anna is the only admin" in answer.json["detail"]
    done = site.project.dataflow("user", "role", "anna", "viewer")
    assert (done.returncode, "the only admin" in done.stderr) == (2, True)


# Tokens and commands --------------------------------------------------------------------------------------------------
def test_a_token_is_shown_once_does_what_its_scope_says_and_is_revoked(site: Site, anna: Person) -> None:
    anna.get("/account")
    page = anna.submit("/actions/token-new", name="nightly", scope="viewer", days="3", then="/account")
    assert (page.status, page.headers["cache-control"]) == (200, "no-store")
    found = re.search(r'value="(odf_[\w-]{40,})"', page.text)
    assert found is not None
    token = Visitor(site.url, token=found[1])
    assert token.get("/v1/me").json == {"username": "anna", "role": "viewer", "by": "token"}
    assert token.get("/v1/users").status == 403
    assert found[1] not in anna.get("/account").text

    def nightly() -> Any:
        [one] = [one for one in anna.get("/v1/tokens").json if one["name"] == "nightly"]
        return one

    wait_for(lambda: nightly()["last_used_at"], "its use is noted")
    one = nightly()
    assert token.post("/v1/actions/token-new", {"name": "another"}).status == 403, "it makes no others"
    assert token.ask("POST", "/logout", {}, form=True).status == 403
    assert anna.post("/v1/actions/token-revoke", {"tokenid": one["tokenid"]}).status == 200
    assert token.get("/v1/me").status == 401


def test_not_even_an_admins_token_makes_what_outlives_it(site: Site, anna: Person, bob: Person) -> None:
    token = anna.post("/v1/actions/token-new", {"name": "deploy", "scope": "admin", "days": 1}).json["once"]
    script = Visitor(site.url, token=token)
    assert script.get("/v1/users").status == 200
    for name, asked in (
        ("user-link", {"username": "mallory", "role": "admin"}), ("user-link", {"username": "anna"}),
        ("user-role", {"username": "bob", "role": "admin"}), ("user-enable", {"username": "bob"}),
    ):  # fmt: skip
        for path in (f"/v1/actions/{name}", f"/v1/actions/{name}/plan"):
            answer = script.post(path, asked)
            assert (answer.status, "a token cannot do this" in answer.text) == (403, True), path
    assert bob.get("/v1/me").json["role"] != "admin"


def test_nobody_revokes_the_tokens_of_others_but_an_admin(site: Site, anna: Person, bob: Person) -> None:
    annas = anna.post("/v1/actions/token-new", {"name": "hers"}).json
    bobs = Visitor(site.url, token=bob.post("/v1/actions/token-new", {"name": "his"}).json["once"])
    other = bob.post("/v1/actions/token-new", {"name": "his other"}).json
    assert annas["once"].startswith("odf_")
    assert other["once"].startswith("odf_")
    ids = {one["name"]: one["tokenid"] for one in anna.get("/v1/tokens?everybody=true&limit=1000").json}
    assert bob.get("/v1/tokens?everybody=true").text.count('"hers"') == 0
    assert bob.post("/v1/actions/token-revoke", {"tokenid": ids["hers"]}).status == 404
    assert bobs.post("/v1/actions/token-revoke", {"tokenid": ids["his other"]}).status == 404
    assert bobs.post("/v1/actions/token-revoke", {"tokenid": ids["his"]}).status == 200
    assert anna.post("/v1/actions/token-revoke", {"tokenid": ids["his other"]}).status == 200
    assert bob.post("/v1/actions/token-new", {"name": "x", "scope": "operator"}).status == 409


def test_the_commands_do_the_same(site: Site, anna: Person) -> None:
    made = site.project.dataflow("token", "new", "--user", "anna", "--name", "by hand", "--scope", "operator")
    assert made.returncode == 0, made.stderr
    token = Visitor(site.url, token=made.stdout.strip())
    assert token.get("/v1/me").json["role"] == "operator"
    [one] = [one for one in site.project.json("token", "list", "--user", "anna") if one["name"] == "by hand"]
    assert one["scope"] == "operator"
    assert made.stdout.strip() not in site.project.dataflow("token", "list").stdout
    assert site.project.dataflow("token", "revoke", str(one["tokenid"])).returncode == 0
    wait_for(lambda: token.get("/v1/me").status == 401, "the revoked token is refused")
    assert site.project.dataflow("token", "revoke", str(one["tokenid"])).returncode == 2
    assert site.project.dataflow("user", "role", "nobody", "viewer").returncode == 2
    assert site.project.dataflow("user", "role", "anna", "king").returncode == 2
    assert {one["username"]: one["role"] for one in site.project.json("user", "list")}["anna"] == "admin"


def test_what_was_done_names_who_did_it(site: Site, anna: Person, bob: Person) -> None:
    anna.post("/v1/actions/user-role", {"username": "bob", "role": "operator"})
    [latest] = anna.get("/v1/actions-log?limit=1").json
    assert {name: latest[name] for name in ("username", "action", "target")} == {
        "username": "anna", "action": "user-role", "target": "bob",
    }  # fmt: skip
    assert latest["detail"] == {"username": "bob", "role": "operator"}
    page = bob.get("/actions-log?by=anna")
    assert page.status == 200, "an operator by now"
    assert "user-role bob" in page.words
    assert "sign-in" in anna.get("/actions-log").words

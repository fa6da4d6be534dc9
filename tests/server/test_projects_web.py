"""Projects over HTTP and in a browser: added, pulled, refused, rolled back; webhooks; secrets that nobody can find."""

import contextlib
import hashlib
import hmac
import json
import os
import socket
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support.gits import SCRIPTS, SUM_UP, Origin, served
from support.processes import command_lines, wait_for
from support.projects import Project
from support.web import Answer, Site, Visitor, browser

PASSKEY, TOKEN = "correct horse battery", "token-nobody-may-see/9%4"


class World(NamedTuple):
    site: Site
    origin: Origin
    ops: Project
    folder: Path

    @property
    def operator(self) -> Visitor:
        return self.site.script("operator")

    @property
    def admin(self) -> Visitor:
        return self.site.script("admin")

    def shop(self) -> dict[str, Any]:
        return dict(self.operator.get("/v1/projects/shop").json)

    def done(self, task: int) -> dict[str, Any]:
        """A task at its end."""
        who = self.operator

        def ended() -> Any:
            found = who.get(f"/v1/project-tasks/{task}").json
            return None if found["is_open"] else found

        return dict(wait_for(ended, f"task {task} to end", seconds=90))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A server over an empty store, and a project that was added through it, over HTTP with a password."""
    folder = tmp_path_factory.mktemp("projects")
    ops = Project(folder / "ops", f"sqlite:///{folder / 'state' / 'state.db'}")
    home = Project(folder / "other", ops.store)
    home.apply("name: Other\nenvironments: {dev: {root: ./data}}\n")
    (folder / "tmp").mkdir()
    origin = Origin(folder / "origin")
    origin.shop()
    with (
        served(folder / "origin", username="robot", password=TOKEN) as url,
        Site(ops, DATAFLOW_PASSKEY=PASSKEY, DATAFLOW_HOME=str(folder / "work"), TMPDIR=str(folder / "tmp")) as site,
    ):
        made = World(site, origin, ops, folder)
        asked = {"url": f"{url}/shop.git", "username": "robot", "token": TOKEN}
        end = made.done(made.admin.act("project-add", **asked)["result"]["task"])
        assert end["state"] == "DONE", end
        yield made


@pytest.fixture
def good(world: World) -> str:
    """The branch is good, and in place; the commit."""
    world.origin.write("project.yml", SCRIPTS)
    world.origin.write("note", os.urandom(8).hex())
    commit = world.origin.push("a good one")
    assert world.done(world.operator.act("project-pull", project="shop")["result"]["task"])["state"] == "DONE"
    return commit


def test_a_private_repository_is_added_and_shown(world: World) -> None:
    shop = world.shop()
    assert (shop["branch"], shop["credential"], shop["username"]) == ("main", "token", "robot")
    assert shop["url"].startswith("http://127.0.0.1")
    page = world.site.visitor("viewer").get("/projects/shop")
    assert shop["commit"] in page.text
    assert "project-pull" not in page.text, "viewers look"
    listed = {one["project"]: one for one in world.operator.get("/v1/projects").json["items"]}
    assert listed["shop"]["commit"] == shop["commit"]
    assert listed["other"]["url"] is None
    assert "apply" in world.site.visitor("viewer").get("/projects/other").words


def test_a_pull_puts_the_newest_commit_in_place_under_the_users_name(world: World, good: str) -> None:
    shop = world.shop()
    assert (shop["commit"], shop["versions"][0]["commit"]) == (good, good)
    assert shop["versions"][0]["switched_by"] == "the-operator (api)"


def test_a_refused_commit_is_shown_with_every_error_and_the_old_one_stays(world: World, good: str) -> None:
    world.origin.write("project.yml", SCRIPTS.replace("[orders]", "[ordres]").replace("format: csv}", "format: xls}"))
    bad = world.origin.push("a bad one")
    end = world.done(world.operator.act("project-pull", project="shop")["result"]["task"])
    assert end["state"] == "REFUSED"
    shop = world.shop()
    assert (shop["commit"], shop["refused"]["commit"]) == (good, bad)
    assert len(shop["problems"]) >= 2
    words = world.site.visitor("viewer").get("/projects/shop").words
    for one in shop["problems"]:
        assert f"{one['file']}:{one['line']} {one['message']}" in words
        assert one["next_step"] in words
    assert "1 error" in words or "errors" in words
    assert "refused" in world.site.visitor("viewer").get("/projects").words


def test_a_rollback_goes_to_the_version_that_was_chosen(world: World, good: str) -> None:
    earlier = world.shop()["versions"][-1]["commit"]
    plan = world.operator.post("/v1/actions/project-rollback/plan", {"project": "shop"}).json
    assert any(earlier.startswith(row[0]) for row in plan["rows"])
    end = world.done(world.operator.act("project-rollback", project="shop", commit=earlier[:12])["result"]["task"])
    assert end["state"] == "DONE", end
    assert world.shop()["commit"] == earlier


@pytest.mark.parametrize(
    ("action", "asked", "least"),
    [
        ("project-pull", {"project": "shop"}, "operator"),
        ("project-rollback", {"project": "shop"}, "operator"),
        ("project-add", {"url": "https://example.com/x.git"}, "admin"),
        ("project-remove", {"project": "shop"}, "admin"),
        ("project-credential", {"project": "shop", "token": "x"}, "admin"),
        ("project-hook", {"project": "shop"}, "admin"),
    ],
)
def test_who_may_do_what(world: World, action: str, asked: dict[str, str], least: str) -> None:
    roles = ["viewer", "operator", "admin"]
    for role in roles[: roles.index(least)]:
        assert world.site.script(role).post(f"/v1/actions/{action}", asked).status == 403
    assert world.site.visitor(None).post(f"/v1/actions/{action}", asked).status == 401
    assert world.site.script(least).post(f"/v1/actions/{action}/plan", asked).status == 200
    if "project" in asked:
        unknown = world.site.script(least).post(f"/v1/actions/{action}/plan", {**asked, "project": "nobody"})
        assert unknown.status == 404


def test_addresses_that_could_run_something_are_refused(world: World) -> None:
    for url in ("ext::sh -c id", "-x", "file:///no/such", "http://example.com/x.git", "https://a:b@example.com/x.git"):
        answer = world.admin.post("/v1/actions/project-add", {"url": url})
        assert answer.status == 409, (url, answer.text)


# Webhooks -------------------------------------------------------------------------------------------------------------
@pytest.fixture
def secret(world: World) -> str:
    answer = world.admin.post("/v1/actions/project-hook", {"project": "shop"})
    assert answer.status == 200, answer.text
    return str(answer.json["once"])


def sign(secret: str, body: bytes) -> str:
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def push_of(branch: str = "main") -> bytes:
    return json.dumps({"ref": f"refs/heads/{branch}", "after": "0" * 40}).encode()


def hear(world: World, body: bytes, project: str = "shop", **headers: str) -> Answer:
    return world.site.visitor(None).post(f"/v1/hooks/git/{project}", body, **headers)


@pytest.mark.parametrize("forge", ["github", "gitea", "forgejo", "gitlab"])
def test_a_push_that_a_forge_tells_of_is_pulled(world: World, good: str, secret: str, forge: str) -> None:
    world.origin.write("note", f"{forge} {time.time()}")
    commit = world.origin.push(f"pushed to {forge}")
    body = push_of()
    headers = {
        "github": {"x_github_event": "push", "x_hub_signature_256": f"sha256={sign(secret, body)}"},
        "gitea": {"x_gitea_event": "push", "x_gitea_signature": sign(secret, body)},
        "forgejo": {"x_forgejo_event": "push", "x_forgejo_signature": sign(secret, body)},
        "gitlab": {"x_gitlab_event": "Push Hook", "x_gitlab_token": secret},
    }[forge]
    answer = hear(world, body, **headers)
    assert answer.status == 202, answer.text
    assert world.done(answer.json["task"])["state"] == "DONE"
    shop = world.shop()
    assert (shop["commit"], shop["versions"][0]["how"], shop["versions"][0]["switched_by"]) == (
        commit, "hook", "webhook",
    )  # fmt: skip


def test_senders_whom_nobody_knows_hold_up_no_signed_push(world: World, secret: str) -> None:
    """Their bodies never come; that of the forge is answered at once."""
    address = urllib.parse.urlsplit(world.site.url)
    head = f"POST /v1/hooks/git/shop HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Length: 2\r\n"
    with contextlib.ExitStack() as lines:
        for _ in range(32):
            line = lines.enter_context(socket.create_connection((address.hostname, address.port), timeout=60))
            line.sendall(f"{head}X-Hub-Signature-256: sha256={'0' * 64}\r\n\r\n{{".encode())
        body = push_of("another")
        answer = hear(world, body, x_github_event="push", x_hub_signature_256=f"sha256={sign(secret, body)}")
        assert (answer.status, answer.json["said"]) == (202, "nothing is to be done: another is not followed")


def test_what_is_not_signed_with_the_secret_is_refused(world: World, secret: str) -> None:
    body = push_of()
    right = sign(secret, body)
    before = len(world.shop()["tasks"])
    wrong: list[tuple[bytes, dict[str, str]]] = [
        (body, {}),
        (body, {"x_hub_signature_256": "sha256=" + "0" * 64}),
        (body, {"x_hub_signature_256": ""}),
        (body + b" ", {"x_hub_signature_256": f"sha256={right}"}),
        (body, {"x_hub_signature_256": f"sha256={right}", "x_gitea_signature": "0" * 64}),
        (body, {"x_hub_signature": f"sha1={right[:40]}"}),
        (body, {"x_gitlab_token": "no"}),
        (body, {"x_gitlab_token": ""}),
    ]
    for sent, headers in wrong:
        answer = hear(world, sent, **headers)
        assert answer.status == 401, headers
    for project in ("other", "nobody"):
        unknown = hear(world, body, project, x_hub_signature_256=f"sha256={right}")
        assert unknown.text == answer.text, "nobody learns which projects there are"
    assert len(world.shop()["tasks"]) == before


def test_other_branches_events_and_bodies_pull_nothing(world: World, secret: str) -> None:
    before = world.shop()["tasks"][0]["taskid"]

    def signed(body: bytes, **headers: str) -> Answer:
        return hear(world, body, x_hub_signature_256=f"sha256={sign(secret, body)}", **headers)

    assert "dev is not followed" in signed(push_of("dev")).json["said"]
    assert "no push" in signed(b"{}", x_github_event="ping").json["said"]
    assert "no push" in signed(json.dumps({"ref": "refs/tags/v1"}).encode()).json["said"]
    for body in (b"", b"[]", b"{}", b"not json", b'{"ref": 1}'):
        assert signed(body).status == 422, body
    assert world.shop()["tasks"][0]["taskid"] == before


def test_a_new_secret_ends_the_old_one(world: World, secret: str) -> None:
    body = push_of("dev")
    new = world.admin.post("/v1/actions/project-hook", {"project": "shop"}).json["once"]
    assert hear(world, body, x_hub_signature_256=f"sha256={sign(secret, body)}").status == 401
    assert hear(world, body, x_hub_signature_256=f"sha256={sign(new, body)}").status == 202


def test_a_webhook_that_comes_again_does_not_undo_a_rollback(world: World, good: str, secret: str) -> None:
    end = world.done(world.operator.act("project-rollback", project="shop")["result"]["task"])
    there = end["commit"]
    assert there != good
    body = push_of()
    for _ in range(2):
        answer = hear(world, body, x_hub_signature_256=f"sha256={sign(secret, body)}")
        assert "was rolled back" in world.done(answer.json["task"])["said"]
    assert world.shop()["commit"] == there
    assert world.done(world.operator.act("project-pull", project="shop")["result"]["task"])["state"] == "DONE"
    assert world.shop()["commit"] == good, "a person's pull does"


# Secrets --------------------------------------------------------------------------------------------------------------
def test_secrets_are_nowhere_to_be_found(world: World, good: str, secret: str) -> None:
    """Not in the store, the folders, what pages and the API say, nor in any list of processes, while a pull runs."""
    seen = []
    task = world.operator.act("project-pull", project="shop")["result"]["task"]
    while world.operator.get(f"/v1/project-tasks/{task}").json["is_open"]:
        seen.append(command_lines())
    assert seen
    assert any(b"project\0work" in one for one in seen), "it was looked at while it ran"
    for lines in seen:
        assert TOKEN.encode() not in lines
    dump = b"".join(path.read_bytes() for path in (world.folder / "state").iterdir())
    files = b"".join(path.read_bytes() for path in (world.folder / "work").rglob("*") if path.is_file())
    paths = ("/projects", "/projects/shop", "/v1/projects/shop", "/v1/projects", "/actions-log")
    pages = "".join(
        world.site.visitor("admin").get(path).text for path in (*paths, "/actions/project-credential?project=shop")
    )
    for hidden in (TOKEN, secret, PASSKEY):
        for where, text in (("store", dump), ("folders", files), ("pages", pages.encode())):
            assert hidden.encode() not in text, (hidden, where)
    assert not [path for path in (world.folder / "tmp").iterdir() if path.name.startswith("dataflow-git-")]


def test_a_wrong_token_is_told_without_it(world: World, good: str) -> None:
    wrong = "wrong-token-nobody-may-see"
    world.admin.act("project-credential", project="shop", username="robot", token=wrong)
    try:
        end = world.done(world.operator.act("project-pull", project="shop")["result"]["task"])
    finally:
        world.admin.act("project-credential", project="shop", username="robot", token=TOKEN)
    assert end["state"] == "FAILED"
    assert "Authentication failed" in end["said"] or "could not read" in end["said"], end
    assert wrong not in json.dumps(end)
    assert world.shop()["commit"] == good


def test_credentials_follow_a_new_passkey(world: World) -> None:
    from opendataflow.project.secrets import Rotation, decrypt
    from opendataflow.store import open_store
    from opendataflow.store.records.git import find_secrets, rotate_git_secrets

    store = open_store(world.ops.store, actor="tests")
    try:
        changed = rotate_git_secrets(store, Rotation(PASSKEY, "another"))
        assert changed[0] >= 1
        assert decrypt(find_secrets(store, "shop").credential or "", "another") == TOKEN
        rotate_git_secrets(store, Rotation("another", PASSKEY))
        assert decrypt(find_secrets(store, "shop").credential or "", PASSKEY) == TOKEN
    finally:
        store.close()


# In a browser ---------------------------------------------------------------------------------------------------------
def test_a_person_pulls_and_sees_it_happen(world: World, good: str, tmp_path: Path) -> None:
    world.origin.write("jobs/sum_up.sh", SUM_UP + f"# {time.time()}\n", executable=True)
    commit = world.origin.push("seen in the browser")
    with browser(world.site, "operator") as page:
        page.goto("/projects")
        page.get_by_role("link", name="shop", exact=True).click()
        page.get_by_role("link", name="Pull…").click()
        page.get_by_role("dialog").get_by_role("button", name="Pull").click()
        page.get_by_text("is being pulled").wait_for()
        page.locator("#facts").get_by_text(commit, exact=True).wait_for(timeout=60_000)
        page.locator("#versions").get_by_text("seen in the browser").first.wait_for()
        page.screenshot(path=os.environ.get("DATAFLOW_SHOTS", str(tmp_path)) + "/project.png", full_page=True)


def test_the_pages_fit_a_phone_and_the_dark(world: World, tmp_path: Path) -> None:
    world.origin.write("project.yml", SCRIPTS.replace("[orders]", "[ordres]"))
    world.origin.push("a bad one")
    world.done(world.operator.act("project-pull", project="shop")["result"]["task"])
    shots = os.environ.get("DATAFLOW_SHOTS", str(tmp_path))
    with browser(world.site, "admin", viewport={"width": 360, "height": 800}, color_scheme="dark") as page:
        for path, name in (("/projects", "projects"), ("/projects/shop", "project"), ("/actions/project-add", "add")):
            page.goto(path)
            assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
            page.screenshot(path=f"{shots}/phone-{name}.png", full_page=True)


def test_a_pull_outlives_the_server_and_is_seen_by_the_next(world: World, good: str, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    world.origin.write("note", "outlives")
    commit = world.origin.push("outlives the server")
    env = {
        "DATAFLOW_PASSKEY": PASSKEY, "DATAFLOW_HOME": str(world.folder / "work"),
        "DATAFLOW_FAULT_POINT": f"before_switch:{marker}",
    }  # fmt: skip
    with Site(world.ops, **env) as second:
        task = second.script("operator").act("project-pull", project="shop")["result"]["task"]
        wait_for(marker.exists, "the pull at its point")
        second.kill()
    found = world.operator.get(f"/v1/project-tasks/{task}").json
    assert (found["state"], found["is_open"]) == ("RUNNING", True)
    assert "puts" in found["step"] or "checks" in found["step"]
    marker.unlink()
    assert world.done(task)["state"] == "DONE"
    assert world.shop()["commit"] == commit


def test_removed_in_the_end(world: World) -> None:
    """Last: the others need it."""
    assert world.admin.act("project-remove", project="shop")["says"].startswith("shop was removed")
    assert world.operator.get("/v1/projects/shop").status == 404
    assert sorted(os.listdir(world.folder / "work" / "projects" / "shop")) == ["shared"]

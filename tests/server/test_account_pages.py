"""Accounts in a real browser: the first admin, a token from the dialog, adding somebody; keyboard, phone, dark."""

import os
from pathlib import Path
from typing import Any

import pytest

from support.people import PASSWORD
from support.projects import Project
from support.web import Site, Visitor, browser

SHOTS = os.environ.get("DATAFLOW_SCREENSHOTS")  # a folder for pictures, for people to look at


def shot(page: Any, name: str) -> None:
    if SHOTS:
        page.screenshot(path=str(Path(SHOTS) / f"{name}.png"), full_page=True)


@pytest.fixture
def site(sqlite_project: Project) -> Any:
    sqlite_project.apply("name: crm\n")
    with Site(sqlite_project) as server:
        yield server


def fits(page: Any) -> bool:
    """Nothing makes the page wider than the window."""
    return bool(page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


def test_the_first_admin_lets_others_in_by_keyboard_alone(site: Site) -> None:
    with browser(site, None) as page:
        page.goto(site.said["admin_link"])
        shot(page, "welcome")
        page.keyboard.type("anna")
        for _ in range(2):
            page.keyboard.press("Tab")
            page.keyboard.type(PASSWORD)
        page.keyboard.press("Enter")
        page.wait_for_url(f"{site.url}/")
        page.goto("/account")
        page.get_by_role("link", name="New token").focus()
        page.keyboard.press("Enter")
        page.wait_for_selector("dialog[open]")
        shot(page, "token-dialog")
        page.keyboard.type("nightly report")
        page.keyboard.press("Enter")
        token = page.locator("input.once")
        token.wait_for()
        shot(page, "once")
        assert Visitor(site.url, token=token.input_value()).get("/v1/me").json["username"] == "anna"
        page.get_by_role("link", name="Done").click()
        page.wait_for_selector("#tokens td:has-text('nightly report')")
        shot(page, "account")
        page.goto("/users")
        page.get_by_role("link", name="Add somebody").click()
        page.get_by_label("User name").fill("bob")
        page.get_by_label("Role").select_option("operator")
        page.get_by_role("button", name="Make a link").click()
        link = page.locator("input.once").input_value()
        page.goto("/users")
        shot(page, "users")
        other = page.context.browser.new_context(base_url=site.url).new_page()
        other.goto(link)
        assert other.get_by_label("User name").input_value() == "bob"
        other.get_by_label("Password", exact=True).fill(PASSWORD)
        other.get_by_label("Once more").fill(PASSWORD)
        other.get_by_role("button", name="Make the account").click()
        other.wait_for_url(f"{site.url}/")
        # The page of accounts shows the newcomer by itself.
        page.wait_for_selector("#accounts td:has-text('bob')")
        page.locator("#accounts tr", has_text="bob").get_by_role("link", name="Disable").click()
        page.locator("dialog").get_by_role("button", name="Disable").click()
        page.wait_for_selector("#accounts .status:has-text('disabled')")
        other.goto("/account")
        assert other.url == f"{site.url}/login?then=/account"
        page.goto("/actions-log")
        shot(page, "actions-log")
        assert "user-disable" in page.inner_text("main")
        page.goto("/account")
        page.get_by_role("button", name="Sign out", exact=True).click()
        page.wait_for_url(f"{site.url}/login")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_pages_fit_a_phone(site: Site, scheme: str) -> None:
    site.script("admin")
    with browser(site, None, viewport={"width": 360, "height": 740}, color_scheme=scheme) as page:
        page.goto("/login")
        assert fits(page)
        shot(page, f"login-phone-{scheme}")
    with browser(site, "admin", viewport={"width": 360, "height": 740}, color_scheme=scheme) as page:
        for path in ("/account", "/users", "/actions-log", "/actions/token-new", "/actions/user-link"):
            page.goto(path)
            assert fits(page), path
            shot(page, f"{path.strip('/').replace('/', '-')}-phone-{scheme}")

"""At three in the morning, in a real Chromium: find what failed, read why, do it again, and watch it turn green."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.operated import Night, Worker, served_night
from support.web import browser

PHONE = {"width": 360, "height": 740}


@pytest.fixture
def at_night(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    with served_night("sqlite", request, tmp_path_factory) as night:
        (night.project.folder / "broken").unlink()  # the vendor has mended it
        yield night


def wait_until_green(page: Any) -> None:
    """Without reloading: a mark that a reload would take away stays."""
    page.locator("#state .status.s-complete").wait_for(timeout=60_000)
    assert page.evaluate("window.wasHere") is True


def is_within(page: Any) -> bool:
    """True when the page itself does not scroll sideways."""
    return bool(page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"))


def test_find_the_failed_run_read_why_resubmit_and_watch_it_turn_green(at_night: Night, tmp_path: Path) -> None:
    failed = at_night.days[1]
    with Worker(at_night.project, "--jobs", "load,sum"), browser(at_night.site) as page:
        page.goto("/")
        need = page.locator("article.need", has_text="it exited 3")
        need.wait_for()
        page.screenshot(path=tmp_path / "overview.png", full_page=True)
        need.get_by_role("link", name=f"Why {failed}").click()
        page.locator("pre", has_text="the vendor sent no header").wait_for()
        page.screenshot(path=tmp_path / "why.png", full_page=True)
        page.evaluate("window.wasHere = true")
        page.evaluate("document.body.dataset.mark = 'here'")
        page.locator("#state").get_by_role("link", name="Resubmit").click()
        dialog = page.locator("dialog[open]")
        dialog.get_by_text("1 dataid of load is made again").wait_for()
        page.screenshot(path=tmp_path / "dialog.png")
        dialog.get_by_role("button", name="Resubmit").click()
        page.wait_for_url("**/jobs/shop/load/**")
        page.evaluate("window.wasHere = true")
        wait_until_green(page)
        page.goto("/")
        page.locator("article.need", has_text="it exited 3").wait_for(state="detached")
        page.goto("/runs")
        page.locator("svg .bar.b-complete").first.wait_for()
        page.screenshot(path=tmp_path / "runs.png", full_page=True)
        page.locator("table a[href*='/runs/']").first.click()
        page.locator("#log").wait_for()
        page.screenshot(path=tmp_path / "run.png", full_page=True)


def test_the_same_with_the_keyboard_only(at_night: Night) -> None:
    failed = at_night.days[1]
    with Worker(at_night.project, "--jobs", "load,sum"), browser(at_night.site) as page:
        page.goto("/")

        def press_until(text: str) -> None:
            """Tab on until the link or button of this name has the focus."""
            for _ in range(80):
                page.keyboard.press("Tab")
                if page.evaluate("document.activeElement?.textContent?.trim() || ''") == text:
                    return
            raise AssertionError(f"the keyboard does not reach {text!r}")

        press_until(f"Why {failed}")
        page.keyboard.press("Enter")
        page.locator("pre", has_text="the vendor sent no header").wait_for()
        press_until("Resubmit")
        page.keyboard.press("Enter")
        page.locator("dialog[open] #confirm").wait_for()
        assert page.evaluate("document.querySelector('dialog').contains(document.activeElement)")
        press_until("Resubmit")
        page.keyboard.press("Enter")
        page.wait_for_url("**/jobs/shop/load/**said**")
        page.evaluate("window.wasHere = true")
        wait_until_green(page)


def test_escape_leaves_everything_as_it_was(at_night: Night) -> None:
    failed = at_night.days[1]
    with browser(at_night.site) as page:
        page.goto(f"/jobs/shop/load/{failed}")
        page.locator("#state").get_by_role("link", name="Resubmit").click()
        page.locator("dialog[open]").wait_for()
        page.keyboard.press("Escape")
        page.locator("dialog[open]").wait_for(state="detached")
    assert at_night.status_of("load", failed) == "FAILED"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_no_page_scrolls_sideways(at_night: Night, tmp_path: Path, scheme: str) -> None:
    failed = at_night.days[1]
    run = at_night.run_of(failed)
    with browser(at_night.site, viewport=PHONE, color_scheme=scheme) as page:
        pages = {
            "overview": "/", "runs": "/runs", "run": f"/runs/{run}", "why": f"/jobs/shop/load/{failed}",
            "plan": f"/actions/resubmit?project=shop&job=load&dataid={failed}",
        }  # fmt: skip
        for name, path in pages.items():
            page.goto(path)
            page.screenshot(path=tmp_path / f"{scheme}-{name}.png", full_page=True)
            assert is_within(page), path


def test_ticked_runs_are_resubmitted_together_and_a_log_grows_by_itself(at_night: Night) -> None:
    first, failed, _ = at_night.days
    project = at_night.project
    with browser(at_night.site) as page:
        page.goto("/runs")
        for box in page.locator("input[data-pick]").all():
            box.check()
        page.get_by_role("button", name="Resubmit the ticked").click()
        dialog = page.locator("dialog[open]")
        dialog.get_by_text("2 dataids of load are made again").wait_for()
        dialog.get_by_role("button", name="Resubmit").click()
        page.locator(".said").wait_for()
        assert {at_night.status_of("load", day) for day in (first, failed)} == {"RESUBMIT"}
        project.script(
            "jobs/split.sh", 'echo "first line"; while [ ! -e go ]; do sleep 0.1; done; echo "last line"; exit 1'
        )
        with Worker(project, "--jobs", "split", "--slots", "1"):
            page.goto("/")
            page.locator("#running").get_by_role("link", name="1", exact=True).first.wait_for(timeout=60_000)
            run = at_night.run_of("1", "split")
            page.goto(f"/runs/{run}")
            page.locator("#log", has_text="first line").wait_for(timeout=60_000)
            page.evaluate("window.wasHere = true")
            (project.folder / "go").touch()
            page.locator("#log", has_text="last line").wait_for(timeout=60_000)
            page.locator("#facts .status.s-failed").wait_for(timeout=60_000)
            assert page.evaluate("window.wasHere") is True

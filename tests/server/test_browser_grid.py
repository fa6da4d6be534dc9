"""The grid in a real Chromium: 100,000 chunks, found, opened and watched; by keyboard, on a phone, in the dark."""

import datetime
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.processes import wait_for
from support.projects import Project
from support.seeded import Shell, many_days
from support.web import Site, browser

TODAY = datetime.datetime.now(datetime.UTC).date()
FIRST = (TODAY - datetime.timedelta(days=50)).isoformat()
LATEST = (TODAY - datetime.timedelta(days=1)).isoformat()
DATASETS = 2000
SHARDS = '  shards: {path: "s/{dataid}", partitions: {shards: "000001..100000"}}'


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """2,000 datasets of 50 days, and one of 100,000 shards."""
    folder = tmp_path_factory.mktemp("grid")
    project = Project(folder / "project", f"sqlite:///{folder / 'state' / 'state.db'}")
    project.apply(many_days(DATASETS, first=FIRST, more=SHARDS))
    shell = Shell(project.store)
    shell.put_days("d", DATASETS, 50, first=FIRST)
    shell.put_shards("shards", 100_000)
    shell.close()
    with Site(project) as found:
        yield found


def opened(page: Any, path: str) -> None:
    """Open the page, and wait until the grid is drawn."""
    page.goto(path)
    page.wait_for_selector("#grid[data-ready=yes]")


def pixel(page: Any, x: float, y: float) -> tuple[int, ...]:
    """The colour on the canvas, at a place of it."""
    script = """([x, y]) => {
        const canvas = document.querySelector("#grid canvas"), sharp = canvas.width / canvas.clientWidth;
        return [...canvas.getContext("2d").getImageData(x * sharp, y * sharp, 1, 1).data];
    }"""
    return tuple(page.evaluate(script, [x, y]))


def said(page: Any) -> str:
    return str(page.inner_text(".grid-said"))


def wait_said(page: Any, text: str) -> None:
    page.wait_for_function("text => document.querySelector('.grid-said').textContent.includes(text)", arg=text)


def test_the_grid_of_many_datasets_is_there_at_once_and_is_walked_by_keyboard(site: Site) -> None:
    with browser(site, "viewer", viewport={"width": 1280, "height": 900}) as page:
        opened(page, "/datasets")
        page.focus(".grid-scroll")
        wait_said(page, f"d0 / {LATEST}")
        page.keyboard.press("ArrowLeft")
        before = (TODAY - datetime.timedelta(days=2)).isoformat()
        wait_said(page, f"d0 / {before}")
        page.keyboard.press("ArrowDown")
        wait_said(page, f"d1 / {before}")
        page.keyboard.press("Control+End")
        wait_said(page, f"d{DATASETS - 1} / {LATEST}")  # the far corner was fetched
        page.keyboard.type(FIRST)
        assert page.evaluate("document.activeElement.name") == "dataid"
        page.keyboard.press("Enter")
        wait_said(page, f"d{DATASETS - 1} / {FIRST}")
        page.keyboard.press("Enter")
        page.wait_for_url(f"**/datasets/grid/d{DATASETS - 1}/{FIRST}")
        assert page.inner_text("h1") == f"d{DATASETS - 1} / {FIRST}"


def test_a_hundred_thousand_shards_are_one_block_in_which_one_is_found_and_opened(site: Site) -> None:
    with browser(site, "viewer", viewport={"width": 1280, "height": 900}) as page:
        opened(page, "/datasets?kind=numbered")
        assert page.locator("canvas").count() == 1
        assert page.evaluate("document.getElementsByTagName('*').length") < 500
        page.fill("#goto input", "099998")
        page.keyboard.press("Enter")
        wait_said(page, "shards / 099998")
        page.keyboard.press("ArrowRight")
        wait_said(page, "shards / 099999")
        page.keyboard.press("Home")
        wait_said(page, "shards / 000001: READY")
        assert pixel(page, 112, 12)[3] > 0
        page.mouse.move(0, 0)
        box = page.locator("#grid canvas").bounding_box()
        page.mouse.move(box["x"] + 112 + 15 * 3, box["y"] + 12)
        assert page.inner_text(".grid-tip") == "shards / 000004: RUNNING"
        page.mouse.click(box["x"] + 112 + 15 * 3, box["y"] + 12)
        page.wait_for_url("**/datasets/grid/shards/000004")


def test_a_cell_changes_its_colour_by_itself_and_a_new_slot_appears(site: Site) -> None:
    shell = Shell(site.project.store)
    with browser(site, "viewer", viewport={"width": 1280, "height": 900}) as page:
        opened(page, "/datasets?name=d77&kind=daily")
        ink = "document.querySelector('#grid canvas').getContext('2d')"
        wait = f"([x, y, was]) => {ink}.getImageData(x, y, 1, 1).data.join() !== was"
        at = page.evaluate("document.querySelector('.grid-scroll').clientWidth * 0.18") + 30
        was = pixel(page, at, 40)
        shell.run("UPDATE datastatus SET status = 'HOLD' WHERE datasetid = 'd77' AND status = 'READY'")
        page.wait_for_function(wait, arg=[at, 40, ",".join(map(str, was))])
        today = TODAY.isoformat()
        what = f"'grid', 'd77', '{today}', 'READY'"
        shell.run(f"INSERT INTO datastatus (project, datasetid, dataid, status) VALUES ({what})")
        page.focus(".grid-scroll")
        wait_for(lambda: _is_last(page, f"d77 / {today}: READY"), "the new slot is there")
        page.wait_for_function("document.querySelector('#legend').textContent.includes('HOLD')")
    shell.close()


def _is_last(page: Any, text: str) -> bool:
    page.keyboard.press("End")
    page.wait_for_timeout(100)  # for the page to look around
    return text in said(page)


def test_the_past_is_chosen_and_shown(site: Site) -> None:
    shell = Shell(site.project.store)
    time.sleep(0.02)  # nothing else happens within a few milliseconds of this moment
    moment = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    time.sleep(0.02)
    shell.run("UPDATE datastatus SET status = 'FAILED' WHERE datasetid = 'd5' AND status = 'READY'")
    shell.close()
    with browser(site, "viewer", viewport={"width": 1280, "height": 900}) as page:
        opened(page, "/datasets/grid/d5")
        page.focus(".grid-scroll")
        page.keyboard.press("End")
        wait_said(page, "FAILED")
        opened(page, f"/datasets/grid/d5?at={moment}")
        page.focus(".grid-scroll")
        page.keyboard.press("End")
        wait_said(page, f"d5 / {LATEST}: READY")
        assert "As it was at" in page.inner_text(".past")
        page.click("text=Back to now")
        page.wait_for_selector("#grid[data-ready=yes]")
        slider = page.locator("#slider")
        slider.focus()
        page.keyboard.press("Home")
        page.wait_for_selector(".past")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_and_follows_light_and_dark(site: Site, scheme: Any, tmp_path: Path) -> None:
    with browser(site, "viewer", viewport={"width": 360, "height": 740}, color_scheme=scheme, has_touch=True) as page:
        for path in (
            "/datasets",
            "/datasets?kind=numbered",
            "/datasets/grid/d3",
            f"/datasets/grid/d3/{FIRST}",
            "/lineage?dataset=d3",
        ):
            page.goto(path)
            if page.locator("#grid").count():
                page.wait_for_selector("#grid[data-ready=yes]")
            assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
            page.screenshot(path=tmp_path / "page.png")
        opened(page, "/datasets?kind=numbered")
        box = page.locator("#grid canvas").bounding_box()
        page.touchscreen.tap(box["x"] + 85 + 15, box["y"] + 12)
        wait_said(page, "shards / 000002")  # named first, opened by the second touch
        page.touchscreen.tap(box["x"] + 85 + 15, box["y"] + 12)
        page.wait_for_url("**/datasets/grid/shards/000002")


def test_without_sight_the_same_is_in_tables(site: Site) -> None:
    with browser(site, "viewer", java_script_enabled=False) as page:
        page.goto("/datasets?status=FAILED&kind=daily")
        page.click("text=d0 / ")
        assert page.locator("#state .s-failed").count() >= 1
        page.goto("/datasets?name=d12&kind=daily")
        page.click("#list >> text=d123")
        page.wait_for_url("**/datasets/grid/d123")
        assert page.locator("#chunks tbody tr").count() == 50

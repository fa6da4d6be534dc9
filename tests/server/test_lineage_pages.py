"""Lineage over HTTP: the drawing with states and links, bounded where there is too much, and the same as JSON."""

import html
import re
import xml.etree.ElementTree as ET

from support.projects import Project
from support.seeded import Shell
from support.web import Answer, Site

SHOP = """
name: Shop
datasets:
  feed: {path: "feed/{dataid}.txt", partitions: {daily: 2025-11-01..2025-11-03}}
  rates: {path: rates.txt, partitions: none}
  totals: {path: "totals/{dataid}.txt"}
  report: {path: "report/{dataid}.txt"}
jobs:
  load: {script: load.sh, inputs: [feed, {rates: {map: full}}], outputs: [totals]}
  show: {script: show.sh, inputs: [totals], outputs: [report]}
"""


def drawing(page: Answer) -> ET.Element:
    found = re.search(r"<svg.*?</svg>", page.text, flags=re.DOTALL)
    assert found, page.text
    return ET.fromstring(found[0])  # noqa: S314 – our own


def links(svg: ET.Element) -> dict[str, str]:
    """The page of each box, by the box's first word."""
    found = {}
    for box in svg.iter("a"):
        name = next(text.text for text in box.iter("text") if text.get("class") == "name")
        found[str(name)] = f"{box.get('href')} {box.get('class')}"
    return found


def test_a_project_is_drawn_with_its_states_and_each_box_leads_to_its_page(project: Project) -> None:
    project.apply(SHOP)
    shell = Shell(project.store)
    for dataid, status in (("2025-11-01", "READY"), ("2025-11-02", "FAILED")):
        what = f"'shop', 'feed', '{dataid}', '{status}'"
        shell.run(f"INSERT INTO datastatus (project, datasetid, dataid, status) VALUES ({what})")
    shell.close()
    with Site(project) as site:
        page = site.visitor("viewer").get("/lineage")
        found = links(drawing(page))
        assert set(found) == {"feed", "rates", "totals", "report", "load", "show"}
        assert found["feed"].startswith("/datasets/shop/feed ")
        assert "s-failed" in found["feed"]
        assert found["load"].startswith("/jobs/shop/load ")
        assert "s-none" in found["report"]
        assert "FAILED, 1 of 2" in page.words
        assert "feed dataset FAILED 1 of 2 load" in page.words  # the same as a table
        near = links(drawing(site.visitor("viewer").get("/lineage?project=shop&dataset=report&depth=1")))
        assert set(near) == {"report", "show", "totals"}
        script = site.script("viewer")
        told = script.get("/v1/lineage?project=shop&dataset=report&depth=1").json
        assert {one["name"] for one in told["nodes"]} == set(near)
        assert {(one["from"], one["to"]) for one in told["edges"]} == {
            ("dataset shop.totals", "job shop.show"), ("job shop.show", "dataset shop.report"),
        }  # fmt: skip
        for path in (
            "/v1/lineage?project=nobody",
            "/v1/lineage?project=shop&dataset=nobody",
            "/v1/lineage?project=shop&dataset=feed&dataid=x",
        ):
            assert script.get(path).status == 404, path
        assert script.get("/v1/lineage").status == 422


def test_a_chunk_is_drawn_with_what_it_was_made_of_and_what_hangs_on_it(project: Project) -> None:
    project.apply(SHOP)
    project.script("load.sh", 'echo 1 > "$totals_location"')
    project.script("show.sh", "exit 1")
    for folder in ("totals", "report"):
        (project.folder / folder).mkdir()
    project.write("feed/2025-11-01.txt", "x")
    project.write("rates.txt", "x")
    for name, dataid in (("feed", "2025-11-01"), ("rates", "full")):
        assert project.dataflow("ready", name, dataid).returncode == 0
    assert project.dataflow("run", "load", "2025-11-01").returncode == 0
    assert project.dataflow("run", "show", "2025-11-01").returncode == 1
    with Site(project) as site:
        query = "project=shop&dataset=totals&dataid=2025-11-01"
        found = links(drawing(site.visitor("viewer").get(f"/lineage?{query}")))
        assert set(found) == {
            "feed/2025-11-01", "rates/full", "load/2025-11-01", "totals/2025-11-01", "show/2025-11-01",
            "report/2025-11-01",
        }  # fmt: skip
        assert found["feed/2025-11-01"].startswith("/datasets/shop/feed/2025-11-01 ")
        assert found["show/2025-11-01"].startswith("/jobs/shop/show/2025-11-01 ")
        assert "s-failed" in found["show/2025-11-01"]
        told = site.script("viewer").get(f"/v1/impact?{query}").json
        assert {one["name"] for one in told["nodes"]} == {"totals/2025-11-01", "show/2025-11-01", "report/2025-11-01"}


def test_a_project_too_large_to_be_drawn_offers_where_to_begin(sqlite_project: Project) -> None:
    lines = ["name: Large", "datasets:", *(f'  d{n}: {{path: "d{n}/{{dataid}}"}}' for n in range(2000)), "jobs:"]
    lines += [f"  j{n}: {{script: j{n}.sh, inputs: [d{n}, d{n + 1}], outputs: [d{n + 1200}]}}" for n in range(700)]
    sqlite_project.apply("\n".join(lines) + "\n")
    shell = Shell(sqlite_project.store)
    shell.run("INSERT INTO datastatus (project, datasetid, dataid, status) VALUES ('large', 'd7', '1', 'FAILED')")
    shell.run("INSERT INTO datastatus (project, datasetid, dataid, status) VALUES ('large', 'd3', '1', 'READY')")
    shell.close()
    with Site(sqlite_project) as site:
        visitor = site.visitor("viewer")
        page = visitor.get("/lineage")
        assert "<svg" not in page.text
        assert page.words.index("d7 FAILED 1") < page.words.index("d3 READY 1")
        around = visitor.get("/lineage?dataset=d7&depth=50")
        assert len(links(drawing(around))) <= 150
        assert site.script("viewer").get("/v1/lineage?project=large&limit=30").json["left_out"] > 0


def test_names_are_escaped_in_the_drawing(sqlite_project: Project) -> None:
    sqlite_project.apply("name: Shop\ndatasets:\n  feed: {path: feed}\n")
    shell = Shell(sqlite_project.store)
    name = '<x>&"odd/name'
    shell.run(f"INSERT INTO dataset (project, datasetid, location) VALUES ('shop', '{name}', 'x')")
    shell.run(
        f"INSERT INTO datastatus (project, datasetid, dataid, status) VALUES ('shop', '{name}', '<i>/1', 'READY')"
    )
    shell.close()
    with Site(sqlite_project) as site:
        visitor = site.visitor("viewer")
        page = visitor.get("/lineage")
        assert "<x>" not in page.text
        box = links(drawing(page))[name]
        address = html.unescape(box.split(" ")[0])
        assert visitor.get(address).status == 404  # a slash in a dataset's name has no page; nothing breaks
        assert "<x>" not in visitor.get("/datasets?kind=other").text

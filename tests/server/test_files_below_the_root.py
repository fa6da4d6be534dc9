"""No route gives away a file outside of the environment's root, whatever dataid, row or link leads there."""

import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.projects import Project
from support.web import Site, Visitor

PASSKEY = "the-passkey-of-the-server"
SECRET = "a-secret-of-somebody-else"
PROJECT = """
name: Shop
environments: {dev: {root: data}}
datasets:
  raw: {path: "raw/{dataid}", format: text}
  daily: {path: "daily/{dataid}", format: text, partitions: {daily: 2025-11-01}}
  whole: {path: whole.txt, format: text, partitions: none}
"""
CLIMB = "../" * 20
BAD = {
    "the server's own environment": f"{CLIMB}proc/self/environ",
    "above the root": "../../key",
    "an absolute path": "/proc/self/environ",
    "another dataset's file": "../whole.txt",
    "a folder": "..",
    "a NUL": "good\0",
    "a line": "good\n/proc/self/environ",
    "encoded twice": urllib.parse.quote("../../key", safe=""),
}
WAYS = ("/v1/sources/shop/{dataset}/rows.csv?dataid={dataid}", "/v1/sources/shop/{dataset}/sample?dataid={dataid}",
        "/sources/shop/{dataset}/rows.csv?dataid={dataid}", "/sources/shop/{dataset}/sample?dataid={dataid}",
        "/v1/datasets/shop/{dataset}/preview/{dataid}", "/v1/datasets/shop/{dataset}/data/{dataid}",
        "/datasets/shop/{dataset}/{dataid}?rows=20")  # fmt: skip


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder = tmp_path_factory.mktemp("root")
    project = Project(folder / "project", f"sqlite:///{folder / 'state.db'}")
    project.apply(PROJECT)
    project.write("key", SECRET)
    for place in ("raw/good", "daily/2025-11-12", "whole.txt"):
        project.write(f"data/{place}", "good\n")
    return project


@pytest.fixture(scope="module")
def site(shop: Project) -> Iterator[Site]:
    with Site(shop, DATAFLOW_PASSKEY=PASSKEY) as running:
        yield running


@pytest.fixture(scope="module")
def people(site: Site) -> tuple[Visitor, Visitor]:
    """An operator's script, and an operator with a browser."""
    return site.script("operator"), site.visitor("operator")


def row(project: Project, dataset: str, dataid: str, location: Path | None = None) -> None:
    place = "NULL" if location is None else f"'{location}'"
    project.sql(
        "INSERT INTO datastatus (project, datasetid, dataid, status, location) "
        f"VALUES ('shop', '{dataset}', '{dataid}', 'READY', {place})"
    )


def refused(people: tuple[Visitor, Visitor], way: str, dataset: str, dataid: str) -> str:
    """What is answered, in which no secret is."""
    path = way.format(dataset=dataset, dataid=urllib.parse.quote(dataid, safe=""))
    answer = people[0 if path.startswith("/v1") else 1].get(path)
    # The page of a chunk that is known shows what is known of it, and why its rows are not shown.
    is_page = way.startswith("/datasets")
    assert answer.status in ((200, 400, 404, 409) if is_page else (400, 404, 409)), (path, answer.status, answer.text)
    assert SECRET not in answer.text
    assert PASSKEY not in answer.text
    return answer.text


@pytest.mark.parametrize("dataset", ["raw", "daily", "whole"])
@pytest.mark.parametrize("dataid", BAD.values(), ids=list(BAD))
def test_no_dataid_leads_out_of_its_dataset(people: tuple[Visitor, Visitor], dataset: str, dataid: str) -> None:
    for way in WAYS:
        told = refused(people, way, dataset, dataid)
        if "sources" in way and "\0" not in dataid and "%" not in dataid:
            assert "is not a dataid of" in told


def test_the_file_of_a_dataid_is_sent(people: tuple[Visitor, Visitor]) -> None:
    for dataset, dataid in (("raw", "good"), ("daily", "2025-11-12"), ("whole", "full")):
        answer = people[0].get(f"/v1/sources/shop/{dataset}/rows.csv?dataid={dataid}")
        assert (answer.status, answer.text.split()) == (200, ["value", "good"])


@pytest.mark.parametrize("dataid", ["../../key", f"{CLIMB}proc/self/environ", "a/../../../key"])
@pytest.mark.parametrize("dataset", ["raw", "daily"])
def test_a_row_by_hand_leads_no_further(
    shop: Project, people: tuple[Visitor, Visitor], dataset: str, dataid: str
) -> None:
    row(shop, dataset, dataid)
    try:
        for way in WAYS:
            assert "is not a dataid of" in refused(people, way, dataset, dataid)
        everything = people[0].get(f"/v1/sources/shop/{dataset}/rows.csv")
        assert (everything.status, "is not a dataid of" in everything.text) == (409, True)
        known = people[0].get(f"/v1/datasets/shop/{dataset}/chunks/{urllib.parse.quote(dataid, safe='')}")
        assert (known.status, known.json["location"]) == (200, None)
    finally:
        shop.sql("DELETE FROM datastatus")


@pytest.mark.parametrize("place", ["/proc/self/environ", "key", "data/raw/../../key"])
def test_a_place_by_hand_is_below_the_root(shop: Project, people: tuple[Visitor, Visitor], place: str) -> None:
    row(shop, "raw", "good", shop.folder / place)
    try:
        for way in WAYS:
            assert "not below the environment" in refused(people, way, "raw", "good")
    finally:
        shop.sql("DELETE FROM datastatus")


@pytest.mark.parametrize("target", ["key", ".", "/proc/self/environ"])
@pytest.mark.parametrize("is_known", [True, False])
def test_a_link_leads_no_further(shop: Project, people: tuple[Visitor, Visitor], target: str, is_known: bool) -> None:
    link = shop.folder / "data/raw/link"
    link.symlink_to(shop.folder / target)
    if is_known:
        row(shop, "raw", "link")
    try:
        for way in WAYS:
            told = refused(people, way, "raw", "link")
            assert not is_known or "not below the environment" in told
    finally:
        link.unlink()
        shop.sql("DELETE FROM datastatus")

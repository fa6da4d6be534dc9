"""Sources in both stores: what was bound, how they answered, who uses them; bound and registered at once, or not."""

from pathlib import Path

import pytest
from world import NOW, World, job, registration

from opendataflow.errors import ConfigurationError, UsageError
from opendataflow.operations.bind import bind
from opendataflow.project.registration.load import load_registration
from opendataflow.store import registry
from opendataflow.store.records.sources import (
    bindings_of,
    count_sources,
    find_home,
    find_source,
    list_bindings,
    list_sources,
    project_names,
    put_bindings,
    record_test,
)


def test_bindings_say_who_and_when_and_go_one_by_one(world: World) -> None:
    put_bindings(world.store, "p", "crm", {"url": "sqlite:///x.db", "partitions": {"daily": "2025-01-01"}})
    put_bindings(world.store, "q", "crm", {"table": "t"})
    assert bindings_of(world.store, "p") == {"crm": {"url": "sqlite:///x.db", "partitions": {"daily": "2025-01-01"}}}
    assert [(one.field, one.bound_by) for one in list_bindings(world.store, "p", "crm")] == [
        ("partitions", "tests"),
        ("url", "tests"),
    ]
    put_bindings(world.store, "p", "crm", {"url": None, "partitions": "none"})
    assert bindings_of(world.store, "p") == {"crm": {"partitions": "none"}}
    assert bindings_of(world.store, "nobody") == {}


def test_a_page_of_sources_knows_tests_bindings_and_jobs_and_costs_no_look_at_chunks(world: World) -> None:
    world.apply(job("load", ["a", "b"], ["c"]))
    registry.apply(world.store, registration(job("other", ["p.a"], ["z"], project="q"), project="q"), now=NOW)
    record_test(world.store, "p", "b", answered=False, said="no route")
    record_test(world.store, "p", "b", answered=True, said="can be read")
    put_bindings(world.store, "p", "c", {"path": "x"})
    found = {one.dataset[:2]: one for one in list_sources(world.store)}
    assert list(found) == [("p", "a"), ("p", "b"), ("p", "c"), ("q", "z")]
    assert (found["p", "a"].readers, found["p", "c"].makers) == (("load", "q.other"), ("load",))
    tested = found["p", "b"].tested
    assert tested is not None
    assert (tested.answered, tested.said, tested.tested_by) == (True, "can be read", "tests")
    assert (found["p", "c"].bound, found["p", "a"].tested) == (("path",), None)
    page = list_sources(world.store, limit=2, offset=1)
    assert [one.dataset.datasetid for one in page] == ["b", "c"]
    assert [count_sources(world.store, project) for project in (None, "p", "x")] == [4, 3, 0]
    assert (project_names(world.store), find_home(world.store, "p"), find_home(world.store, "x")) == (
        ["p", "q"],
        "/home",
        None,
    )
    assert find_source(world.store, "p", "zz") is None


def test_what_is_bound_while_project_yml_is_read_refuses_the_apply(world: World) -> None:
    wanted = registration(job("load", ["a"], ["b"]))._replace(bound={})
    put_bindings(world.store, "p", "a", {"path": "x"})
    with pytest.raises(ConfigurationError, match="bound in this store meanwhile; nothing was changed"):
        registry.apply(world.store, wanted, now=NOW)
    assert list_sources(world.store) == []


def test_a_binding_that_cannot_be_registered_is_not_kept(world: World, tmp_path: Path) -> None:
    """Another project makes the dataset already: only the transaction can tell."""
    registry.apply(world.store, registration(job("theirs", [], ["mine.out"], project="q"), project="q"), now=NOW)
    home = str(tmp_path)
    text = "name: mine\nenvironments: {test: {}}\ndatasets: {out: {path: out}}\njobs: {make: {outputs: [out]}}\n"
    (tmp_path / "project.yml").write_text(text)
    world.store.environment = "test"
    with world.store.transaction(file="registry") as tx:
        link = {"project": "q", "jobid": "theirs", "itemtype": "OUT", "map": "same", "position": 0}
        tx.run("put_link", {**link, "dataset_project": "mine", "datasetid": "out"})
    with pytest.raises(UsageError, match="already produced by"):
        bind(world.store, home, "mine", "side", {"path": "side.csv", "format": "csv"})
    assert bindings_of(world.store, "mine") == {}


def test_what_is_bound_waits_for_a_project_yml_that_is_wrong_for_another_reason(world: World, tmp_path: Path) -> None:
    """Two sources are open: each is bound by itself, and the project is registered with the second."""
    text = "name: mine\nenvironments: {test: {}}\ndatasets: {out: {path: out}}\n"
    text += "jobs: {make: {inputs: [one, two], outputs: [out]}}\n"
    (tmp_path / "project.yml").write_text(text)
    world.store.environment, home = "test", str(tmp_path)
    with pytest.raises(ConfigurationError, match="'one' is not declared"):
        load_registration(home, "test", bound=bindings_of(world.store, "mine"))
    first = bind(world.store, home, "mine", "one", {"path": "one.csv", "format": "csv", "partitions": "none"})
    assert len(first.waits_for) == 1
    assert "'two' is not declared" in first.waits_for[0]
    assert list_sources(world.store) == []
    second = bind(world.store, home, "mine", "two", {"path": "two.csv", "format": "csv", "partitions": "none"})
    assert second.waits_for == ()
    assert "+ job make" in second.changes
    assert [one.dataset.datasetid for one in list_sources(world.store)] == ["one", "out", "two"]
    with pytest.raises(UsageError, match="'two' is not declared"):
        bind(world.store, home, "mine", "two", dict.fromkeys(("path", "format", "partitions")))
    assert set(bindings_of(world.store, "mine")) == {"one", "two"}

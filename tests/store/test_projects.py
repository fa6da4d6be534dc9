"""Projects are namespaces; a store belongs to one environment; reports count what is there."""

import sqlite3

import psycopg
import pytest
from world import NOW, World, job, registration

from opendataflow.errors import ConfigurationError, StoreUnavailable, UsageError
from opendataflow.store import open_store, registry
from opendataflow.store import status_counts as tally


@pytest.fixture
def two(world: World) -> World:
    """Projects p and q, with the same ids in both."""
    for project in ("p", "q"):
        world.apply(job("load", ["orders"], ["totals"], project=project), project=project)
    return world


def declare(world: World, project: str, dataset: str, dataid: str) -> None:
    world.sql(
        "INSERT INTO datastatus (project, datasetid, dataid, status) "
        f"VALUES ('{project}', '{dataset}', '{dataid}', 'READY')"
    )


def test_two_projects_with_the_same_ids_do_not_touch_each_other(two: World) -> None:
    declare(two, "p", "orders", "1")
    assert two.next("load", project="p") == "1"
    assert two.next("load", project="q") is None
    declare(two, "q", "orders", "1")
    ours, theirs = two.must_claim("load", project="p"), two.must_claim("load", project="q")
    two.finish(ours)
    assert (two.status("load", "1", project="p"), two.status("load", "1", project="q")) == ("COMPLETE", "RUNNING")
    assert (two.chunk("totals", "1", project="p"), two.chunk("totals", "1", project="q")) == ("READY", "RUNNING")
    two.sql("UPDATE job_status SET status = 'RESUBMIT' WHERE project = 'p' AND dataid = '1'")
    assert (two.chunk("totals", "1", project="p"), two.chunk("totals", "1", project="q")) == ("RESUBMIT", "RUNNING")
    two.finish(theirs)
    assert two.chunk("totals", "1", project="q") == "READY"
    assert two.status("load", "1", project="p") == "RESUBMIT"
    two.apply(job("load", ["orders"], ["totals"], project="q", lease=90), project="q")
    assert two.store.get_job("load", project="p").lease_seconds == 60


def test_a_job_or_dataset_that_two_projects_have_must_be_named_with_its_project(two: World) -> None:
    with pytest.raises(UsageError, match="several projects have a job 'load': p, q; set DATAFLOW_PROJECT"):
        two.store.get_job("load")
    with pytest.raises(UsageError, match="several projects have a dataset 'orders'"):
        registry.get_dataset(two.store, "orders", project=None)
    with pytest.raises((psycopg.Error, sqlite3.Error), match="several projects have a dataset of this name"):
        two.ready("orders", "1")
    assert two.store.get_job("load", project="q").root == "/data/q"
    with pytest.raises(UsageError, match="job 'lod' is not registered"):
        two.store.get_job("lod")
    with pytest.raises(UsageError, match="dataset 'ordrs' is not registered"):
        registry.get_dataset(two.store, "ordrs", project=None)
    with pytest.raises(UsageError, match="dataset 'load' is not registered; it is a job, and makes 'totals'"):
        registry.get_dataset(two.store, "load", project="p")
    with pytest.raises(UsageError, match=r"dataset 'load' is not registered; add it to project\.yml"):
        registry.get_dataset(two.store, "load", project=None)


def test_another_projects_dataset_can_be_an_input(world: World) -> None:
    world.apply(job("feed", [], ["orders"], partitions={"shards": "1..2"}))
    with pytest.raises(ConfigurationError, match=r"this store has no dataset other\.orders; apply that project first"):
        world.apply(job("load", ["other.orders"], ["totals"], project="q"), project="q")
    world.apply(job("load", ["p.orders"], ["totals"], project="q"), project="q")
    assert world.next("load", project="q") is None
    world.complete("feed", "1")
    assert world.next("load", project="q") == "1"
    reader = world.must_claim("load", project="q")
    world.sql("UPDATE job_status SET status = 'RESUBMIT' WHERE jobid = 'feed'")
    assert world.claim("feed", "1") is None
    world.finish(reader)
    assert world.claim("feed", "1") is not None


def test_a_dataset_has_one_producer_in_the_whole_store(world: World) -> None:
    world.apply(job("feed", [], ["orders"]))
    stolen = registration(job("feed", [], ["mine"], project="q"), project="q")
    link = stolen.jobs[0].links[0]._replace(dataset_project="p", datasetid="orders")
    thief = stolen.jobs[0]._replace(links=(link,))
    with pytest.raises(ConfigurationError, match=r"dataset orders is already produced by p\.feed"):
        registry.apply(world.store, stolen._replace(jobs=(thief,)), now=NOW)
    assert world.sql("SELECT count(*) FROM project") == [(1,)]


# Environment, schema, address ---------------------------------------------------------------------------------------
def test_a_store_stays_with_the_environment_it_was_stamped_with(world: World) -> None:
    world.apply(job("feed", [], ["orders"]))
    open_store(world.url, actor="x", environment="test").close()
    with pytest.raises(ConfigurationError, match="belongs to environment 'test', not 'production'") as refused:
        open_store(world.url, actor="x", environment="production")
    assert refused.value.exit_code == 2
    registry.apply(world.store, registration(job("feed", [], ["orders"]), environment="production"), now=NOW)
    assert world.sql("SELECT environment FROM store") == [("test",)]


def test_a_store_of_another_version_is_refused_with_the_next_step(world: World) -> None:
    with pytest.raises(ConfigurationError, match="this version needs 999; run `dataflow db upgrade`"):
        world.store.check_schema(999)
    with pytest.raises(ConfigurationError, match="install a newer opendataflow"):
        world.store.check_schema(0)


def test_an_empty_store_says_how_to_make_it(tmp_path, postgres_server) -> None:
    missing = f"sqlite:///{tmp_path / 'no' / 'state.db'}"
    with pytest.raises(StoreUnavailable, match=r"there is no store at .*state\.db; run `dataflow apply`") as away:
        open_store(missing, actor="x")
    assert away.value.exit_code == 75
    assert not (tmp_path / "no").exists()
    with pytest.raises(ConfigurationError, match="is empty; run `dataflow apply`"):
        open_store(postgres_server.new_database(), actor="x")
    with pytest.raises(StoreUnavailable):
        open_store("postgresql://nobody@localhost:1/none", actor="x")
    with pytest.raises(ConfigurationError, match="starts with 'mysql'"):
        open_store("mysql://x", actor="x")
    (tmp_path / "text.db").write_text("this is not a database, however long it may be " * 100)
    with pytest.raises(StoreUnavailable, match="damaged"):
        open_store(f"sqlite:///{tmp_path / 'text.db'}", actor="x")


def test_a_password_in_the_stores_address_is_not_shown(monkeypatch) -> None:
    from opendataflow.store.base import without_password

    assert without_password("postgresql://anna:s3cret@db/state") == "postgresql://anna:***@db/state"
    assert without_password("postgresql://anna@db/state") == "postgresql://anna@db/state"
    with pytest.raises(StoreUnavailable) as away:
        open_store("postgresql://anna:s3cret@localhost:1/none", actor="x")
    assert "s3cret" not in str(away.value)


# Reports ------------------------------------------------------------------------------------------------------------
def test_reports_count_and_list_what_is_there(world: World) -> None:
    world.apply(job("load", ["orders"], ["totals"]), job("idle", ["nothing"], ["none"]))
    world.ready("orders", "9", "10", "100")
    world.complete("load", "9")
    claim = world.must_claim("load", "10")
    world.pass_time(100)
    counts = tally.counts(world.store, project="p")
    assert counts["jobs"] == {"idle": {}, "load": {"COMPLETE": 1, "PENDING": 1, "RUNNING": 1, "EXPIRED": 1}}
    assert counts["datasets"]["orders"] == {"READY": 3}
    assert counts["datasets"]["nothing"] == {}
    rows = registry.job_rows(world.store, project=None, jobid="load", status=None, limit=10)
    assert [(row["dataid"], row["status"]) for row in rows] == [
        ("9", "COMPLETE"),
        ("10", "RUNNING"),
        ("100", "PENDING"),
    ]
    only = registry.job_rows(world.store, project=None, jobid=None, status="RUNNING", limit=10)
    assert [row["dataid"] for row in only] == ["10"]
    run = registry.get_run(world.store, claim.runid)
    assert (run["status"], run["dataid"], run["attempt"]) == ("RUNNING", "10", 1)
    assert [run["runid"] for run in registry.runs_of(world.store, "p", "load", "10")] == [claim.runid]
    with pytest.raises(UsageError, match="there is no run 4711"):
        registry.get_run(world.store, 4711)


def test_all_runs_of_a_dataid_are_listed_newest_first(world: World) -> None:
    world.apply(job("load", ["orders"], ["totals"]))
    world.ready("orders", "1", "2")
    tokens = []
    for _ in range(3):
        claim = world.must_claim("load", "1")
        tokens.append(claim.runid)
        world.finish(claim)
        world.sql("UPDATE job_status SET status = 'RESUBMIT' WHERE dataid = '1'")
    world.complete("load", "2")
    assert [run["runid"] for run in registry.runs_of(world.store, "p", "load", "1")] == tokens[::-1]
    assert [run["runid"] for run in registry.runs_of(world.store, "p", "load", "1", limit=1)] == tokens[-1:]

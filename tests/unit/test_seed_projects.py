"""Projects in the seed's own form: name, and pipelines with slug, sources, destination and transformations."""

import datetime
import json
from pathlib import Path

import pytest

from opendataflow.domain.registration import JobSpec, LinkSpec, Registration
from opendataflow.project.registration.load import load_registration
from opendataflow.store import open_store
from opendataflow.store.migrate import upgrade
from opendataflow.store.registry import apply

SEED = """\
name: "Lead Collection"
# You can have as many pipelines as you want
pipelines:
    # Unique name for your pipeline
  - slug: "clean_form_entries"
    sources:
      - form_entries
      - salutations
    destination: datasource_csv
    transformations:
      - build_hello_world
      - add_salutation
"""
DAILY = "datasets:\n  days: {path: 'days/{dataid}.csv', format: csv, partitions: {daily: 2025-01-01..2025-01-03}}\n"


def loaded(folder: Path, text: str) -> Registration:
    (folder / "project.yml").write_text(text, encoding="utf-8")
    return load_registration(str(folder), "default")


def pipeline(folder: Path, text: str, *, before: str = "") -> JobSpec:
    """The only job of a project with this pipeline; its source is `a` and its destination `b`, if it names none."""
    given = "".join(
        f"\n    {key}: {value}" for key, value in (("sources", "[a]"), ("destination", "b")) if f"{key}:" not in text
    )
    (job,) = loaded(folder, f"name: x\n{before}pipelines:\n  - slug: p{given}\n    {text}\n").jobs
    return job


def inputs(job: JobSpec) -> list[tuple[str, str]]:
    return [(link.datasetid, link.map) for link in job.links if link.itemtype == "IN"]


# The form itself ------------------------------------------------------------------------------------------------------
def test_the_seeds_project_is_valid_as_it_is(tmp_path: Path) -> None:
    made = loaded(tmp_path, SEED)
    assert (made.project, made.environment, made.root) == ("lead-collection", "default", str(tmp_path))
    of = {one.datasetid: one for one in made.datasets}
    assert {name: (one.location, one.format, one.partitions) for name, one in of.items()} == {
        "form_entries": ("sources/form_entries.csv", "csv", '"none"'),
        "salutations": ("sources/salutations.csv", "csv", '"none"'),
        "datasource_csv": ("output/datasource_csv.csv", "csv", None),
    }
    (job,) = made.jobs
    assert (job.jobid, job.kind, job.partitions) == ("clean_form_entries", "pipeline", '"none"')
    assert job.links == (
        LinkSpec("IN", "lead-collection", "form_entries", "full"),
        LinkSpec("IN", "lead-collection", "salutations", "full"),
        LinkSpec("OUT", "lead-collection", "datasource_csv"),
    )
    assert json.loads(job.definition) == {
        "transformations": ["build_hello_world", "add_salutation"],
        "spark": {"master": None, "conf": {}},
    }


def test_names_with_their_suffixes_mean_the_same(tmp_path: Path) -> None:
    plain = loaded(tmp_path, SEED)
    suffixed = SEED
    for name, suffix in (("form_entries\n", ".csv"), ("salutations", ".csv"), ("datasource_csv", ".csv"),
                         ("build_hello_world", ".py"), ("add_salutation\n", ".py")):  # fmt: skip
        suffixed = suffixed.replace(f" {name}", f" {name.strip()}{suffix}" + ("\n" if "\n" in name else ""))
    assert suffixed.count(".csv") == 3
    assert suffixed.count(".py") == 2
    assert loaded(tmp_path, suffixed) == plain


def test_one_source_and_one_transformation_need_no_list(tmp_path: Path) -> None:
    job = pipeline(tmp_path, "sources: a.csv\n    transformations: clean.py")
    assert inputs(job) == [("a", "full")]
    assert json.loads(job.definition)["transformations"] == ["clean"]


def test_a_source_that_nobody_declares_needs_no_scan(tmp_path: Path) -> None:
    found = next(one for one in loaded(tmp_path, SEED).datasets if one.datasetid == "salutations")
    assert json.loads(found.definition or "") == {"arrival": {"stable": 0.0, "again": True}}


def test_sources_and_output_lie_below_the_environments_root(tmp_path: Path) -> None:
    made = loaded(tmp_path, "environments: {default: {root: data}}\n" + SEED)
    assert made.root == str(tmp_path / "data")
    assert {one.location for one in made.datasets} == {
        "sources/form_entries.csv", "sources/salutations.csv", "output/datasource_csv.csv",
    }  # fmt: skip


def test_a_number_can_be_a_name(tmp_path: Path) -> None:
    job = pipeline(tmp_path, "sources: [2013, 007.csv]\n    transformations: [1]")
    assert inputs(job) == [("2013", "full"), ("007", "full")]
    assert json.loads(job.definition)["transformations"] == ["1"]


@pytest.mark.parametrize("written", ["orders", "orders.csv", "x.orders"])
@pytest.mark.parametrize("declared", ["orders", "orders.csv"])
def test_a_declared_dataset_is_found_with_and_without_the_suffix(tmp_path: Path, declared: str, written: str) -> None:
    before = f"datasets: {{{declared}: {{path: lake/orders, format: parquet, partitions: none}}}}\n"
    job = pipeline(tmp_path, f"sources: [{written}]", before=before)
    assert inputs(job) == [(declared, "full")]
    job = pipeline(tmp_path, f"destination: {written}", before=before)
    assert job.links[-1] == LinkSpec("OUT", "x", declared)


def test_a_name_with_a_dot_is_another_projects_dataset_but_not_with_the_suffix(tmp_path: Path) -> None:
    job = pipeline(tmp_path, "sources: [shop.orders, orders.v2.csv]")
    assert job.links[:2] == (LinkSpec("IN", "shop", "orders"), LinkSpec("IN", "x", "orders.v2", "full"))


# Chains ---------------------------------------------------------------------------------------------------------------
CHAIN = """\
name: x
pipelines:
  - {slug: last, sources: [middle.csv, a], destination: end}
  - {slug: first, sources: a, destination: middle}
"""


def test_a_source_that_is_another_pipelines_destination_is_chained_to_it(tmp_path: Path) -> None:
    made = loaded(tmp_path, CHAIN)
    assert [one.location for one in made.datasets] == ["output/end.csv", "output/middle.csv", "sources/a.csv"]
    last, first = made.jobs
    assert (last.partitions, first.partitions) == ('"none"', '"none"')
    assert {name for name, _ in inputs(last)} == {"middle", "a"}


def test_a_chain_is_registered_and_its_second_part_waits_for_the_first(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/state.db", actor="somebody", must_exist=False, check=False)
    upgrade(store)
    apply(store, loaded(tmp_path, CHAIN), now=datetime.datetime(2025, 6, 1, tzinfo=datetime.UTC))
    rows = store.read("job_rows", {"project": "x", "jobid": None, "status": None, "limit": 9}, file="registry")
    assert sorted((row[1], row[2], row[3]) for row in rows) == [
        ("first", "full", "PENDING"),
        ("last", "full", "PENDING"),
    ]
    assert store.find_claimable(store.get_job("last", project="x")) is None
    store.close()


def test_a_script_job_can_read_a_destination_that_nobody_declares(tmp_path: Path) -> None:
    text = CHAIN + "datasets: {sent: {}}\njobs: {send: {inputs: [end], outputs: [sent]}}\n"
    assert loaded(tmp_path, text).jobs[0].links[0].datasetid == "end"


def test_what_is_made_as_one_chunk_is_read_whole_by_every_day(tmp_path: Path) -> None:
    text = f"name: x\n{DAILY}pipelines:\n  - {{slug: first, sources: a, destination: rates}}\n"
    text += "  - {slug: second, sources: [rates, days], destination: end}\n"
    job = loaded(tmp_path, text).jobs[1]
    assert job.partitions == '{"daily": "2025-01-01..2025-01-03"}'
    assert inputs(job) == [("rates", "full"), ("days", "same")]


# Single files as destinations -----------------------------------------------------------------------------------------
def test_a_destination_that_nobody_declares_is_one_file_also_of_a_daily_pipeline(tmp_path: Path) -> None:
    made = loaded(tmp_path, f"name: x\n{DAILY}pipelines:\n  - {{slug: p, sources: days, destination: b}}\n")
    found = next(one for one in made.datasets if one.datasetid == "b")
    assert (found.location, found.partitions) == ("output/b.csv", '{"daily": "2025-01-01..2025-01-03"}')


@pytest.mark.parametrize("path", ["b.csv", "out/b.json", "b.jsonl", "b.parquet", "b.orc", "b.txt", "b.csv.gz", "b"])
def test_a_single_file_can_be_the_destination_of_a_partitioned_pipeline(tmp_path: Path, path: str) -> None:
    for partitions in ("", ", partitions: {daily: 2025-01-01..2025-01-03}"):
        before = f"{DAILY}  b: {{path: {path}{partitions}}}\n"
        assert pipeline(tmp_path, "sources: days", before=before).partitions == '{"daily": "2025-01-01..2025-01-03"}'


# Keys of pipelines ----------------------------------------------------------------------------------------------------
def test_what_is_set_reaches_the_jobs_definition(tmp_path: Path) -> None:
    text = """engine: pandas
    chunks_per_job: 50
    at_once: 4
    checks: [{rows: {min: 1}}, {not_null: {columns: [a], on_fail: warn}}]
    profile: yes
    replace: true
    notify: ["mailto://ops@example.com"]
    mode: batch
    order: strict
    catchup: latest
    retries: {max: 2, backoff: 5m}
    timeout: 1h"""
    job = pipeline(tmp_path, text)
    assert json.loads(job.definition) == {
        "transformations": [],
        "spark": {"master": None, "conf": {}},
        "engine": "pandas",
        "chunks_per_job": 50,
        "at_once": 4,
        "checks": [
            {"kind": "rows", "options": {"min": 1}, "on_fail": "fail"},
            {"kind": "not_null", "options": {"columns": ["a"]}, "on_fail": "warn"},
        ],
        "profile": True,
        "replace": True,
        "notify": {"to": [["pipelines/p/notify/0", "mailto"]]},
    }
    assert (job.strict, job.catchup, job.retries_max, job.backoff_seconds, job.timeout_seconds) == (
        1, "latest", 2, 300.0, 3600.0,
    )  # fmt: skip


def test_what_is_off_stays_out_of_the_definition(tmp_path: Path) -> None:
    job = pipeline(tmp_path, "profile: no\n    replace: false\n    checks: []\n    notify:")
    assert set(json.loads(job.definition)) == {"transformations", "spark"}


def test_a_source_can_be_mapped_like_a_jobs_input(tmp_path: Path) -> None:
    before = DAILY + "  rates: {path: 'rates/{dataid}.csv', partitions: {daily: 2024-12-31..2025-01-03}}\n"
    job = pipeline(tmp_path, "sources: [days, rates: {map: {offset: -1}}]", before=before)
    assert inputs(job) == [("days", "same"), ("rates", "offset:-1")]


# Clocks ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("written", "datasetid", "clock"),
    [
        ("frequency: 30m", "every 30m", "every 30m"),
        ("frequency: 1d", "every 1d", "every 1d"),
        ('cron: "0 3 * * *"', "cron 0 3 * * *", "cron 0 3 * * *"),
        ("cron: 0 3 * * * Europe/Berlin", "cron 0 3 * * * Europe/Berlin", "cron 0 3 * * * Europe/Berlin"),
        (
            "cron: 0 3 * * *\n    timezone: Europe/Berlin",
            "cron 0 3 * * * Europe/Berlin",
            "cron 0 3 * * * @Europe/Berlin",
        ),
    ],
)
def test_a_pipeline_goes_by_its_clock_after_its_sources(
    tmp_path: Path, written: str, datasetid: str, clock: str
) -> None:
    made = loaded(tmp_path, f"name: x\npipelines:\n  - slug: p\n    sources: [a]\n    destination: b\n    {written}\n")
    (job,) = made.jobs
    assert job.links == (
        LinkSpec("IN", "x", "a", "full"),
        LinkSpec("IN", "x", datasetid),
        LinkSpec("OUT", "x", "b"),
    )
    assert job.partitions is None
    assert next(one.clock for one in made.datasets if one.datasetid == datasetid) == clock


def test_a_pipeline_with_a_clock_reads_all_there_is_of_a_source_unless_it_says_otherwise(tmp_path: Path) -> None:
    text = f"name: x\n{DAILY}pipelines:\n  - {{slug: p, sources: a, destination: whole}}\n"
    text += "  - {slug: q, sources: [days, whole, a], destination: b, frequency: 30m}\n"
    assert inputs(loaded(tmp_path, text).jobs[1]) == [
        ("days", "all"), ("whole", "full"), ("a", "full"), ("every 30m", "same"),
    ]  # fmt: skip
    said = text.replace("[days,", "[{days: {map: same}},")
    assert inputs(loaded(tmp_path, said).jobs[1])[0] == ("days", "same")


def test_a_clock_can_stand_among_the_sources(tmp_path: Path) -> None:
    job = pipeline(tmp_path, "sources: [days, today]", before=DAILY)
    assert inputs(job) == [("days", "same"), ("today", "same")]
    assert job.partitions is None

"""Streams in project.yml: what they declare, what they register, and the names of batches and slots."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opendataflow.domain.dataset import Dataset
from opendataflow.domain.registration import JobSpec
from opendataflow.domain.streams import (
    MOST_OFFSET,
    Field,
    Settings,
    batch_id,
    batch_range,
    read_settings,
    slot_end,
    slot_of_moment,
)
from opendataflow.errors import ConfigurationError
from opendataflow.project.registration.load import load_registration

LEADS = """\
name: Shop
datasets:
  planes: {path: planes.csv, format: csv, partitions: none}
pipelines:
  - slug: leads
    mode: stream
    sources: [planes]
    destination: leads
    transformations: [clean_lead]
    stream: {schema: {email: string, age: {type: Integer, required: false}, at: timestamp_ntz}, max_batch: 100}
"""
TABLE = """\
name: Shop
datasets:
  leads:
    url: postgresql://writer@db:5432/crm
    table: public.leads
    partition_column: day
    partitions: {daily: 2026-01-01}
pipelines:
  - slug: intake
    mode: stream
    destination: leads
    stream: {schema: {email: string}, seal: daily}
"""


def load(folder: Path, text: str) -> tuple[dict[str, Dataset], dict[str, JobSpec]]:
    (folder / "project.yml").write_text(text)
    made = load_registration(str(folder), "default")
    return {one.datasetid: one for one in made.datasets}, {one.jobid: one for one in made.jobs}


def settings(job: JobSpec) -> Settings:
    found = read_settings(job.jobid, json.loads(job.definition))
    assert found is not None
    return found


def links(job: JobSpec) -> list[tuple[str, str, str]]:
    return [(link.itemtype, link.datasetid, link.map) for link in job.links]


def test_a_stream_registers_its_batches_and_what_seals_them(tmp_path: Path) -> None:
    datasets, jobs = load(tmp_path, LEADS)
    assert list(jobs) == ["leads", "leads_seal"]
    assert links(jobs["leads"]) == [("IN", "planes", "full"), ("OUT", "leads_live", "same")]
    assert links(jobs["leads_seal"]) == [("IN", "leads_live", "rollup"), ("OUT", "leads", "same")]
    assert (datasets["leads_live"].location, datasets["leads_live"].format) == ("output/leads_live", "parquet")
    assert datasets["leads_live"].has_own_runs
    assert all(job.partitions is None and job.concurrency == 1 and job.kind == "pipeline" for job in jobs.values())
    assert json.loads(jobs["leads_seal"].definition)["seal"] == {"stream": "leads", "every": "hourly", "records": False}


def test_what_is_left_out_of_a_stream_has_a_default(tmp_path: Path) -> None:
    _, jobs = load(tmp_path, LEADS)
    assert settings(jobs["leads"]) == Settings(
        (Field("email", "string", True), Field("age", "int", False), Field("at", "timestamp", True)), 100,
        "hourly", 0.2, 7 * 86_400.0, 1_000_000, 10 << 20, "set_aside", {"intake": True}, "leads", "leads_live",
        "leads_seal", False,
    )  # fmt: skip
    assert (jobs["leads"].retries_max, jobs["leads"].backoff_seconds) == (3, 2.0)


def test_what_a_stream_says_is_what_it_gets(tmp_path: Path) -> None:
    said = (
        "{schema: {tags: 'ARRAY<struct<a: Long, b: Decimal(5, 2)>>'}, every: 1.5s, retention: 1d, backlog: 5, "
        "body: 64KB, on_error: fail, seal: daily, from: {folder: incoming/leads, format: ndjson}}"
    )
    text = LEADS[: LEADS.index("    stream:")] + f"    retries: {{max: 0}}\n    stream: {said}\n"
    _, jobs = load(tmp_path, text)
    found = settings(jobs["leads"])
    assert found.schema == (Field("tags", "array<struct<a:bigint,b:decimal(5,2)>>", True),)
    assert found[2:9] == (
        "daily", 1.5, 86_400.0, 5, 65_536, "fail", {"folder": "incoming/leads", "format": "ndjson"}
    )  # fmt: skip
    assert found.origin == "folder"
    assert jobs["leads"].retries_max == 0


def test_a_stream_into_a_table_appends_to_it_and_the_seal_only_records(tmp_path: Path) -> None:
    datasets, jobs = load(tmp_path, TABLE)
    live = datasets["leads_live"]
    assert (live.schemaname, live.tablename, live.partitions) == ("public", "leads", None)
    assert json.loads(live.definition or "")["write"] == "append"
    assert links(jobs["intake"]) == [("OUT", "leads_live", "same")]
    assert settings(jobs["intake"]).in_table
    assert json.loads(jobs["intake_seal"].definition)["seal"]["records"] is True


def test_who_reads_a_stream_reads_its_sealed_slots(tmp_path: Path) -> None:
    later = "  - {slug: report, sources: leads, destination: report, transformations: [sum]}\n"
    _, jobs = load(tmp_path, LEADS + later)
    assert links(jobs["report"]) == [("IN", "leads", "same"), ("OUT", "report", "same")]
    assert jobs["report"].partitions is None  # hours become its dataids as they are sealed


@pytest.mark.parametrize(
    ("added", "said"),
    [
        (
            "  - {slug: leads_seal, sources: planes, destination: x}\n",
            "'leads_seal' is the job of what seals this stream",
        ),
        ("  - {slug: x, sources: planes, destination: leads_live}\n", "'leads_live' is the dataset of the batches"),
    ],
)
def test_the_names_of_batches_and_seals_are_taken(tmp_path: Path, added: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        load(tmp_path, LEADS + added)


@given(st.integers(0, MOST_OFFSET - 1), st.integers(1, 100_000))
def test_the_dataid_of_a_batch_is_its_range_and_sorts_as_its_items(start: int, count: int) -> None:
    end = min(start + count, MOST_OFFSET)
    assert batch_range(batch_id(start, end)) == (start, end)
    if end < MOST_OFFSET:
        assert batch_id(start, end) < batch_id(end, end + 1)


@pytest.mark.parametrize("dataid", ["2026-11-16", "000000000000-00000000001", "full", "-", "00000000000a-000000000001"])
def test_other_dataids_are_no_batches(dataid: str) -> None:
    with pytest.raises(ValueError, match="not the dataid of a batch"):
        batch_range(dataid)


@pytest.mark.parametrize(
    ("seal", "slot", "end"),
    [("hourly", "2026-12-31T23", "2027-01-01T00:00:00.000Z"), ("daily", "2026-12-31", "2027-01-01T00:00:00.000Z")],
)
def test_a_slot_is_the_hour_or_day_of_its_items(seal: str, slot: str, end: str) -> None:
    at: Any = "2026-12-31T23:59:59.999Z"
    assert slot_of_moment(at, seal) == slot
    assert slot_end(slot) == end
    assert slot_of_moment(end, seal) > slot

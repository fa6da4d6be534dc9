"""`notify:` of project.yml: what a job's definition keeps of it, and from a place in the file back to the address."""

import json
from pathlib import Path

import pytest

from opendataflow.domain.alerts import Event, read_settings
from opendataflow.errors import ConfigurationError, SecretError
from opendataflow.project.notify_address import fill, masked, read_address
from opendataflow.project.registration.load import load_registration
from opendataflow.project.schema.notify import shown
from opendataflow.project.secrets import encrypt

PROJECT = """
name: shop
notify: {to: ["json://x.example.com/s3cr3t", "mailto://ops:s3cr3t@example.com"], on: [failed, late], late_after: 1800}
datasets: {a: {path: a}, b: {path: b}, c: {path: c}, d: {path: d}}
jobs:
  one: {outputs: [a]}
  two: {outputs: [b], notify: "mailto://ops:s3cr3t@example.com"}
  three: {outputs: [c], notify: {to: ["slack://s3/cr/3t"], on: [stuck], stuck_after: 2h, gather: 10s}}
  four: {outputs: [d], notify: []}
pipelines:
  - slug: leads
    mode: stream
    destination: leads
    stream: {schema: {email: string}}
    notify: ["${LEADS_ADDRESS}"]
"""


def settings(folder: Path, text: str = PROJECT) -> dict[str, object]:
    (folder / "project.yml").write_text(text)
    jobs = load_registration(str(folder), "default").jobs
    assert "s3cr3t" not in "".join(job.definition for job in jobs)
    return {job.jobid: read_settings(json.loads(job.definition)) for job in jobs}


def test_the_definition_keeps_where_the_address_stands_and_never_the_address(tmp_path: Path) -> None:
    found = settings(tmp_path)
    assert found["one"].to == (("notify/to/0", "json"), ("notify/to/1", "mailto"))  # type: ignore[attr-defined]
    assert found["two"].to == (("notify/to/1", "mailto"),)  # type: ignore[attr-defined]  # the same address, once
    assert found["three"].to == (("jobs/three/notify/to/0", "slack"),)  # type: ignore[attr-defined]
    assert found["four"] is None
    assert found["leads"].to == (("pipelines/leads/notify/0", "${LEADS_ADDRESS}"),)  # type: ignore[attr-defined]


def test_what_a_job_leaves_out_is_the_projects(tmp_path: Path) -> None:
    found = settings(tmp_path)
    two, three = found["two"], found["three"]
    assert (two.on, two.late_after) == ({Event.FAILED, Event.LATE}, 1800.0)  # type: ignore[attr-defined]
    assert (three.on, three.late_after) == ({Event.STUCK}, 1800.0)  # type: ignore[attr-defined]
    assert (three.stuck_after, three.gather) == (7200.0, 10.0)  # type: ignore[attr-defined]


def test_what_seals_a_stream_tells_those_whom_the_stream_tells(tmp_path: Path) -> None:
    found = settings(tmp_path)
    sealed = [one for name, one in found.items() if name.startswith("leads")]
    assert len(sealed) == 2
    assert sealed[0] == sealed[1]


def test_every_place_leads_back_to_its_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEADS_ADDRESS", "json://leads.example.com")
    settings(tmp_path)
    home = str(tmp_path)
    assert read_address(home, "notify/to/1") == "mailto://ops:s3cr3t@example.com"
    assert read_address(home, "jobs/two/notify/0") == "mailto://ops:s3cr3t@example.com"
    assert read_address(home, "jobs/three/notify/to/0") == "slack://s3/cr/3t"
    assert read_address(home, "pipelines/leads/notify/0") == "json://leads.example.com"
    for gone in ("notify/to/7", "jobs/five/notify/0", "jobs/four/notify/0"):
        with pytest.raises(ConfigurationError, match="has no address at"):
            read_address(home, gone)


def test_what_is_missing_is_named_and_nothing_of_the_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "project.yml").write_text('name: x\nnotify: ["json://s3cr3t:${TOKEN}@host", "json://s3cr3t:${TOKEN"]\n')
    for place in ("notify/0", "notify/1"):
        with pytest.raises(ConfigurationError) as told:
            read_address(str(tmp_path), place)
        assert "s3cr3t" not in str(told.value)


def test_a_part_of_an_address_or_all_of_it_may_be_encrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATAFLOW_PASSKEY", "a passkey")
    part, whole = encrypt("p@ss/word", "a passkey"), encrypt("json://host/token", "a passkey")
    assert fill(f"mailto://ops:{part}@host") == "mailto://ops:p%40ss%2Fword@host"
    assert fill(whole) == "json://host/token"
    monkeypatch.setenv("DATAFLOW_PASSKEY", "another")
    with pytest.raises(SecretError):
        fill(whole)


def test_no_part_of_an_address_is_left_in_a_text() -> None:
    address = "json://anna:p%40ssw0rd@hooks.example.com:8443/T0K3N/x?key=abcd1234"
    told = "no answer from hooks.example.com:8443 (/T0K3N/x) for anna with p@ssw0rd, p%40ssw0rd, key abcd1234"
    found = masked(told, address)
    for part in ("hooks.example.com", "T0K3N", "anna", "p@ssw0rd", "ssw0rd", "abcd1234", "8443"):
        assert part not in found
    assert found.startswith("no answer from ***")


def test_what_may_be_shown_of_an_address() -> None:
    assert shown("MailTo://ops:x@host") == "mailto"
    assert shown("${OPS:-json://secret}") == "${OPS}"
    assert shown("enc:v1:AAAA") == "encrypted"

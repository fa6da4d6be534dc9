"""OpenDataFlow's own secrets never reach a project: neither by project.yml, nor by what is bound or registered."""

import json
from pathlib import Path

import pytest

from opendataflow.domain.dataset import Dataset
from opendataflow.domain.variables import is_platform_variable, named_variables
from opendataflow.errors import ConfigurationError, UsageError
from opendataflow.execution.environment import find_passwords
from opendataflow.project.address import get_address
from opendataflow.project.bound import read_bindings
from opendataflow.project.check import check_project
from opendataflow.project.notify_address import read_address
from opendataflow.project.registration.load import load_registration, read_addresses
from opendataflow.project.variables import expand

SECRET = "open sesame 42"
SECRETS = (
    "DATAFLOW_PASSKEY", "PASSKEY", "DATAFLOW_PASSKEY_FILE", "DATAFLOW_NEW_PASSKEY", "DATAFLOW_STORE",
    "DATAFLOW_GIT_TOKEN", "DATAFLOW_STREAM_TOKEN", "DATAFLOW_TOKEN", "DATAFLOW_HOOK_SECRET", "DATAFLOW_ADMIN_PASSWORD",
    "DATAFLOW_LINEAGE_URL", "OPENLINEAGE_API_KEY", "OPENLINEAGE__TRANSPORT__AUTH__APIKEY",
)  # fmt: skip
TOLD = "is reserved for OpenDataFlow's own secrets and is never filled in; use a variable of another name"


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, SECRET)
    for name in ("DATAFLOW_ENV", "DATAFLOW_STREAMS", "X"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("name", SECRETS)
def test_the_passkey_the_stores_address_and_tokens_are_reserved(name: str) -> None:
    assert is_platform_variable(name)


@pytest.mark.parametrize(
    "name",
    ["DATAFLOW_ENV", "DATAFLOW_HOME", "DATAFLOW_STORE_ID", "DATAFLOW_URL", "DATABASE_URL", "HOOK_TOKEN", "PGPASSWORD",
     "OPENLINEAGE_URL", "OPENLINEAGE_NAMESPACE", "dataflow_passkey", ""],
)  # fmt: skip
def test_variables_of_people_and_those_without_secrets_are_not(name: str) -> None:
    assert not is_platform_variable(name)


def test_names_within_defaults_are_found() -> None:
    assert named_variables("a${X:-${Y}}b$Z${W:-}") == ["X", "Y", "W"]


DATASET = "environments: {dev: {}}\ndatasets:\n  a:\n    "
PLACES = [
    (DATASET + "hostname: %", "5: datasets.a.hostname"),
    (DATASET + "url: postgresql://%/x", "5: datasets.a.url"),
    (DATASET + "options:\n      b: %", "6: datasets.a.options.b"),
    (DATASET + "partitions: {values: [a, '%']}", "5: datasets.a.partitions.values.1"),
    ("environments:\n  dev:\n    root: /srv/%", "4: environments.dev.root"),
    ("environments:\n  dev:\n    streams: /srv/%", "4: environments.dev.streams"),
    ("environments:\n  dev:\n    spark: {conf: {a: '%'}}", "4: environments.dev.spark.conf.a"),
    ("environments:\n  dev:\n    datasets: {a: {hostname: '%'}}\ndatasets: {a: {}}",
     "4: environments.dev.datasets.a.hostname"),
    ("environments:\n  dev: {}\n  prod:\n    root: %", "5: environments.prod.root"),
    ("environments: {dev: {}}\nspark: {master: '%'}", "3: spark.master"),
    ("environments: {dev: {}}\nnotify: ['json://host/%']", "3: notify.0"),
    ("environments: {dev: {}}\nopenlineage: {url: 'http://%'}", "3: openlineage.url"),
    ("environments: {dev: {}}\njobs:\n  load:\n    notify: {to: ['%']}", "5: jobs.load.notify.to.0"),
    ("environments: {dev: {}}\njobs:\n  load:\n    env: {A: '%'}", "5: jobs.load.env.A"),
]  # fmt: skip


@pytest.mark.parametrize("written", ["${DATAFLOW_PASSKEY}", "${DATAFLOW_PASSKEY:-x}", "${X:-${DATAFLOW_PASSKEY}}"])
@pytest.mark.parametrize(("text", "at"), PLACES)
def test_naming_one_is_an_error_with_file_line_and_key(tmp_path: Path, text: str, at: str, written: str) -> None:
    (tmp_path / "project.yml").write_text(f"name: x\n{text.replace('%', written)}\n")
    with pytest.raises(ConfigurationError) as refused:
        load_registration(str(tmp_path), "dev")
    told = str(refused.value).splitlines()
    assert f"{tmp_path}/project.yml:{at}: DATAFLOW_PASSKEY {TOLD}" in told
    assert SECRET not in str(refused.value)
    assert refused.value.exit_code == 2
    line, _, rest = at.partition(": ")
    found = [(one.line, f"{one.message}; {one.next_step}") for one in check_project(str(tmp_path), "dev")]
    assert any(number == int(line) and message.startswith(rest) for number, message in found)
    assert SECRET not in str(found)


@pytest.mark.parametrize("name", SECRETS)
def test_an_address_cannot_come_from_one(tmp_path: Path, name: str) -> None:
    for key, value in (("url_env", name), ("url", f"${{{name}}}"), ("url_env", f"${{X:-{name}}}")):
        (tmp_path / "project.yml").write_text(f"name: x\n{DATASET}table: t\n    {key}: {value}\n")
        with pytest.raises(ConfigurationError) as refused:
            load_registration(str(tmp_path), "dev")
        assert f"6: datasets.a.{key}: {name} {TOLD}" in str(refused.value)
        assert SECRET not in str(refused.value)


def test_a_store_may_be_named_by_its_own_variable_and_by_no_other_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "project.yml"
    file.write_text("name: x\nenvironments: {prod: {store: '${DATAFLOW_STORE}'}}\n")
    monkeypatch.setenv("DATAFLOW_STORE", "postgresql://me:hush@db/state")
    assert get_address(str(tmp_path)).store == "postgresql://me:hush@db/state"
    assert load_registration(str(tmp_path), "prod").environment == "prod"
    assert "hush" not in str(load_registration(str(tmp_path), "prod"))
    assert "hush" not in (tmp_path / ".dataflow/address.json").read_text()
    file.write_text("name: x\nenvironments:\n  prod:\n    store: 'postgresql://${DATAFLOW_GIT_TOKEN}@db/state'\n")
    for read in (get_address, read_addresses):
        with pytest.raises(ConfigurationError, match=r"4: environments\.prod\.store: DATAFLOW_GIT_TOKEN is reserved"):
            read(str(tmp_path))


def test_an_address_that_an_earlier_release_remembered_is_not_filled_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "project.yml"
    file.write_text("name: x\nenvironments: {dev: {streams: '/srv/${OTHER:-x}'}}\n")
    get_address(str(tmp_path))
    cache = tmp_path / ".dataflow/address.json"
    cache.write_text(cache.read_text().replace("${OTHER:-x}", "${DATAFLOW_PASSKEY}"))
    with pytest.raises(ConfigurationError, match="DATAFLOW_PASSKEY is reserved"):
        get_address(str(tmp_path))


def test_an_address_for_messages_is_refused_when_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "project.yml").write_text("name: x\nnotify: ['json://host/${DATAFLOW_PASSKEY}']\n")
    with pytest.raises(ConfigurationError, match="DATAFLOW_PASSKEY is reserved") as refused:
        read_address(str(tmp_path), "notify/0")
    assert SECRET not in str(refused.value)


def test_text_is_filled_in_with_other_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATAFLOW_ENV", "dev")
    assert expand("${DATAFLOW_ENV}/${X:-y}") == "dev/y"


def test_such_a_variable_cannot_be_bound() -> None:
    with pytest.raises(UsageError, match="url_env: DATAFLOW_PASSKEY is reserved"):
        read_bindings({"url_env": "DATAFLOW_PASSKEY"})


def test_what_is_registered_already_is_refused_before_a_run() -> None:
    dataset = Dataset("p", "crm", definition=json.dumps({"url_env": "DATAFLOW_PASSKEY"}))
    with pytest.raises(ConfigurationError, match="dataset crm: url_env: DATAFLOW_PASSKEY is reserved") as refused:
        find_passwords([dataset])
    assert SECRET not in str(refused.value)

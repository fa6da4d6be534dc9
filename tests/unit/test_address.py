"""Which store and environment a command works with, and the cache that spares reading YAML."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from opendataflow.errors import ConfigurationError, SecretError
from opendataflow.project.address import (
    absolute_store,
    expand,
    find_project_folder,
    find_properties_in_use,
    get_address,
    stream_folder,
)
from opendataflow.project.registration import load

PROJECT = """\
name: Feed
environments:
  dev: {}
  prod: {store: "postgresql://${DB_HOST:-db1}/state"}
"""
OTHERS = ("DATAFLOW_PROPERTIES", "DATAFLOW_PASSKEY", "PASSKEY", "DATAFLOW_PASSKEY_FILE")
PASSKEY = "correct horse"
PROPERTIES = """\
url=jdbc:postgresql://db9:5433/flow
user=etl
schema=dataflow
encrypted=XKd1FKJ1k2fPRnxO4p4xjLMFtU/oEyMPyWdiqx6TeduW2sk=
"""  # its password is tiger42
PROPERTIES_STORE = "postgresql://etl:tiger42@db9:5433/flow?options=-csearch_path%3Ddataflow"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("DATAFLOW_STORE", "DATAFLOW_ENV", "DATAFLOW_PROJECT", "DATAFLOW_HOME", "DB_HOST", *OTHERS):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "project"
    (folder / "jobs" / "deep").mkdir(parents=True)
    (folder / "project.yml").write_text(PROJECT)
    return folder


def test_a_project_is_found_from_any_folder_in_it(home: Path) -> None:
    assert find_project_folder(str(home / "jobs" / "deep")) == str(home)
    assert find_project_folder(str(home.parent), str(home / "jobs")) == str(home)
    assert find_project_folder(str(home.parent)) is None


def test_the_first_environment_is_the_default(home: Path) -> None:
    address = get_address(str(home / "jobs"))
    assert address.store == f"sqlite:///{home}/.dataflow/state.db"
    assert (address.environment, address.project, address.home) == ("dev", "feed", str(home))
    assert address.work == f"{home}/.dataflow"


def test_the_environment_chooses_its_store(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATAFLOW_ENV", "prod")
    assert get_address(str(home)).store == "postgresql://db1/state"
    monkeypatch.setenv("DB_HOST", "db2")
    assert get_address(str(home)).store == "postgresql://db2/state"
    monkeypatch.setenv("DATAFLOW_STORE", "sqlite:///other.db")
    monkeypatch.setenv("DATAFLOW_PROJECT", "mine")
    address = get_address(str(home))
    assert (address.store, address.environment, address.project) == (f"sqlite:///{home}/other.db", "prod", "mine")
    monkeypatch.setenv("DATAFLOW_ENV", "nowhere")
    with pytest.raises(ConfigurationError, match=r"DATAFLOW_ENV is 'nowhere'; .*project.yml has dev, prod"):
        get_address(str(home))


def test_without_a_project_the_store_must_be_given(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match=r"found no project.yml .* and DATAFLOW_STORE is not set"):
        get_address(str(home.parent))
    monkeypatch.setenv("DATAFLOW_STORE", "postgresql://db/state")
    monkeypatch.setenv("DATAFLOW_HOME", "/var/dataflow")
    address = get_address(str(home.parent))
    assert address == ("postgresql://db/state", None, None, None, "/var/dataflow", None, "", None)


# The cache ----------------------------------------------------------------------------------------------------------
def test_project_yml_is_read_once_while_it_stays_the_same(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = get_address(str(home))
    monkeypatch.setattr(load, "read_addresses", lambda _folder: pytest.fail("read again"))
    assert get_address(str(home)) == first


def test_a_changed_project_yml_is_read_again(home: Path) -> None:
    get_address(str(home))
    seen = os.stat(home / "project.yml")
    (home / "project.yml").write_text(PROJECT.replace("Feed", "Food"))  # the same size
    os.utime(home / "project.yml", ns=(seen.st_atime_ns, seen.st_mtime_ns + 1))
    assert get_address(str(home)).project == "food"


@pytest.mark.parametrize("damage", ["", "{", "[]", "null", '{"stamp": 1}', '{"other": 1}'])
def test_a_damaged_cache_is_made_anew(home: Path, damage: str) -> None:
    expected = get_address(str(home))
    cache = home / ".dataflow" / "address.json"
    cache.write_text(damage)
    assert get_address(str(home)) == expected
    assert json.loads(cache.read_text())["project"] == "feed"


def test_the_cache_keeps_no_value_of_the_environment(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_HOST", "s3cret-host")
    monkeypatch.setenv("DATAFLOW_ENV", "prod")
    get_address(str(home))
    cache = home / ".dataflow" / "address.json"
    assert "s3cret-host" not in cache.read_text()
    assert cache.stat().st_mode & 0o077 == 0
    assert [file.name for file in cache.parent.iterdir()] == ["address.json"]


# dataflow.properties ------------------------------------------------------------------------------------------------
@pytest.fixture
def passkey(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSKEY", PASSKEY)


@pytest.mark.usefixtures("passkey")
def test_without_a_project_the_nearest_properties_give_the_store(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    above = home.parent
    (above / "dataflow.properties").write_text(PROPERTIES)
    (above / "bin").mkdir()
    monkeypatch.setenv("DATAFLOW_HOME", "/var/dataflow")
    expected = (PROPERTIES_STORE, None, None, None, "/var/dataflow", None, "", None)
    assert get_address(str(above / "bin")) == expected
    assert find_properties_in_use(str(above / "bin")) == str(above / "dataflow.properties")
    (above / "bin" / "dataflow.properties").write_text(PROPERTIES.replace("db9", "db8"))
    assert "@db8:" in get_address(str(above / "bin")).store
    monkeypatch.setenv("DATAFLOW_PROPERTIES", str(above / "dataflow.properties"))
    assert get_address(str(above / "bin")) == expected
    monkeypatch.setenv("DATAFLOW_STORE", "postgresql://db/state")
    assert get_address(str(above / "bin")).store == "postgresql://db/state"
    assert find_properties_in_use(str(above / "bin")) is None


@pytest.mark.usefixtures("passkey")
def test_properties_beside_a_project_count_only_when_it_says_nothing_about_stores(home: Path) -> None:
    get_address(str(home))  # cached before there are properties
    (home / "dataflow.properties").write_text(PROPERTIES)
    assert get_address(str(home)).store == f"sqlite:///{home}/.dataflow/state.db", "prod names a store"
    assert find_properties_in_use(str(home)) is None
    for silent in ("name: Feed\n", "name: Feed\nenvironments: {dev: {root: ./d}, prod: {}}\n"):
        (home / "project.yml").write_text(silent)
        address = get_address(str(home / "jobs"))
        assert (address.store, address.project, address.home) == (PROPERTIES_STORE, "feed", str(home))
        assert find_properties_in_use(str(home / "jobs")) == str(home / "dataflow.properties")
    (home / "project.yml").write_text('name: Feed\nenvironments: {dev: {store: "sqlite:///.dataflow/state.db"}}\n')
    assert get_address(str(home)).store == f"sqlite:///{home}/.dataflow/state.db"


@pytest.mark.usefixtures("passkey")
def test_properties_above_a_project_do_not_count(home: Path) -> None:
    (home.parent / "dataflow.properties").write_text(PROPERTIES)
    (home / "project.yml").write_text("name: Feed\n")
    assert get_address(str(home)).store.startswith("sqlite:///")


@pytest.mark.usefixtures("passkey")
def test_the_cache_never_holds_what_the_properties_give(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "dataflow.properties").write_text(PROPERTIES)
    (home / "project.yml").write_text("name: Feed\n")
    first = get_address(str(home))
    assert "tiger42" in first.store
    kept = b"".join(file.read_bytes() for file in (home / ".dataflow").iterdir())
    assert b"silent" in kept
    assert not [secret for secret in (b"tiger42", b"db9", PASSKEY.encode()) if secret in kept]
    monkeypatch.setattr(load, "read_addresses", lambda _folder: pytest.fail("read again"))
    assert get_address(str(home)) == first
    (home / "dataflow.properties").write_text(PROPERTIES.replace("db9", "db8"))
    assert "@db8:" in get_address(str(home)).store, "the properties are read each time"


def test_the_properties_need_the_passkey(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home.parent / "dataflow.properties").write_text(PROPERTIES)
    with pytest.raises(SecretError, match=r"dataflow.properties: encrypted: .*no passkey is given"):
        get_address(str(home.parent))
    assert get_address(str(home.parent), passkey=PASSKEY).store == PROPERTIES_STORE
    monkeypatch.setenv("DATAFLOW_PROPERTIES", str(home / "gone"))
    with pytest.raises(ConfigurationError, match="gone: No such file"):
        get_address(str(home.parent))


def test_finding_the_store_imports_nothing_heavy(home: Path) -> None:
    get_address(str(home))
    code = (
        "import sys; from opendataflow.project.address import get_address; get_address(sys.argv[1]);"
        "print([name for name in ('yaml', 'pydantic', 'cryptography', 'psycopg') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(home)], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


# Small parts --------------------------------------------------------------------------------------------------------
def test_a_relative_store_is_relative_to_the_project() -> None:
    assert absolute_store("sqlite:///a/b.db", "/home/x") == "sqlite:////home/x/a/b.db"
    assert absolute_store("sqlite:////var/b.db", "/home/x") == "sqlite:////var/b.db"
    assert absolute_store("postgresql://db/x", "/home/x") == "postgresql://db/x"


def test_variables_are_expanded_once_and_missing_ones_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A", "${B}")
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.delenv("GONE", raising=False)
    assert expand("plain $A") == "plain $A"
    assert expand("${A}/${A}") == "${B}/${B}"
    assert expand("x${GONE:-d}y${EMPTY:-e}z${GONE:-}") == "xdyez"
    with pytest.raises(ConfigurationError, match="the environment variable GONE is not set"):
        expand("${GONE}")
    with pytest.raises(ConfigurationError, match="the environment variable EMPTY is not set"):
        expand("${EMPTY}")


def test_the_logs_of_streams_are_where_the_environment_says(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "project.yml").write_text("name: shop\nenvironments:\n  dev: {}\n  prod: {streams: '${DISK}/streams'}\n")
    monkeypatch.delenv("DATAFLOW_STREAMS", raising=False)
    assert stream_folder(get_address(str(home)), "shop", "leads") == f"{home}/.dataflow/streams/shop/leads"
    monkeypatch.setenv("DATAFLOW_ENV", "prod")
    monkeypatch.setenv("DISK", "shared")
    assert stream_folder(get_address(str(home)), "shop", "leads") == f"{home}/shared/streams/shop/leads"
    monkeypatch.setenv("DATAFLOW_STREAMS", "/mnt/disk")
    assert stream_folder(get_address(str(home)), "shop", "leads") == "/mnt/disk/shop/leads"

"""dataflow.properties of the original: Java's syntax, and the address it gives."""

from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from opendataflow.errors import ConfigurationError, SecretError
from opendataflow.project.properties import parse, read_properties, read_text, rotate_properties
from opendataflow.project.secrets import Rotation, decrypt, encrypt

PASSKEY = "correct horse"
ORIGINAL = "XKd1FKJ1k2fPRnxO4p4xjLMFtU/oEyMPyWdiqx6TeduW2sk="  # tiger42, made by Java (see test_secrets.py)


def values(text: str) -> dict[str, str]:
    return {key: entry.value for key, entry in parse(text, file="f").items()}


def written(folder: Path, text: str) -> str:
    file = folder / "dataflow.properties"
    file.write_text(text)
    return str(file)


def connection(folder: Path, text: str) -> dict[str, object]:
    """What PostgreSQL's own library makes of the address."""
    return dict(conninfo_to_dict(read_properties(written(folder, text), passkey=PASSKEY).url))


# Java's syntax; each expectation was checked against java.util.Properties ------------------------------------------
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1\nb:2\nc 3\nd\t=\t4\ne = = 5", {"a": "1", "b": "2", "c": "3", "d": "4", "e": "= 5"}),
        ("# a=1\n ! b=2\n\n   \n\tc=#3", {"c": "#3"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=x\\\n   y\\\r\n\tz\nb=1", {"a": "xyz", "b": "1"}),
        ("# no\\\na=1", {"a": "1"}),
        ("a=x\\\n# y", {"a": "x# y"}),
        ("encry\\\n   pted=x", {"encrypted": "x"}),
        ("a\\=b\\:c\\ d=e\\=f", {"a=b:c d": "e=f"}),
        ("a=\\u00e4\\u20AC\\t|\\n|\\q|\\\\", {"a": "ä€\t|\n|q|\\"}),
        ("a=trailing  \nb=", {"a": "trailing  ", "b": ""}),
        ("a\nb=1\\", {"a": "", "b": "1"}),
        ("a=1\na=2", {"a": "2"}),
        ("=x", {"": "x"}),
        ("a=\\\\\nb=1", {"a": "\\", "b": "1"}),
        ("", {}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, expected: dict[str, str]) -> None:
    assert values(text) == expected


def test_a_broken_escape_is_said_with_its_line() -> None:
    with pytest.raises(ConfigurationError, match=r"f:2: \\u needs four hexadecimal digits"):
        parse("a=1\nb=\\u12x4", file="f")


def test_a_file_that_is_no_utf8_is_latin_1(tmp_path: Path) -> None:
    file = tmp_path / "p"
    for raw in ("user=jürgen".encode(), "user=jürgen".encode("latin-1")):
        file.write_bytes(raw)
        assert values(read_text(str(file))) == {"user": "jürgen"}


# The address ----------------------------------------------------------------------------------------------------------
def test_the_seeds_file_becomes_an_address(tmp_path: Path) -> None:
    text = (
        f"url=jdbc:postgresql://localhost:5432/dataflow\nuser=etl\nschema=dataflow\nencrypted={ORIGINAL}\nplatform=x\n"
    )
    found = read_properties(written(tmp_path, text), passkey=PASSKEY)
    assert found.url == "postgresql://etl:tiger42@localhost:5432/dataflow?options=-csearch_path%3Ddataflow"


def test_every_character_of_a_password_arrives(tmp_path: Path) -> None:
    password = "p@ss/w:rd?&%41 +#[]\"'\\ä"
    text = f"url=jdbc:postgresql://db/x\nuser=e t@l\nencrypted={encrypt(password, PASSKEY)}\n"
    assert connection(tmp_path, text) == {"user": "e t@l", "password": password, "host": "db", "dbname": "x"}


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://h:1/d", {"host": "h", "port": "1", "dbname": "d"}),
        ("postgres://h/d?sslmode=require", {"host": "h", "dbname": "d", "sslmode": "require"}),
        ("postgresql:///d?host=/run/pg", {"host": "/run/pg", "dbname": "d"}),
        ("jdbc:postgresql:d", {"host": "localhost", "dbname": "d"}),
        ("jdbc:postgresql://[::1]:5433/d", {"host": "::1", "port": "5433", "dbname": "d"}),
        ("jdbc:postgresql://a:1,b:2/d", {"host": "a,b", "port": "1,2", "dbname": "d"}),
        ("jdbc:postgresql://h/d?ssl=true", {"host": "h", "dbname": "d", "sslmode": "verify-full"}),
        ("jdbc:postgresql://h/d?sslmode=require&prepareThreshold=0&tcpKeepAlive=true&loginTimeout=5",
         {"host": "h", "dbname": "d", "sslmode": "require", "keepalives": "1", "connect_timeout": "5"}),
    ],
)  # fmt: skip
def test_every_form_of_url_is_understood(tmp_path: Path, url: str, expected: dict[str, str]) -> None:
    assert connection(tmp_path, f"url={url}\nuser=etl") == {"user": "etl", **expected}


def test_what_the_url_says_wins_and_its_password_moves_to_where_it_is_hidden(tmp_path: Path) -> None:
    text = f"url=jdbc:postgresql://h/d?user=amy&password=s3cret&currentSchema=mine\nuser=etl\nencrypted={ORIGINAL}"
    found = read_properties(written(tmp_path, text), passkey=PASSKEY)
    assert found.url == "postgresql://amy:s3cret@h/d?options=-csearch_path%3Dmine"
    text = "url=postgresql://amy:s%40@h/d?password=other&options=-cwork_mem%3D8MB\nuser=etl\nschema=s"
    found = read_properties(written(tmp_path, text), passkey=PASSKEY)
    assert conninfo_to_dict(found.url) == {
        "user": "amy", "password": "other", "host": "h", "dbname": "d", "options": "-cwork_mem=8MB -csearch_path=s",
    }  # fmt: skip


def test_a_schema_is_taken_exactly_as_it_is_spelt(tmp_path: Path) -> None:
    found = connection(tmp_path, 'url=jdbc:postgresql://h/d\nschema=My "own" schema')
    assert found["options"] == '-csearch_path="My\\ ""own""\\ schema"'


def test_settings_beside_the_url_are_the_drivers_too(tmp_path: Path) -> None:
    assert connection(tmp_path, "url=jdbc:postgresql://h/d\nsslmode=require") == {
        "host": "h", "dbname": "d", "sslmode": "require",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("user=etl", "url: is missing"),
        ("url=jdbc:h2:mem:dataflow;PASSWORD=s3cret", r"url: starts with 'jdbc:h2'; only PostgreSQL can be used"),
        ("url=s3cret", "only PostgreSQL can be used"),
        ("url=postgresql:d", "is not like postgresql://host:port/database"),
        ("url=jdbc:postgresql://h/d\npassword=s3cret", "password: is plain text; .*call it `encrypted`"),
        ("url=jdbc:postgresql://h/d\nencrypted=s3cret", "encrypted: a credential is damaged"),
    ],
)
def test_a_file_that_names_no_store_is_refused_without_telling_a_secret(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises((ConfigurationError, SecretError), match=told) as refused:
        read_properties(written(tmp_path, text), passkey=PASSKEY)
    assert str(tmp_path) in str(refused.value)
    assert "mem:" not in str(refused.value)
    assert text == "url=s3cret" or "s3cret" not in str(refused.value)


def test_a_wrong_or_missing_passkey_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATAFLOW_PASSKEY", "PASSKEY", "DATAFLOW_PASSKEY_FILE"):
        monkeypatch.delenv(name, raising=False)
    file = written(tmp_path, f"url=jdbc:postgresql://h/d\nencrypted={ORIGINAL}")
    with pytest.raises(SecretError, match=r"dataflow.properties: encrypted: .*the passkey is not the one"):
        read_properties(file, passkey="wrong")
    with pytest.raises(SecretError, match=r"dataflow.properties: encrypted: .*no passkey is given"):
        read_properties(file)
    monkeypatch.setenv("PASSKEY", PASSKEY)
    assert ":tiger42@" in read_properties(file).url
    with pytest.raises(ConfigurationError, match="gone: No such file"):
        read_properties(str(tmp_path / "gone"))


# Another passkey ------------------------------------------------------------------------------------------------------
def test_of_a_properties_file_only_the_credential_changes() -> None:
    raw = f"# größe\r\nurl=x\r\nencrypted : {ORIGINAL[:10]}\\\r\n   {ORIGINAL[10:-1]}\\=\r\nuser=etl".encode("latin-1")
    rotate = Rotation(PASSKEY, "new")
    made, changed, already = rotate_properties(raw, rotate, file="f")
    assert (changed, already) == (1, 0)
    assert made == f"# größe\r\nurl=x\r\nencrypted : {rotate(ORIGINAL)}\r\nuser=etl".encode("latin-1")
    assert decrypt(values(made.decode("latin-1"))["encrypted"], "new") == "tiger42"
    assert rotate_properties(made, rotate, file="f") == (made, 0, 1)
    assert rotate_properties(b"url=x", rotate, file="f") == (b"url=x", 0, 0)
    with pytest.raises(SecretError, match=r"f: encrypted: .*nothing was changed"):
        rotate_properties(raw, Rotation("a", "b"), file="f")

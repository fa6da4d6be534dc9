"""Credentials: only the right passkey opens them, and no message tells a secret."""

import base64
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opendataflow.errors import ConfigurationError, SecretError, UsageError
from opendataflow.project.secrets import (
    PREFIX,
    Rotation,
    decrypt,
    encrypt,
    find_passkey,
    get_new_passkey,
    get_passkey,
    is_encrypted,
    others_can_read,
    rotate_yaml,
)

PASSKEY, PLAIN = "correct horse", "pä$$ `word` \"'\\\n"
NEW_PASSKEY = "battery staple"

# Made by a Java 17 program with the original's algorithm: AES/GCM/NoPadding, SHA-512 of the passkey, nonce in front.
JAVA_MADE = [
    (PASSKEY, "tiger42", "XKd1FKJ1k2fPRnxO4p4xjLMFtU/oEyMPyWdiqx6TeduW2sk="),
    (PASSKEY, "", "JVZkLGO6crCBPHNR2HW0TrsJW1TpL/20Tl2NOA=="),
    ("schlüssel – 42", PLAIN, "TdtG3bnfhKicCyNJ/IPKGNZ7RJKDdOduysIXIaJBtN3EqlD4g0pF6TpW+buz"),
]
ORIGINAL = JAVA_MADE[0][2]


@pytest.fixture
def no_passkey(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("DATAFLOW_PASSKEY", "PASSKEY", "DATAFLOW_PASSKEY_FILE", "DATAFLOW_NEW_PASSKEY"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@settings(max_examples=5, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_what_was_encrypted_is_decrypted(plain: str, passkey: str) -> None:
    assert decrypt(encrypt(plain, passkey), passkey) == plain


def test_the_same_credential_is_never_encrypted_alike() -> None:
    one, other = encrypt(PLAIN, PASSKEY), encrypt(PLAIN, PASSKEY)
    assert one != other
    assert one.startswith("enc:v1:")
    assert PLAIN.strip() not in one


def test_another_passkey_is_refused_without_telling_a_secret() -> None:
    sealed = encrypt(PLAIN, PASSKEY)
    with pytest.raises(SecretError) as refused:
        decrypt(sealed, "wrong horse")
    said = str(refused.value)
    assert "the passkey is not the one it was encrypted with" in said
    assert refused.value.exit_code == 2
    assert not [secret for secret in ("correct", "wrong horse", "word", sealed) if secret in said]


def _changed(sealed: str, position: int) -> str:
    raw = bytearray(base64.b64decode(sealed.removeprefix(PREFIX)))
    raw[position] ^= 1
    return PREFIX + base64.b64encode(bytes(raw)).decode()


@pytest.mark.parametrize("position", [0, 20, 30, -1], ids=["salt", "nonce", "text", "tag"])
def test_a_changed_byte_anywhere_is_found(position: int) -> None:
    with pytest.raises(SecretError):
        decrypt(_changed(encrypt("secret text", PASSKEY), position), PASSKEY)


@pytest.mark.parametrize("text", ["", "hunter2", "enc:v1:", "enc:v1:%%%", "enc:v1:aGVsbG8=", "enc:v2:" + "A" * 80])
def test_text_that_is_no_credential_is_damaged_and_not_repeated(text: str) -> None:
    with pytest.raises(SecretError) as refused:
        decrypt(text, PASSKEY)
    assert "a credential is damaged" in str(refused.value)
    assert "hunter2" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__


def test_a_credential_without_its_version_is_not_opened() -> None:
    with pytest.raises(SecretError):  # it looks like one of the original's, whose key is another
        decrypt(encrypt(PLAIN, PASSKEY).removeprefix(PREFIX), PASSKEY)


def test_bytes_that_are_no_utf8_come_back_as_they_were() -> None:
    plain, passkey = b"p\xff\xfe".decode(errors="surrogateescape"), b"k\xe4y".decode(errors="surrogateescape")
    assert decrypt(encrypt(plain, passkey), passkey) == plain


# The original's credentials -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(("passkey", "plain", "made"), JAVA_MADE, ids=["plain", "empty", "any character"])
def test_what_java_encrypted_is_decrypted(passkey: str, plain: str, made: str) -> None:
    assert is_encrypted(made)
    assert decrypt(made, passkey) == plain
    with pytest.raises(SecretError, match="the passkey is not the one it was encrypted with"):
        decrypt(made, "another")


@pytest.mark.parametrize("position", [0, 13, -1], ids=["nonce", "text", "tag"])
def test_a_changed_byte_of_an_original_credential_is_found(position: int) -> None:
    raw = bytearray(base64.b64decode(ORIGINAL))
    raw[position] ^= 1
    with pytest.raises(SecretError):
        decrypt(base64.b64encode(bytes(raw)).decode(), PASSKEY)


def test_what_looks_encrypted_is_told_from_plain_text() -> None:
    assert is_encrypted("enc:v1:" + "A" * 80)
    for text in ("", "hunter2", "enc:v2:" + "A" * 80, "AAAA", base64.b64encode(b"x" * 27).decode(), "ä" * 40):
        assert not is_encrypted(text), text


# The passkey --------------------------------------------------------------------------------------------------------
def test_the_passkey_comes_from_the_environment_or_a_file(no_passkey: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert find_passkey() is None
    with pytest.raises(SecretError, match="no passkey is given; set DATAFLOW_PASSKEY or DATAFLOW_PASSKEY_FILE"):
        get_passkey()
    file = tmp_path / "key"
    file.write_text(" from file \r\n")
    no_passkey.setenv("DATAFLOW_PASSKEY_FILE", str(file))
    assert get_passkey() == " from file "
    no_passkey.setenv("PASSKEY", "seed")
    assert get_passkey() == "seed"
    no_passkey.setenv("DATAFLOW_PASSKEY", "ours")
    assert get_passkey() == "ours"


def test_a_passkey_file_that_is_empty_or_missing_is_said(no_passkey: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    no_passkey.setenv("DATAFLOW_PASSKEY_FILE", str(tmp_path / "empty"))
    assert find_passkey() is None
    no_passkey.setenv("DATAFLOW_PASSKEY_FILE", str(tmp_path / "missing"))
    with pytest.raises(SecretError, match=r"missing cannot be read: No such file"):
        find_passkey()


def test_the_new_passkey_comes_from_its_own_variable_or_a_file(no_passkey: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(SecretError, match="set DATAFLOW_NEW_PASSKEY or use --new-passkey-file"):
        get_new_passkey(None)
    no_passkey.setenv("DATAFLOW_NEW_PASSKEY", "from variable")
    assert get_new_passkey(None) == "from variable"
    file = tmp_path / "key"
    file.write_text("from file\n")
    assert get_new_passkey(str(file)) == "from file"


def test_a_passkey_file_that_others_can_read_is_known(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.touch()
    for mode, told in ((0o600, False), (0o400, False), (0o640, True), (0o604, True)):
        file.chmod(mode)
        assert others_can_read(str(file)) is told, oct(mode)
    assert not others_can_read(str(tmp_path / "missing"))


# Another passkey ----------------------------------------------------------------------------------------------------
def test_a_rotated_credential_opens_with_the_new_passkey_only() -> None:
    rotate = Rotation(PASSKEY, NEW_PASSKEY)
    for old in (encrypt("tiger42", PASSKEY), ORIGINAL):
        new = rotate(old)
        assert new.startswith(PREFIX)
        assert decrypt(new, NEW_PASSKEY) == "tiger42"
        with pytest.raises(SecretError):
            decrypt(new, PASSKEY)
        assert rotate(old) == new, "the same text wherever it stands"
        assert rotate(new) == new, "what is done stays"


def test_an_original_credential_under_the_new_passkey_becomes_ours() -> None:
    assert decrypt(Rotation("before", PASSKEY)(ORIGINAL), PASSKEY) == "tiger42"
    assert Rotation("before", PASSKEY)(ORIGINAL).startswith(PREFIX)


def test_the_same_passkey_twice_is_no_rotation() -> None:
    with pytest.raises(UsageError, match="the new passkey is the old one"):
        Rotation(PASSKEY, PASSKEY)


def test_of_a_yaml_text_only_the_credentials_change() -> None:
    one, two, done = encrypt("one", PASSKEY), encrypt("two", PASSKEY), encrypt("done", NEW_PASSKEY)
    text = (
        f'\ufeffname: "Größe"\r\ndatasets:\r\n  a: {{hostname: x, encryptedpass: {one}}}   # keep  this\r\n'
        f"  b:\n    encryptedpass: '{ORIGINAL}'\n    tablename: {ORIGINAL}\n"
        f'  c: {{encryptedpass: "{done}"}}\n  d: {{options: {{password: {two}}}}}\n'
        f"  f: {{password: {ORIGINAL}, options: {{password: plain}}}}\n"
        f"  e: {{encryptedpass: {one}}}\n  # before: {encrypt('gone', 'long ago')}, enc:v1:…\n \n"
    )
    rotate = Rotation(PASSKEY, NEW_PASSKEY)
    rotated, changed, already = rotate_yaml(text, rotate, file="project.yml")
    assert (changed, already) == (5, 1)
    expected = text.replace(one, rotate(one)).replace(two, rotate(two))
    for before in ("'{}'", "password: {},"):
        expected = expected.replace(before.format(ORIGINAL), before.format(rotate(ORIGINAL)))
    assert rotated == expected
    assert rotate_yaml(rotated, rotate, file="project.yml") == (rotated, 0, 6)


def test_a_credential_that_neither_passkey_opens_is_said_with_its_line() -> None:
    text = f"datasets:\n  a: {{encryptedpass: {encrypt('x', 'third')}}}\n"
    with pytest.raises(SecretError, match=r"p.yml:2: .*passkey is not the one .*; nothing was changed"):
        rotate_yaml(text, Rotation(PASSKEY, NEW_PASSKEY), file="p.yml")
    with pytest.raises(SecretError, match=r"p.yml:1: a credential is damaged") as refused:
        rotate_yaml("encryptedpass: hunter2", Rotation(PASSKEY, NEW_PASSKEY), file="p.yml")
    assert "hunter2" not in str(refused.value)
    with pytest.raises(ConfigurationError, match=r"p.yml: not valid YAML"):
        rotate_yaml("a: [", Rotation(PASSKEY, NEW_PASSKEY), file="p.yml")

"""Credentials: only the right passkey opens them, and no message tells a secret."""

import base64
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opendataflow.errors import SecretError
from opendataflow.project.secrets import PREFIX, decrypt, encrypt, find_passkey, get_passkey

PASSKEY, PLAIN = "correct horse", "pä$$ `word` \"'\\\n"


@pytest.fixture
def no_passkey(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("DATAFLOW_PASSKEY", "PASSKEY", "DATAFLOW_PASSKEY_FILE"):
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


def test_a_credential_without_its_version_is_damaged() -> None:
    with pytest.raises(SecretError, match="damaged"):
        decrypt(encrypt(PLAIN, PASSKEY).removeprefix(PREFIX), PASSKEY)


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

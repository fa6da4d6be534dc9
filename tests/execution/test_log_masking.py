"""Secrets in the forms that programs write them in: none is in the log, the tail or on the screen."""

import base64
import json
import os
import urllib.parse
from pathlib import Path

import pytest

from opendataflow.execution.log import RunLog, Shown, find_spellings

SECRETS = [
    's3cret/pass+word ä"\\&=%',
    "hunter22",
    "-----BEGIN KEY-----\nMIIEvQIBADAN/Bgk\nqhkiG9w0BAQEF+AASC\n-----END KEY-----",
]


def forms(secret: str) -> dict[str, str]:
    raw = secret.encode()
    return {
        "plain": secret,
        "base64": base64.b64encode(raw).decode(),
        "base64 for addresses": base64.urlsafe_b64encode(raw).decode(),
        "hex": raw.hex(),
        "HEX": raw.hex().upper(),
        "in an address": urllib.parse.quote(secret, safe=""),
        "in a path": urllib.parse.quote(secret),
        "in a form": urllib.parse.quote_plus(secret),
        "in JSON": json.dumps(secret),
        "in JSON as it is": json.dumps(secret, ensure_ascii=False),
        "in a list in JSON": json.dumps({"keys": [secret]}),
        "line by line": "\n".join(f"> {line}" for line in secret.split("\n")),
    }


def masked(folder: Path, text: str, secret: str, pieces: int) -> str:
    silent = os.open(os.devnull, os.O_WRONLY)
    log = RunLog(str(folder / "run.log"), Shown(out_fd=silent, err_fd=silent), secrets=(secret,))
    data = text.encode()
    for at in range(0, len(data), pieces):
        log.write(1, data[at : at + pieces])
    log.end()
    log.close()
    os.close(silent)
    assert log.tail() == (folder / "run.log").read_text()
    return log.tail()


@pytest.mark.parametrize("form", forms("any"))
@pytest.mark.parametrize("secret", SECRETS, ids=["with signs", "plain", "of several lines"])
def test_no_form_of_a_secret_is_in_the_log(tmp_path: Path, secret: str, form: str) -> None:
    said = f"before {forms(secret)[form]} after\n"
    for pieces in (1, 7, 4096):
        folder = tmp_path / str(pieces)
        folder.mkdir()
        found = masked(folder, said, secret, pieces)
        assert found.startswith("before ")
        assert found.endswith(" after\n")
        for line in secret.splitlines():
            assert forms(line)[form] not in found
        assert "***" in found


@pytest.mark.parametrize("user", ["a", "ab", "abc", "anna"])
def test_a_header_with_a_name_and_the_password_tells_nothing_of_it(tmp_path: Path, user: str) -> None:
    """Base64 mixes neighbours: what stands before the password shifts all of its characters."""
    secret = "correct horse battery"
    sent = base64.b64encode(f"{user}:{secret}:x".encode()).decode()
    found = masked(tmp_path, f"Authorization: Basic {sent}\n", secret, 4096)
    left = found.removeprefix("Authorization: Basic ").strip()
    assert "***" in left
    assert len(left.replace("***", "")) <= 14, "at most what stands beside it"


def test_short_values_mask_nothing() -> None:
    assert find_spellings(["abc", ""]) == []

"""Bodies of webhooks that are no push: a sentence, never an error of ours."""

import pytest

from opendataflow.deploy.webhook import is_wrong_token, may_be_theirs, read_push
from opendataflow.errors import UsageError

SIGNED = {"x-hub-signature-256": f"sha256={'0' * 64}"}


@pytest.mark.parametrize(
    "body", [b"[" * 200_000 + b"]" * 200_000, b'{"ref":' * 50_000, b"[]", b"1", b'{"ref": 1}', b"\xff", b""]
)
def test_a_body_that_is_no_push_is_refused_with_a_sentence(body: bytes) -> None:
    with pytest.raises(UsageError, match="the body is no push"):
        read_push(body, {})


def test_what_is_not_signed_is_seen_by_its_head() -> None:
    assert may_be_theirs(SIGNED)
    assert may_be_theirs({"x-gitlab-token": "t"})
    for headers in (
        {},
        {"x-hub-signature-256": ""},
        {"x-hub-signature-256": "sha256=00"},
        {"x-hub-signature": "0" * 64},
    ):
        assert not may_be_theirs(headers)
    assert is_wrong_token("secret", {"x-gitlab-token": "guessed"})
    assert not is_wrong_token("secret", {"x-gitlab-token": "secret"})
    assert not is_wrong_token("secret", {**SIGNED, "x-gitlab-token": "guessed"}), (
        "the signature decides, once it is read"
    )

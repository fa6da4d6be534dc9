"""Webhooks of forges: is it really theirs, is it about our branch; and the secrets that this and git need."""

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qs

from opendataflow.errors import SecretError, UsageError
from opendataflow.project.secrets import decrypt, encrypt, find_passkey, get_passkey
from opendataflow.store.claims import LoopStore
from opendataflow.store.records.git import Credential, find_secrets, set_hook_secret

HOOK_PATH = "/v1/hooks/git/{project}"
# Forges that sign the body: GitHub and what took over its header; Gitea and Forgejo have one of their own, without a
# prefix. GitLab sends the secret itself.
SIGNATURES = ("x-hub-signature-256", "x-forgejo-signature", "x-gitea-signature", "x-gogs-signature")
_SIGNATURE = re.compile("(sha256=)?[0-9a-fA-F]{64}")
TOKEN = "x-gitlab-token"  # noqa: S105  the name of a header


class Push(NamedTuple):
    """What a webhook is about; `branch` is None for what is no push."""

    event: str
    branch: str | None
    commit: str | None = None


def may_be_theirs(headers: Mapping[str, str]) -> bool:
    """Whether it is signed at all, or brings a secret: seen before anything of the body is read."""
    return TOKEN in headers or any(_SIGNATURE.fullmatch(headers.get(name, "").strip()) for name in SIGNATURES)


def is_wrong_token(secret: str, headers: Mapping[str, str]) -> bool:
    """Whether it brings a secret instead of a signature, and another one."""
    if any(name in headers for name in SIGNATURES) or TOKEN not in headers:
        return False
    return not hmac.compare_digest(secret.encode(), headers[TOKEN].encode())


def is_theirs(secret: str, body: bytes, headers: Mapping[str, str]) -> bool:
    """True when the body was signed with the secret, or came with it; compared in constant time."""
    wanted = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    given = [headers[name].removeprefix("sha256=").strip().lower() for name in SIGNATURES if name in headers]
    if given:
        return all([hmac.compare_digest(wanted.encode(), one.encode()) for one in given])  # noqa: C419
    token = headers.get(TOKEN)
    return token is not None and hmac.compare_digest(secret.encode(), token.encode())


def read_push(body: bytes, headers: Mapping[str, str]) -> Push:
    """The branch that was pushed to; UsageError when the body is not what forges send."""
    event = next((headers[name] for name in headers if name in _EVENTS), "push")
    if event.lower().removesuffix(" hook") not in ("push", "push_hook"):
        return Push(event, None)
    try:
        if headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
            body = parse_qs(body.decode())["payload"][0].encode()
        told = json.loads(body)
        ref, after = told["ref"], told.get("after")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UsageError("the body is no push: a JSON object with `ref` is expected") from None
    if not isinstance(ref, str):
        raise UsageError("the body is no push: `ref` is no text")
    branch = ref.removeprefix("refs/heads/") if ref.startswith("refs/heads/") else None
    return Push(event, branch, after if isinstance(after, str) else None)


_EVENTS = ("x-github-event", "x-forgejo-event", "x-gitea-event", "x-gogs-event", "x-gitlab-event")


# Secrets --------------------------------------------------------------------------------------------------------------
def new_hook_secret(store: LoopStore, project: str) -> str:
    """A new secret, shown once; what was there no longer counts."""
    secret = secrets.token_urlsafe(32)
    set_hook_secret(store, project, encrypt(secret, _passkey()))
    return secret


def find_hook_secret(store: LoopStore, project: str) -> str | None:
    kept = find_secrets(store, project).hook_secret
    return None if kept is None else decrypt(kept, get_passkey())


def encrypted_credential(username: str | None, *, token: str | None, key: str | None, protocol: str) -> Credential:
    """What was given, ready for the store; UsageError where it does not fit the address."""
    if token and key:
        raise UsageError("give a token or a key, not both")
    if key is not None and protocol != "ssh":
        raise UsageError("a key is for ssh; over https give a token")
    if token and protocol not in ("https", "http"):
        raise UsageError("a token is for https; over ssh give a key")
    if key is not None and "PRIVATE KEY" not in key:
        raise UsageError("that is no private key; give the file without .pub")
    if not token and key is None:
        return Credential(username, None, None)
    return Credential(username, encrypt(token or key or "", _passkey()), "token" if token else "key")


def _passkey() -> str:
    passkey = find_passkey()
    if passkey is None:
        raise SecretError("secrets are kept encrypted only; set DATAFLOW_PASSKEY or DATAFLOW_PASSKEY_FILE")
    return passkey

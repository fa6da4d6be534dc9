"""Accounts in the store: who may look and act over HTTP, their sessions and tokens, and what they did.

What a browser or a script holds is a random text; the store keeps its hash only. Passwords are hashed by the server.
"""

import json
import secrets
from enum import IntEnum
from typing import Any, NamedTuple

from opendataflow.store.loop import LoopStore
from opendataflow.store.rows import Params
from opendataflow.store.streams import hash_token

FILE = "accounts"
SESSION_SECONDS = 14 * 86_400.0


class Role(IntEnum):
    """Each may do what those before it may."""

    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3

    @property
    def word(self) -> str:
        """As the store and the pages write it."""
        return self.name.lower()


class Session(NamedTuple):
    username: str
    role: Role
    csrf: str


class Account(NamedTuple):
    username: str
    role: Role
    password_hash: str | None
    created_at: str
    disabled_at: str | None


def read_role(word: str) -> Role:
    return Role[word.upper()]


def has_accounts(store: LoopStore) -> bool:
    return bool(store.read("count_accounts", {}, file=FILE)[0][0])


def find_account(store: LoopStore, username: str) -> Account | None:
    rows = store.read("find_account", {"username": username}, file=FILE)
    if not rows:
        return None
    name, role, *rest = rows[0]
    return Account(name, read_role(role), *rest)


def add_account(store: LoopStore, username: str, role: Role, *, password_hash: str | None = None) -> bool:
    """False when the name is taken."""
    row = {"username": username, "role": role.word, "password_hash": password_hash, "now": store.time()}
    return bool(_write(store, "add_account", row))


# Sessions -------------------------------------------------------------------------------------------------------------
def open_session(store: LoopStore, username: str) -> str:
    """What the browser is to hold from now on."""
    secret = secrets.token_urlsafe(32)
    row = {
        "session_hash": hash_token(secret), "username": username, "csrf": secrets.token_urlsafe(24),
        "now": store.time(), "expires_at": store.time(SESSION_SECONDS),
    }  # fmt: skip
    _write(store, "add_session", row)
    return secret


def find_session(store: LoopStore, secret: str) -> Session | None:
    wanted = {"session_hash": hash_token(secret), "now": store.time()}
    rows = store.read("find_session", wanted, file=FILE)
    return Session(rows[0][0], read_role(rows[0][1]), rows[0][2]) if rows else None


def close_session(store: LoopStore, secret: str) -> None:
    _write(store, "delete_session", {"session_hash": hash_token(secret)})


# Tokens of scripts ----------------------------------------------------------------------------------------------------
def add_token(store: LoopStore, username: str, name: str, scope: Role, *, seconds: float | None = None) -> str:
    """A token for the API, shown once."""
    token = f"odf_{secrets.token_urlsafe(32)}"
    expires = None if seconds is None else store.time(seconds)
    row = {"name": name, "username": username, "token_hash": hash_token(token), "scope": scope.word}
    _write(store, "add_token", {**row, "now": store.time(), "expires_at": expires})
    return token


def find_token(store: LoopStore, token: str) -> tuple[str, Role] | None:
    """Whose it is, and what it may do: never more than its account may."""
    rows = store.read("find_token", {"token_hash": hash_token(token), "now": store.time()}, file=FILE)
    if not rows:
        return None
    username, role, scope, *_ = rows[0]
    return username, min(read_role(role), read_role(scope))


# What was done --------------------------------------------------------------------------------------------------------
def record_action(store: LoopStore, username: str, action: str, target: str, detail: dict[str, Any]) -> None:
    """`detail` holds no secret: it is shown to people."""
    row = {"username": username, "action": action, "target": target, "detail": json.dumps(detail, default=str)}
    _write(store, "record_action", {**row, "now": store.time()})


def _write(store: LoopStore, name: str, params: Params) -> int:
    def write() -> int:
        with store.transaction(file=FILE) as tx:
            return tx.run(name, params)

    return store.again(write)

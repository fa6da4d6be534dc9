"""Accounts in the store: who may look and act over HTTP, their sessions and tokens, and what they did.

What a browser or a script holds is a random text; the store keeps its hash only. Passwords are hashed by the server.
"""

import hashlib
import hmac
import json
import re
import secrets
from enum import IntEnum
from typing import Any, NamedTuple

from opendataflow.errors import UsageError
from opendataflow.store.claims import LoopStore, Transaction
from opendataflow.store.records.streams import hash_token
from opendataflow.store.rows import Params

FILE = "accounts"
IDLE_SECONDS = 7 * 86_400.0  # a session that nobody uses ends
MOST_SECONDS = 30 * 86_400.0  # and so does every other, by then
TOUCH_SECONDS = 300.0  # between two notes of a use
ID_LENGTH = 16  # of a session's hash: enough to name it, and no use to whoever reads it
_NAME = re.compile(r"[a-z0-9][a-z0-9._@+-]{0,63}")
_NEWEST = 1 << 62


class Role(IntEnum):
    """Each may do what those before it may."""

    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3

    @property
    def word(self) -> str:
        """As the store and the pages write it."""
        return self.name.lower()


class Account(NamedTuple):
    username: str
    role: Role
    password_hash: str | None
    created_at: str
    disabled_at: str | None


class AccountRow(NamedTuple):
    """An account in a list."""

    username: str
    role: Role
    created_at: str
    disabled_at: str | None
    seen_at: str | None
    sessions: int
    tokens: int


class Session(NamedTuple):
    username: str
    role: Role
    csrf: str
    id: str = ""
    is_stale: bool = False  # its use should be noted


class SessionRow(NamedTuple):
    id: str
    address: str
    agent: str
    created_at: str
    seen_at: str
    expires_at: str


class TokenRow(NamedTuple):
    tokenid: int
    name: str
    username: str
    scope: Role
    created_at: str
    expires_at: str | None
    last_used_at: str | None
    revoked_at: str | None
    is_expired: bool


class Found(NamedTuple):
    """Whose token it is, and what it may do."""

    username: str
    role: Role
    tokenid: int
    is_stale: bool


class ActionRow(NamedTuple):
    id: int
    at: str
    username: str
    action: str
    target: str
    detail: dict[str, Any]


# Accounts -------------------------------------------------------------------------------------------------------------
def read_role(word: str) -> Role:
    try:
        return Role[word.upper()]
    except KeyError:
        raise UsageError(f"{word!r} is no role; there are viewer, operator and admin") from None


def as_username(text: str) -> str | None:
    """A user name as the store keeps it; None when it cannot be one."""
    name = text.strip().lower()
    return name if _NAME.fullmatch(name) else None


def get_username(text: str) -> str:
    name = as_username(text)
    if name is None:
        raise UsageError(f"{text!r} is no user name: letters, digits and . _ @ + - are, at most 64, a letter first")
    return name


def has_admin(store: LoopStore) -> bool:
    """Whether somebody can let others in."""
    return bool(store.read("has_admin", {}, file=FILE))


def find_account(store: LoopStore, username: str) -> Account | None:
    return _account(store.read("find_account", {"username": username}, file=FILE))


def find_account_in(tx: Transaction, username: str) -> Account | None:
    return _account(tx.rows("find_account", {"username": username}))


def _account(rows: list[Any]) -> Account | None:
    return Account(rows[0][0], read_role(rows[0][1]), *rows[0][2:]) if rows else None


def get_account(store: LoopStore, username: str) -> Account:
    found = find_account(store, username)
    if found is None:
        raise UsageError(f"there is no account {username!r}; `dataflow user list` shows them")
    return found


def list_accounts(store: LoopStore, *, after: str = "", limit: int = 1000) -> list[AccountRow]:
    rows = store.read("accounts", {"after": after, "limit": limit, "now": store.time()}, file=FILE)
    return [AccountRow(name, read_role(role), *rest) for name, role, *rest in rows]


def add_account(store: LoopStore, username: str, role: Role, *, password_hash: str | None = None) -> bool:
    """False when the name is taken."""
    row = {"username": username, "role": role.word, "password_hash": password_hash, "now": store.time()}
    return bool(_write(store, "add_account", row))


def set_role(store: LoopStore, username: str, role: Role) -> None:
    """Give the account another role, which holds at once; the last admin stays one."""
    get_account(store, username)

    def change() -> None:
        with store.transaction(file=FILE) as tx:
            if role is not Role.ADMIN:
                _keep_an_admin(tx, username)
            tx.run("set_role", {"username": username, "role": role.word})

    store.again(change)


def disable(store: LoopStore, username: str) -> bool:
    """End the account's sessions, and let it in no more, nor its tokens and links. False when it was disabled."""
    get_account(store, username)

    def change() -> bool:
        with store.transaction(file=FILE) as tx:
            _keep_an_admin(tx, username)
            done = bool(tx.run("disable", {"username": username, "now": store.time()}))
            tx.run("delete_sessions", {"username": username, "keep": ""})
            tx.run("void_links", {"username": username})
            return done

    return store.again(change)


def enable(store: LoopStore, username: str) -> bool:
    """Let the account in again, with its password and its tokens; False when it was not disabled."""
    get_account(store, username)
    return bool(_write(store, "enable", {"username": username}))


def _keep_an_admin(tx: Transaction, username: str) -> None:
    tx.run("hold_accounts", {})
    account = find_account_in(tx, username)
    is_admin = account is not None and account.role is Role.ADMIN and account.disabled_at is None
    if is_admin and not tx.rows("other_admins", {"username": username})[0][0]:
        raise UsageError(f"{username} is the only admin, and nobody could let others in; make another one first")


def replace_password(store: LoopStore, username: str, *, was: str, password_hash: str, keep: str | None = None) -> bool:
    """Change the password if it is still the one that was proved, and end all sessions but `keep`, its secret.

    Without `keep` the sessions stay: the same password in a stronger hash. False when it has been changed meanwhile.
    """

    def change() -> bool:
        with store.transaction(file=FILE) as tx:
            row = {"username": username, "was": was, "password_hash": password_hash}
            done = bool(tx.run("replace_password", row))
            if done and keep is not None:
                tx.run("delete_sessions", {"username": username, "keep": hash_token(keep)})
                tx.run("void_links", {"username": username})
            return done

    return store.again(change)


# Sessions -------------------------------------------------------------------------------------------------------------
def csrf_of(secret: str) -> str:
    """What a page of this session sends along with whatever changes something; it does not tell the secret."""
    return hmac.new(secret.encode(), b"csrf", hashlib.sha256).hexdigest()


def open_session(
    store: LoopStore, username: str, *, password_hash: str | None = None, address: str = "", agent: str = ""
) -> str:
    """What the browser is to hold from now on.

    UsageError when the account is not there or disabled, or its password is no longer the one that was proved.
    """
    secret = secrets.token_urlsafe(32)
    row = {
        "session_hash": hash_token(secret), "username": username, "password_hash": password_hash,
        "address": address, "agent": agent[:200], "now": store.time(), "expires_at": store.time(IDLE_SECONDS),
        "ends_at": store.time(MOST_SECONDS),
    }  # fmt: skip

    def change() -> None:
        with store.transaction(file=FILE) as tx:
            tx.run("forget_sessions", {"now": store.time()})
            if not tx.run("add_session", row):
                raise UsageError(f"{username} may not sign in")

    store.again(change)
    return secret


def find_session(store: LoopStore, secret: str) -> Session | None:
    """Whose session it is; None: it has ended."""
    name = hash_token(secret)
    wanted = {"session_hash": name, "now": store.time(), "stale": store.time(-TOUCH_SECONDS)}
    rows = store.read("find_session", wanted, file=FILE)
    if not rows:
        return None
    username, role, is_stale = rows[0]
    return Session(username, read_role(role), csrf_of(secret), name[:ID_LENGTH], bool(is_stale))


def touch_session(store: LoopStore, secret: str) -> None:
    """Note that it is used: it ends later, but not after its last moment."""
    row = {"session_hash": hash_token(secret), "now": store.time(), "stale": store.time(-TOUCH_SECONDS)}
    _write(store, "touch_session", {**row, "expires_at": store.time(IDLE_SECONDS)})


def list_sessions(store: LoopStore, username: str) -> list[SessionRow]:
    rows = store.read("sessions", {"username": username, "now": store.time()}, file=FILE)
    return [SessionRow(str(name)[:ID_LENGTH], *rest) for name, *rest in rows]


def close_session(store: LoopStore, secret: str) -> None:
    _write(store, "delete_session", {"session_hash": hash_token(secret)})


def end_session(store: LoopStore, username: str, session: str) -> bool:
    """End one of the account's sessions by its id; False when there is none."""
    return bool(_write(store, "end_session", {"username": username, "id": session}))


def end_sessions(store: LoopStore, username: str) -> int:
    """End all of them, everywhere; how many there were."""
    return _write(store, "delete_sessions", {"username": username, "keep": ""})


# Tokens of scripts ----------------------------------------------------------------------------------------------------
def add_token(store: LoopStore, username: str, name: str, scope: Role, *, seconds: float | None = None) -> str:
    """A token for the API, shown once; its scope is at most the account's role."""
    account = get_account(store, username)
    if scope > account.role:
        raise UsageError(f"{username} is {account.role.word}: a token of theirs cannot be {scope.word}")
    token = f"odf_{secrets.token_urlsafe(32)}"
    expires = None if seconds is None else store.time(seconds)
    row = {"name": name, "username": username, "token_hash": hash_token(token), "scope": scope.word}
    if not _write(store, "add_token", {**row, "now": store.time(), "expires_at": expires}):
        raise UsageError(f"{username} is disabled; `dataflow user enable {username}` first")
    return token


def find_token(store: LoopStore, token: str) -> Found | None:
    """Whose it is, and what it may do: never more than its account may."""
    wanted = {"token_hash": hash_token(token), "now": store.time(), "stale": store.time(-TOUCH_SECONDS)}
    rows = store.read("find_token", wanted, file=FILE)
    if not rows:
        return None
    username, role, scope, tokenid, is_stale = rows[0]
    return Found(username, min(read_role(role), read_role(scope)), tokenid, bool(is_stale))


def touch_token(store: LoopStore, tokenid: int) -> None:
    _write(store, "touch_token", {"tokenid": tokenid, "now": store.time()})


def list_tokens(
    store: LoopStore, *, username: str | None, revoked: bool = False, after: int = 0, limit: int = 1000
) -> list[TokenRow]:
    """Tokens of an account, or of all; those that were revoked only if asked for."""
    wanted = {"username": username, "all": int(revoked), "after": after, "limit": limit, "now": store.time()}
    rows = store.read("tokens", wanted, file=FILE)
    return [
        TokenRow(tokenid, name, whose, read_role(scope), created, expires, used, revoked, bool(is_expired))
        for tokenid, name, whose, scope, created, expires, used, revoked, is_expired in rows
    ]


def find_token_of(store: LoopStore, tokenid: int) -> tuple[str, str] | None:
    """Whose token that is, and its name; None when there is none that works."""
    rows = store.read("find_token_of", {"tokenid": tokenid}, file=FILE)
    return (str(rows[0][0]), str(rows[0][1])) if rows else None


def revoke_token(store: LoopStore, tokenid: int) -> bool:
    """False when there was none that worked."""
    return bool(_write(store, "revoke_token", {"tokenid": tokenid, "now": store.time()}))


# What was done --------------------------------------------------------------------------------------------------------
def record_action(store: LoopStore, username: str, action: str, target: str, detail: dict[str, Any]) -> None:
    """`detail` holds no secret: it is shown to people."""
    row = {"username": username, "action": action, "target": target, "detail": json.dumps(detail, default=str)}
    _write(store, "record_action", {**row, "now": store.time()})


def list_actions(
    store: LoopStore, *, username: str | None = None, before: int | None = None, limit: int = 100
) -> list[ActionRow]:
    """What was done, the newest first; `before`: older than the one with this id."""
    wanted = {"username": username, "before": before or _NEWEST, "limit": limit}
    rows = store.read("actions_of" if username else "actions", wanted, file=FILE)
    return [ActionRow._make((*told, json.loads(detail))) for *told, detail in rows]


def _write(store: LoopStore, name: str, params: Params) -> int:
    def write() -> int:
        with store.transaction(file=FILE) as tx:
            return tx.run(name, params)

    return store.again(write)

"""Links that let somebody choose a password, once: the first admin, a new account, or one whose password is lost.

A link is a random text in an address; the store keeps its hash. What it is good for is looked at when it is used: the
first admin's works while there is no admin, a new account's while its name is free, a reset while the account may be
used. Of two who use links at the same time one comes second, and finds that.
"""

import secrets
from enum import StrEnum
from typing import Any, NamedTuple

from opendataflow.errors import UsageError
from opendataflow.store.claims import LoopStore, Transaction
from opendataflow.store.records.accounts import FILE, Role, find_account_in, get_username, read_role
from opendataflow.store.records.streams import hash_token
from opendataflow.store.rows import Row

LINK_SECONDS = 86_400.0
KEPT_SECONDS = 30 * 86_400.0  # of links that are over
GONE = "this link has been used, is too old, or was replaced by a newer one; ask an admin for another"


class Kind(StrEnum):
    FIRST = "first"
    NEW = "new"
    RESET = "reset"


class Link(NamedTuple):
    kind: Kind
    username: str  # empty: to be chosen
    role: Role


class LinkRow(NamedTuple):
    """A link that can be used, without its secret."""

    kind: Kind
    username: str
    role: Role
    created_by: str
    created_at: str
    expires_at: str


class LinkGone(UsageError):
    """The link does nothing any more."""


def make_first_link(store: LoopStore) -> str | None:
    """The secret of a link for the first admin; None when there is an admin.

    Several servers may start at once, each with a link of its own: all of them work, until one is used.
    """

    def change() -> str | None:
        with store.transaction(file=FILE) as tx:
            tx.run("hold_accounts", {})
            if tx.rows("has_admin", {}):
                return None
            return _add(store, tx, Link(Kind.FIRST, "", Role.ADMIN), store.actor)

    return store.again(change)


def make_link(store: LoopStore, username: str, role: Role, *, by: str) -> tuple[str, Link]:
    """The secret of a link for that name: a new account of the role, or a new password where there is an account.

    Links made for the name before do nothing any more. An account keeps its role.
    """
    name = get_username(username)

    def change() -> tuple[str, Link]:
        with store.transaction(file=FILE) as tx:
            tx.run("hold_accounts", {})
            account = find_account_in(tx, name)
            if account is not None and account.disabled_at is not None:
                raise UsageError(f"{name} is disabled; `dataflow user enable {name}` first")
            link = Link(Kind.NEW, name, role) if account is None else Link(Kind.RESET, name, account.role)
            tx.run("void_links", {"username": name})
            return _add(store, tx, link, by), link

    return store.again(change)


def _add(store: LoopStore, tx: Transaction, link: Link, by: str) -> str:
    secret = secrets.token_urlsafe(32)
    tx.run("forget_links", {"before": store.time(-KEPT_SECONDS)})
    row = {"link_hash": hash_token(secret), "kind": link.kind.value, "username": link.username, "role": link.role.word}
    tx.run("add_link", {**row, "by": by, "now": store.time(), "expires_at": store.time(LINK_SECONDS)})
    return secret


def list_links(store: LoopStore) -> list[LinkRow]:
    """Those that can still be used."""
    rows = store.read("open_links", {"now": store.time()}, file=FILE)
    return [LinkRow(Kind(kind), username, read_role(role), *rest) for kind, username, role, *rest in rows]


def find_link(store: LoopStore, secret: str) -> Link | None:
    """What the link is good for now; nothing is changed."""
    link = _link(store.read("find_link", {"link_hash": hash_token(secret), "now": store.time()}, file=FILE))
    if link is None:
        return None
    is_there = bool(store.read("has_admin", {}, file=FILE)) if link.kind is Kind.FIRST else None
    return None if is_there else link


def use_link(store: LoopStore, secret: str, *, username: str, password_hash: str) -> Link:
    """Make the account, or give it the password, and use the link up; or raise LinkGone and change nothing.

    A reset ends all sessions and tokens of the account. UsageError when the name that was chosen is taken: the link
    still works.
    """

    def change() -> Link:
        with store.transaction(file=FILE) as tx:
            tx.run("hold_accounts", {})
            of = {"link_hash": hash_token(secret), "now": store.time()}
            link = _link(tx.rows("find_link", of))
            if link is None or not tx.run("use_link", of):
                raise LinkGone(GONE)
            link = link._replace(username=link.username or get_username(username))
            if link.kind is Kind.RESET:
                _reset(tx, link, password_hash, store.time())
            else:
                _make(store, tx, link, password_hash)
            return link

    return store.again(change)


def _make(store: LoopStore, tx: Transaction, link: Link, password_hash: str) -> None:
    if link.kind is Kind.FIRST and tx.rows("has_admin", {}):
        raise LinkGone(GONE)
    row = {"username": link.username, "role": link.role.word, "password_hash": password_hash, "now": store.time()}
    if not tx.run("add_account", row):
        raise LinkGone(GONE) if link.kind is Kind.NEW else UsageError(f"the name {link.username} is taken")
    if link.kind is Kind.FIRST:
        tx.run("void_links", {"username": ""})  # those of other servers


def _reset(tx: Transaction, link: Link, password_hash: str, now: Any) -> None:
    if not tx.run("set_password", {"username": link.username, "password_hash": password_hash}):
        raise LinkGone(GONE)
    tx.run("delete_sessions", {"username": link.username, "keep": ""})
    tx.run("delete_devices", {"username": link.username})
    tx.run("revoke_tokens_of", {"username": link.username, "now": now})


def _link(rows: list[Row]) -> Link | None:
    return Link(Kind(rows[0][0]), rows[0][1], read_role(rows[0][2])) if rows else None

"""Login attempts in the store: how many are too many, for whom.

An attempt is written down before the password is looked at, so that a thousand at once are no more than ten in a row;
the right password takes it back. What counts are failures in the last quarter of an hour:

- a browser that has signed in to the account before has a count of its own: nobody else can lock it out;
- any other is counted by address and account, by address, and by account. One address alone reaches its own limit long
  before it reaches the account's, so that it does not lock out the others.

Attempts during a lock are not counted: it ends, however long somebody goes on. Names are kept as hashes, as people type
passwords into the wrong field.
"""

import math
import secrets
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

from opendataflow.errors import DataflowError
from opendataflow.store.claims import LoopStore
from opendataflow.store.records.accounts import FILE
from opendataflow.store.records.streams import hash_token

WINDOW_SECONDS = 900.0
DEVICE_SECONDS = 180 * 86_400.0
OF_DEVICE, OF_PAIR, OF_ADDRESS, OF_ACCOUNT = 10, 10, 50, 200


class TooManyAttempts(DataflowError):
    """Nobody may try for so many seconds, not even with the right password."""

    def __init__(self, seconds: float) -> None:
        self.seconds = max(1, math.ceil(round(seconds, 2)))  # by SQLite, a day is a number that ends somewhere
        minutes = math.ceil(self.seconds / 60)
        super().__init__(f"too many attempts failed; try again in {minutes} minute{'s' if minutes > 1 else ''}")


class Attempt(NamedTuple):
    """One that was let through: what it counts against until the password proves right."""

    own: str  # the count that the right password clears
    shared: tuple[str, ...]  # those that it is taken back from
    device: str  # the hash of a browser's that is known, or empty


def begin_attempt(store: LoopStore, username: str, address: str, device: str) -> Attempt:
    """Count an attempt to sign in as that name, from there, by a browser that keeps `device`; or TooManyAttempts."""

    def change() -> Attempt:
        with store.transaction(file=FILE) as tx:
            tx.run("hold_logins", {})
            now = store.time()
            tx.run("forget_failures", {"now": now})
            known = hash_token(device)
            is_known = bool(tx.rows("find_device", {"device_hash": known, "username": username, "now": now}))
            limits = _limits(username, address, known if is_known else "")
            for name, most in limits.items():
                count, seconds = tx.rows("failures", {"name": name, "now": now})[0]
                if count >= most:
                    raise TooManyAttempts(seconds)
            expires = store.time(WINDOW_SECONDS)
            tx.run_many("add_failure", [{"name": name, "expires_at": expires} for name in limits])
            own, *shared = limits
            return Attempt(own, tuple(shared), known if is_known else "")

    return store.again(change)


def succeed(store: LoopStore, attempt: Attempt, username: str) -> str:
    """The password was right: forget what failed before. What the browser is to keep, as one that the account knows."""
    device = secrets.token_urlsafe(32)

    def change() -> None:
        with store.transaction(file=FILE) as tx:
            tx.run("clear_failures", {"name": attempt.own})
            for name in attempt.shared:
                tx.run("take_back_failure", {"name": name})
            tx.run("forget_device", {"device_hash": attempt.device, "now": store.time()})
            row = {"device_hash": hash_token(device), "username": username}
            tx.run("add_device", {**row, "expires_at": store.time(DEVICE_SECONDS)})

    store.again(change)
    return device


def _limits(username: str, address: str, device: str) -> dict[str, int]:
    if device:
        return {hash_token(f"device {device}"): OF_DEVICE}
    where = network_of(address)
    return {
        hash_token(f"pair {where} {username}"): OF_PAIR,
        hash_token(f"address {where}"): OF_ADDRESS,
        hash_token(f"account {username}"): OF_ACCOUNT,
    }


def network_of(address: str) -> str:
    """What one person can have: an IPv4 address, or the /64 of an IPv6 one."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return f"{IPv6Address(int(found) >> 64 << 64)}/64"
    return str(found)

"""Passwords: argon2id, hashed and checked in threads of their own, a few at a time.

A hash takes 64 MiB and a tenth of a second on purpose. So that a flood of logins takes neither the memory nor the event
loop, two are computed at a time, and beyond a short queue the answer is "later".
"""

import asyncio
import functools
import unicodedata
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import argon2

THREADS = 2
MOST_WAITING = 40
SHORTEST, LONGEST = 10, 1000

_T = TypeVar("_T")
_HASHER = argon2.PasswordHasher(time_cost=3, memory_cost=64 * 1024, parallelism=1)


class TooBusy(Exception):
    """More passwords wait to be checked than is good for anybody."""


def why_weak(password: str, username: str) -> str | None:
    """What is wrong with a new password, for people; None when it will do."""
    text = _normal(password)
    if len(text) < SHORTEST:
        return f"a password has at least {SHORTEST} characters; several words are easy to remember"
    if len(text) > LONGEST:
        return f"a password has at most {LONGEST} characters"
    rest = text.lower().replace(username, "") if username else text.lower()
    if len(set(rest)) < 5:
        return "this password is too easy to guess: the user name, or the same few characters"
    return None


class Passwords:
    """Hashes and checks passwords."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, "passwords")
        self._threads.submit(_nobodys)  # so that the first unknown name takes no longer than the next
        self._waiting = 0

    async def hash(self, password: str) -> str:
        return await self._do(lambda: _HASHER.hash(_normal(password)))

    async def is_right(self, known: str | None, password: str) -> bool:
        """Whether the password has that hash. Where there is none it takes as long, and is wrong."""
        return await self._do(lambda: _is_right(known, password))

    async def _do(self, work: Callable[[], _T]) -> _T:
        if self._waiting >= MOST_WAITING:
            raise TooBusy
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._waiting -= 1


def is_outdated(known: str) -> bool:
    """Whether a hash was made with other settings than ours."""
    return _HASHER.check_needs_rehash(known)


def _is_right(known: str | None, password: str) -> bool:
    if len(password) > LONGEST:
        password, known = "", None
    try:
        return _HASHER.verify(known or _nobodys(), _normal(password)) and known is not None
    except (argon2.exceptions.VerifyMismatchError, argon2.exceptions.InvalidHashError):
        return False


@functools.cache
def _nobodys() -> str:
    """What a password is compared with where there is no account."""
    return _HASHER.hash("nobody has this password")


def _normal(password: str) -> str:
    """The same characters, however a keyboard composes them."""
    return unicodedata.normalize("NFKC", password).encode("utf-8", "replace").decode()

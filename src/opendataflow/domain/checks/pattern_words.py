"""The texts that a simple pattern matches, where they are few: looking one up is quicker than matching a pattern.

`[A-Z]{2}`, `Q[1-4]`, `(EUR|USD)`, `\\d{2}`: what codes of countries, quarters, currencies and hours look like.
"""

import itertools
import re

_COUNT = re.compile(r"\{(\d+)(?:,(\d+))?\}")
_DIGITS = "0123456789"


def matching_words(pattern: str, most: int) -> tuple[str, ...] | None:
    """All texts that the whole pattern matches; None when they are more than `most`, or not easily told."""
    try:
        reader = _Reader(pattern, most)
        words = reader.choice()
    except _NotTold:
        return None
    return tuple(sorted(words)) if reader.at == len(pattern) else None


class _NotTold(Exception):
    pass


class _Reader:
    def __init__(self, pattern: str, most: int) -> None:
        self._pattern, self._most, self.at = pattern, most, 0

    def choice(self) -> set[str]:
        words = self._sequence()
        while self._next() == "|":
            self.at += 1
            words |= self._sequence()
        return self._few(words)

    def _sequence(self) -> set[str]:
        words = {""}
        while self._next() not in ("", "|", ")"):
            part = self._repeated(self._atom())
            if len(words) * len(part) > self._most:
                raise _NotTold
            words = {before + after for before in words for after in part}
        return words

    def _repeated(self, atom: set[str]) -> set[str]:
        low, high = 1, 1
        if self._next() == "?":
            self.at, low = self.at + 1, 0
        elif found := _COUNT.match(self._pattern, self.at):
            self.at, low, high = found.end(), int(found[1]), int(found[2] or found[1])
        if self._next() in ("*", "+", "?", "{"):
            raise _NotTold
        if high > self._most or len(atom) ** min(high, 32) > self._most:
            raise _NotTold
        times = ({"".join(parts) for parts in itertools.product(atom, repeat=count)} for count in range(low, high + 1))
        return self._few(set().union(*times))

    def _atom(self) -> set[str]:
        char = self._next()
        if char == "(":
            return self._group()
        if char == "[":
            return self._class()
        if char == "\\":
            return self._escaped()
        if not char.isascii() or not char.isprintable() or char in ".*+?{}]^$":
            raise _NotTold
        self.at += 1
        return {char}

    def _escaped(self) -> set[str]:
        char = self._pattern[self.at + 1 : self.at + 2]
        self.at += 2
        if char == "d":
            return set(_DIGITS)
        if not char or char.isalnum():
            raise _NotTold
        return {char}

    def _group(self) -> set[str]:
        self.at += 3 if self._pattern.startswith("(?:", self.at) else 1
        if self._next() == "?":
            raise _NotTold  # a flag: letters mean more than themselves
        words = self.choice()
        if self._next() != ")":
            raise _NotTold
        self.at += 1
        return words

    def _class(self) -> set[str]:
        end = self._pattern.find("]", self.at + 2)
        inside = self._pattern[self.at + 1 : end]
        if end < 0 or not inside.isascii() or not inside.isprintable() or re.search(r"[\\\[^&]", inside):
            raise _NotTold
        self.at = end + 1
        chars: set[str] = set()
        left = inside
        while left:
            if len(left) > 2 and left[1] == "-":
                chars |= {chr(code) for code in range(ord(left[0]), ord(left[2]) + 1)}
                left = left[3:]
            else:
                chars.add(left[0])
                left = left[1:]
        return chars

    def _next(self) -> str:
        return self._pattern[self.at : self.at + 1]

    def _few(self, words: set[str]) -> set[str]:
        if len(words) > self._most:
            raise _NotTold
        return words

"""Regular expressions that mean the same to Java, which Spark uses, and to RE2, which Arrow uses.

The whole value must match. `.` is anything but a newline, \\d, \\w and \\s are ASCII, (?i) goes by Unicode.
"""

import re
from collections.abc import Callable

_LITERAL_ESCAPES = frozenset(r".[](){}*+?^$|\/-_'\"#&~!@%,:;<>=` ")
_KNOWN_ESCAPES = frozenset("dDwWsStnrf")
_CATEGORY = re.compile(r"[pP](\{\^?[A-Z][a-z]?\}|[A-Z])")
_HEXADECIMAL = re.compile(r"x([0-9A-Fa-f]{2}|\{[0-9A-Fa-f]{1,6}\})")
_COUNT = re.compile(r"\{(\d+)(,(\d*))?\}")
_GROUP = re.compile(r"\(\?(:|[ims]+(-[ims]+)?[:)])")
_MOST_REPEATS = 1000  # RE2's limit

JAVA_START, RE2_START, END = r"(?du)\A(?:", r"\A(?:", r")\z"


def java_pattern(pattern: str) -> str:
    """For Spark: d, since Java knows more ends of lines than a newline; u, since its (?i) else knows ASCII only."""
    return f"{JAVA_START}{pattern}{END}"


def re2_pattern(pattern: str) -> str:
    """For Arrow."""
    return f"{RE2_START}{pattern}{END}"


def why_refused(pattern: str) -> str:
    """Why the pattern cannot be used on both; empty when it can."""
    try:
        _Reader(pattern).read()
    except _Refused as refused:
        return str(refused)
    return ""


class _Refused(Exception):
    pass


class _Reader:
    """Goes through a pattern from left to right, and stops at what the two do not share."""

    def __init__(self, pattern: str) -> None:
        self.pattern, self.at, self.depth = pattern, 0, 0
        self.can_repeat = False  # something stands before that can be repeated

    def read(self) -> None:
        steps: dict[str, Callable[[], None]] = {
            "\\": self._escape, "[": self._class, "(": self._open, ")": self._close, "{": self._count,
            "*": self._repeat, "+": self._repeat, "?": self._repeat,
        }  # fmt: skip
        while self.at < len(self.pattern):
            char = self.pattern[self.at]
            if char in steps:
                steps[char]()
            elif char in "}]":
                raise _Refused(f"{char} at {self.at + 1} closes nothing; write \\{char}")
            else:
                self.can_repeat = char not in "|^$"
                self.at += 1
        if self.depth:
            raise _Refused("a ( is never closed")

    def _escape(self) -> None:
        self.at += self._escaped(self.at + 1) + 1
        self.can_repeat = True

    def _escaped(self, start: int) -> int:
        """The length of what stands after a backslash."""
        char = self.pattern[start : start + 1]
        if char.isdigit():
            raise _Refused(f"\\{char} refers back to a group, which Arrow cannot")
        for form in (_CATEGORY, _HEXADECIMAL):
            if found := form.match(self.pattern, start):
                return len(found[0])
        if not char or char not in _LITERAL_ESCAPES | _KNOWN_ESCAPES:
            raise _Refused(f"\\{char} does not mean the same to Spark and to Arrow")
        return 1

    def _class(self) -> None:
        start = self.at
        self.at += 2 if self.pattern[self.at + 1 : self.at + 2] == "^" else 1
        first = self.at
        while (char := self.pattern[self.at : self.at + 1]) != "]" or self.at == first:
            if not char:
                raise _Refused(f"the [ at {start + 1} is never closed")
            if char in "[]" or self.pattern.startswith("&&", self.at):
                raise _Refused(f"{char} inside [ ] does not mean the same to Spark and to Arrow; write \\{char}")
            self.at += 1 + (self._escaped(self.at + 1) if char == "\\" else 0)
        self.at += 1
        self.can_repeat = True

    def _open(self) -> None:
        self.can_repeat = False
        if not self.pattern.startswith("(?", self.at):
            self.at += 1
            self.depth += 1
            return
        found = _GROUP.match(self.pattern, self.at)
        if found is None:
            kind = self.pattern[self.at : self.at + 4]
            what = "looks ahead or behind" if kind[2:3] in "=!" or kind[2:4] in ("<=", "<!") else "is a group"
            raise _Refused(f"{kind[:3]} at {self.at + 1} {what}, which Spark and Arrow do not share")
        self.at += len(found[0])
        self.depth += 0 if found[0].endswith(")") else 1

    def _close(self) -> None:
        if not self.depth:
            raise _Refused(f") at {self.at + 1} closes nothing; write \\)")
        self.depth -= 1
        self.at += 1
        self.can_repeat = True

    def _count(self) -> None:
        found = _COUNT.match(self.pattern, self.at)
        if found is None:
            raise _Refused(f"{{ at {self.at + 1} is no count like {{2}} or {{2,5}}; write \\{{")
        low, high = int(found[1]), int(found[3] or found[1])
        if not low <= high <= _MOST_REPEATS:
            raise _Refused(f"{found[0]} is no count up to {_MOST_REPEATS}")
        self._repeated(found[0])

    def _repeat(self) -> None:
        self._repeated(self.pattern[self.at])

    def _repeated(self, sign: str) -> None:
        if not self.can_repeat:
            raise _Refused(f"{sign} at {self.at + 1} has nothing before it to repeat")
        self.at += len(sign)
        self.can_repeat = False
        if self.pattern.startswith("?", self.at):
            self.at += 1  # as few as possible, which changes nothing when all must match

"""A type of a column as a value, and the parser of its text: the one grammar that Spark and databases share.

bigint · decimal(10,2) · timestamp(3) with time zone · integer[] · array<int> · map<string,array<int>>
struct<street: string, number int NOT NULL COMMENT 'of the house'> · STRUCT<`k` STRING, `v` ARRAY<FLOAT64>>
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

ARRAY, MAP, STRUCT = "array", "map", "struct"
MOST_DEPTH = 100
_PIECE = r"(?s)\s*(`(?:[^`]|``)*`|'(?:[^'\\]|\\.|'')*'|\[\]|[<>(),:]|[^\s<>(),:`'\[\]]+|.)"
_SIGNS = ("<", ">", "(", ")", ",", ":", "[]", "[", "]")
_NO_TYPE = ("not", "null", "comment", "default", "generated", "options")  # these say more of a column than its type
_PLAIN_FIELD = r"[A-Za-z_][A-Za-z0-9_]*"


class DataType(NamedTuple):
    """A type in the words of one system; `str` writes it as Spark's DDL does."""

    name: str  # in lower case: bigint, decimal, timestamp with time zone
    parameters: tuple[int, ...] = ()  # precision and scale, or length
    inner: tuple["DataType", ...] = ()  # an array's elements; a map's keys and values; the types of a struct's fields
    fields: tuple[str, ...] = ()  # the names of a struct's fields

    def __str__(self) -> str:
        inner = [str(type_) for type_ in self.inner]
        if self.name == STRUCT:
            inner = [f"{quoted_field(name)}:{type_}" for name, type_ in zip(self.fields, inner, strict=True)]
        if self.inner or self.name == STRUCT:
            return f"{self.name}<{','.join(inner)}>"
        return f"{self.name}({','.join(map(str, self.parameters))})" if self.parameters else self.name

    @property
    def is_nested(self) -> bool:
        return self.name in (ARRAY, MAP, STRUCT)

    def parts(self) -> Iterator["DataType"]:
        """The type itself and all that are inside of it."""
        yield self
        for type_ in self.inner:
            yield from type_.parts()


def quoted_field(name: str) -> str:
    """The name of a struct's field as Spark's DDL needs it: in backticks only where it is not a plain word."""
    return name if re.fullmatch(_PLAIN_FIELD, name) else f"`{name.replace('`', '``')}`"


def parse_type(text: str) -> DataType:
    """The type that the text writes, in that system's words; raises ValueError for a text that is none.

    What a column's declaration says beside its type (NOT NULL, COMMENT 'text') is passed over.
    """
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._tokens: list[str] = [*re.findall(_PIECE, text.strip()), ""]

    def parse(self) -> DataType:
        found = self._type(0)
        if self._next and not self._is_no_type():
            raise self._wrong()
        return found

    @property
    def _next(self) -> str:
        return self._tokens[self._at]

    def _take(self, wanted: str = "") -> str:
        found = self._next
        if not found or (wanted and found != wanted):
            raise self._wrong()
        self._at += 1
        return found

    def _wrong(self) -> ValueError:
        where = f" near {self._next!r}" if self._next else ""
        return ValueError(f"{self._text!r} is not a type{where}")

    def _is_no_type(self) -> bool:
        return self._next.lower() in _NO_TYPE

    def _type(self, depth: int) -> DataType:
        if depth > MOST_DEPTH:
            raise ValueError(f"a type has at most {MOST_DEPTH} levels")
        words = self._words()
        if not words:
            raise self._wrong()
        parameters = self._parameters() if self._next == "(" else ()
        name = " ".join((*words, *self._words())).lower()  # timestamp(3) with time zone
        found = DataType(name=name, parameters=parameters)
        if self._next == "<":
            found = self._nested(name, depth + 1)
        elif found.is_nested:
            raise self._wrong()
        while self._next == "[]":
            self._take()
            found = DataType(name=ARRAY, inner=(found,))
        return found

    def _words(self) -> list[str]:
        words = []
        while self._next and self._next not in _SIGNS and self._next[0] not in "`'" and not self._is_no_type():
            words.append(self._take())
        return words

    def _parameters(self) -> tuple[int, ...]:
        found = []
        while self._take() != ")":  # first the bracket, then a comma after each number
            if re.fullmatch(r"-?[0-9]{1,9}", self._next) is None:
                raise self._wrong()
            found.append(int(self._take()))
            if self._next not in (",", ")"):
                raise self._wrong()
        return tuple(found)

    def _nested(self, name: str, depth: int) -> DataType:
        inner, fields = [], []
        sign = self._take("<")
        if self._next == ">" and name == STRUCT:
            sign = self._take()
        while sign != ">":
            if name == STRUCT:
                fields.append(self._field())
            inner.append(self._type(depth))
            while name == STRUCT and self._is_no_type():
                self._pass_over()
            if self._next not in (",", ">"):
                raise self._wrong()
            sign = self._take()
        if len(inner) != {ARRAY: 1, MAP: 2}.get(name, len(inner)):
            raise self._wrong()
        return DataType(name=name, inner=tuple(inner), fields=tuple(fields))

    def _field(self) -> str:
        name = self._take()
        if name in _SIGNS or name[0] == "'":
            raise self._wrong()
        if self._next == ":":
            self._take()
        return name[1:-1].replace("``", "`") if name[0] == "`" and len(name) > 1 else name

    def _pass_over(self) -> None:
        if self._take().lower() == "comment":
            self._take()

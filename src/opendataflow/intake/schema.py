"""What may enter a stream: items as its schema declares them, parsed strictly.

A body is UTF-8 and JSON without NaN, without a name that stands twice in an object, without texts that are no Unicode.
All of it is taken, or nothing. The bytes that are kept are those that came, line breaks between values aside: what
was checked is what is read later.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from pydantic_core import SchemaValidator, ValidationError, core_schema, from_json, to_json

from opendataflow.domain.streams import Field
from opendataflow.intake.quick import QuickLook
from opendataflow.intake.refusals import ItemsRefused, NotJson, Problem
from opendataflow.intake.shapes import Number, like, shape_of

_MOST_PROBLEMS = 100
_MOST_SHOWN = 40
_NAME = re.compile(rb'"\s*:')
_NESTED = ("array", "map", "struct")
_BETWEEN = re.compile(r"[\s,]*")
_BLANKS = bytes.maketrans(b"\r\n", b"  ")


@dataclass(frozen=True, slots=True)
class Items:
    """Items that were checked, as the log takes them."""

    data: bytes  # a JSON array without a line break
    count: int


class StreamSchema:
    def __init__(self, fields: Sequence[Field]) -> None:
        """Of a stream's fields, in the order that they are declared; raises UsageError for a type items cannot have."""
        self.fields = {field.name: field for field in fields}
        self.names = tuple(self.fields)
        self.ddl = ", ".join(f"`{field.name.replace('`', '``')}` {field.type}" for field in fields)
        self._is_nested = any(field.type.startswith(_NESTED) for field in fields)
        self._is_exact = any("decimal" in field.type for field in fields)
        self._quick = QuickLook(fields)
        self._absent: dict[str, Any] = dict.fromkeys(self.names)
        item, config = _item(fields), core_schema.CoreConfig(cache_strings="keys")
        # It ends with the first item that does not fit: a description of all of them takes a hundred times their size.
        self._validator = SchemaValidator(core_schema.list_schema(item, strict=True, fail_fast=True), config)
        self._item_validator = SchemaValidator(item, config)

    def parse(self, body: bytes, *, lines: bool = False) -> Items:
        """The items of a body: an object, an array of objects, or one object a line.

        Raises NotJson for a body that is none, ItemsRefused for items that do not fit, each with its place.
        """
        data, count = self._joined(body) if lines else _listed(body)
        found = self._quick.count(data)
        if found is None:
            found = len(self._checked(data))
        if not found:
            raise ItemsRefused([Problem(0, None, "there is no item in it")])
        if count is not None and found != count:
            raise NotJson("the body is no JSON: several values stand where one is expected; put them into an array")
        # Outside of texts, which cannot hold one, a line break is the same as a blank.
        return Items(data.translate(_BLANKS) if b"\n" in data or b"\r" in data else data, found)

    def items_of(self, objects: Iterable[Mapping[str, Any]]) -> Items:
        """The same, of Python values: texts, numbers, truths, dates, decimals, lists, dicts."""
        return self.parse(to_json([dict(one) for one in objects], inf_nan_mode="constants"))

    def typed(self, items: bytes) -> list[dict[str, Any]]:
        """Items of the log as Python values: every field in the declared order, None where it is absent.

        Dates, moments (in UTC), decimals and bytes are what Python has for them. Raises ItemsRefused when the schema
        has changed since, so that they do not fit any more.
        """
        return [{**self._absent, **one} for one in self._checked(items)]

    def _joined(self, body: bytes) -> tuple[bytes, int]:
        """A body of one object a line as an array, and how many there are; empty lines are passed over."""
        lines = [line for line in (line.strip(b" \t\r") for line in body.split(b"\n")) if line]
        for number, line in enumerate(lines):
            # One that is whole begins and ends so; nested ones could, and go on in the next line.
            if not (line.startswith(b"{") and line.endswith(b"}")):
                raise NotJson(f"item {number} is no JSON object in one line")
            if self._is_nested:
                _check_json(line, f"item {number}")
        return b"[%b]" % b",\n".join(lines), len(lines)

    def _checked(self, data: bytes) -> list[dict[str, Any]]:
        try:
            if self._is_exact:
                found = self._validator.validate_python(_exactly(data))
            else:
                found = self._validator.validate_json(data)
        except ValidationError as error:
            if error.error_count() == 1 and (first := error.errors(include_url=False)[0])["type"] == "json_invalid":
                raise NotJson(f"the body is no JSON: {first['ctx']['error']}") from None
            problems = list(islice(self._find_problems(data), _MOST_PROBLEMS))
            raise ItemsRefused(problems or [Problem(0, None, "does not fit the stream's schema")]) from None
        # Colons are at least as many as names: when they are no more than what was found, no name was there twice.
        names = sum(map(len, found))
        if b"\\u0000" in data:
            _check_nul(found)
        if self._is_nested or (data.count(b":") != names and len(_NAME.findall(data)) != names):
            _check_names(data)
        return list(found)

    def _find_problems(self, data: bytes) -> Iterator[Problem]:
        """What is wrong with the items of an array, one item in memory at a time."""
        for index, item in enumerate(_read_items(data, parse_float=Number.of if self._is_exact else None)):
            if isinstance(item, dict):
                unknown = list(islice((name for name in item if name not in self.fields), _MOST_PROBLEMS))
                item = {name: value for name, value in item.items() if name in self.fields}  # noqa: PLW2901
            else:
                unknown = []
            try:
                self._item_validator.validate_python(item)
            except ValidationError as error:
                if error.error_count() > _MOST_PROBLEMS:
                    yield Problem(index, None, f"{error.error_count():,} values in it are not what is declared there")
                    continue
                for one in error.errors(include_url=False):
                    yield self._problem(index, one)
            for name in unknown:
                yield Problem(index, name, f"is not a field of this stream; it has {', '.join(self.names)}")

    def _problem(self, index: int, told: Any) -> Problem:
        path = told["loc"]
        if not path:
            return Problem(index, None, f"{_shown(told['input'])} is no object, but an item is one")
        name = ".".join(str(part) for part in path)
        field = self.fields.get(str(path[0]))
        if told["type"] == "missing":
            return Problem(index, name, "is not there, and is required")
        if told["type"] == "extra_forbidden":
            return Problem(index, name, "is not declared there")
        if told["type"] == "value":
            return Problem(index, name, f"{_shown(told['input'])} {told['msg']}")
        if told["type"] in ("greater_than_equal", "less_than_equal", "finite_number"):
            return Problem(
                index, name, f"{_shown(told['input'])} is out of the range of {field.type if field else name}"
            )
        wanted = like(field.type) if field is not None and len(path) == 1 else "what is declared there"
        if told["input"] is None:
            return Problem(index, name, f"is null, and is required: {wanted}")
        return Problem(index, name, f"{_shown(told['input'])} is not {wanted}")


def _item(fields: Sequence[Field]) -> core_schema.CoreSchema:
    shapes = {}
    for field in fields:
        shape = shape_of(field.type)
        shape = shape if field.required else core_schema.nullable_schema(shape)
        shapes[field.name] = core_schema.typed_dict_field(shape, required=field.required)
    return core_schema.typed_dict_schema(shapes, extra_behavior="forbid", strict=True)


# Bodies ---------------------------------------------------------------------------------------------------------------
def _listed(body: bytes) -> tuple[bytes, int | None]:
    """A body of one value as an array, and how many items it must have; None: as many as there are."""
    data = body.strip(b" \t\r\n")
    return (data, None) if data.startswith(b"[") else (b"[%b]" % data, 1 if data else None)


def _read_items(data: bytes, **options: Any) -> Iterator[Any]:
    """The values of an array that is known to be JSON; ends early at a value that Python does not read."""
    text, decoder = data.decode(), json.JSONDecoder(**options)
    at = _BETWEEN.match(text, text.index("[") + 1).end()  # type: ignore[union-attr]
    while at < len(text) and text[at] != "]":
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):  # a number of thousands of digits
            return
        yield value
        at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]


def _check_json(data: bytes, where: str = "the body") -> None:
    try:
        from_json(data, allow_inf_nan=False, cache_strings="none")
    except ValueError as error:
        raise NotJson(f"{where} is no JSON: {error}") from None


def _exactly(data: bytes) -> Any:
    """The values of JSON with all digits of their numbers."""
    _check_json(data)  # it is stricter than what follows
    try:
        return json.loads(data, parse_float=Number.of)
    except (ValueError, RecursionError) as error:
        raise NotJson(f"the body is no JSON: {error}") from None


def _check_nul(items: list[dict[str, Any]]) -> None:
    """Raise ItemsRefused for a text that no database can keep: one such item would hold up all others."""
    for index, item in enumerate(items):
        for name, value in item.items():
            if "\\u0000" in json.dumps(value, default=str):
                raise ItemsRefused([Problem(index, name, "holds a NUL character")])


class _Pairs(list[tuple[str, Any]]):
    """An object as it is written: names may stand twice."""


def _check_names(data: bytes) -> None:
    """Raise ItemsRefused when a name stands twice in an object."""
    for index, item in enumerate(json.loads(data, object_pairs_hook=_Pairs)):
        twice = _find_twice(item)
        if twice is not None:
            raise ItemsRefused([Problem(index, twice, "stands twice in one object")])


def _find_twice(value: Any) -> str | None:
    if isinstance(value, _Pairs):
        names = [name for name, _ in value]
        if len(set(names)) != len(names):
            return next(name for name in names if names.count(name) > 1)
        return _find_twice([inner for _, inner in value])
    found = (_find_twice(inner) for inner in value) if isinstance(value, list) else ()
    return next((name for name in found if name is not None), None)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str) if not isinstance(value, bytes) else "the body"
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 1]}…"

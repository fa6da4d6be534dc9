"""A quick look at items: where it is sure that all of them fit, the thorough one is not needed.

It knows plain types only, and never says why something does not fit. Three times as fast as the thorough look, which
is most of what a request costs beside HTTP itself.
"""

import re
from collections.abc import Sequence
from operator import attrgetter
from typing import Annotated, Any

from opendataflow.domain.streams import Field

_NAME = re.compile(rb'"\s*:')
_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_PLAIN: dict[str, Any] = {"string": str, "boolean": bool, "double": float}


class QuickLook:
    def __init__(self, fields: Sequence[Field]) -> None:
        """Of a stream's fields; it is never sure when one of them has another type, or msgspec is not installed."""
        self._decoder: Any = None
        try:
            import msgspec
        except ModuleNotFoundError:
            return
        types = [_type(field.type) for field in fields]
        if None in types:
            return
        declared: list[Any] = []
        for number, (field, type_) in enumerate(zip(fields, types, strict=True)):
            name = f"f{number}"  # a field may have a name that Python has not
            declared.append(
                (name, type_) if field.required else (name, type_ | None | msgspec.UnsetType, msgspec.UNSET)
            )
        declared.sort(key=len)
        names = {f"f{number}": field.name for number, field in enumerate(fields)}
        item = msgspec.defstruct("Item", declared, rename=names, forbid_unknown_fields=True, gc=False)
        self._decoder, self._error = msgspec.json.Decoder(list[item]), msgspec.MsgspecError  # type: ignore[valid-type]
        self._unset = msgspec.UNSET
        self._required = sum(field.required for field in fields)
        self._optional = [attrgetter(name) for name, *rest in declared if len(rest) > 1]

    def count(self, data: bytes) -> int | None:
        """How many items there are in a JSON array when all are sure to fit; None: look thoroughly."""
        if self._decoder is None or (b"\\" in data and b"\\u0000" in data):  # one byte is sought much faster than six
            return None
        try:
            found = self._decoder.decode(data)
        except (self._error, ValueError):
            return None
        names = len(found) * (self._required + len(self._optional))
        for get in self._optional:
            names -= list(map(get, found)).count(self._unset)
        # Colons are at least as many as names: when they are no more than what was found, no name was there twice.
        is_sure = data.count(b":") == names or len(_NAME.findall(data)) == names
        return len(found) if is_sure else None


def _type(declared: str) -> Any:
    if declared in _BITS:
        import msgspec

        most = 1 << (_BITS[declared] - 1)
        return Annotated[int, msgspec.Meta(ge=-most, le=most - 1)]
    return _PLAIN.get(declared)

"""JSON that comes from a child: what the user's code printed or raised is in it, so any character may be."""

import json
import re
from collections.abc import Iterable
from typing import Any

# NUL, which PostgreSQL takes in no text, and halves of characters, which no encoding takes. JSON that json.dumps wrote
# holds them escaped, as it does the two halves of a whole character.
_MAY_HOLD_THEM = re.compile(rb"\\u(?:d[89a-f]|0000)", re.IGNORECASE)
_UNWRITABLE = re.compile("[\0\ud800-\udfff]")


def read_json(data: bytes) -> Any:
    """The value; what no database or terminal could take in its text is replaced: NUL, and bytes that are no UTF-8."""
    value = json.loads(data)
    return _writable(value) if _MAY_HOLD_THEM.search(data) else value


def read_messages(lines: Iterable[bytes]) -> list[dict[str, Any]]:
    """The messages in these lines. Others are left out: the user's code may have caused them."""
    found = []
    for line in lines:
        try:
            value = read_json(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def _writable(value: Any) -> Any:
    if isinstance(value, str):
        return _UNWRITABLE.sub(_replacement, value)
    if isinstance(value, dict):
        return {_writable(key): _writable(one) for key, one in value.items()}
    return [_writable(one) for one in value] if isinstance(value, list) else value


def _replacement(match: re.Match[str]) -> str:
    """Of a byte that Python took in as half a character, that byte; of any other half, its number; a sign for NUL."""
    code = ord(match[0])
    if code == 0:
        return "\N{REPLACEMENT CHARACTER}"
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"\\u{code:04x}"

"""From a place in project.yml to the address that stands there: for the process that sends, never written down."""

import re
from typing import Any
from urllib.parse import quote, unquote

from opendataflow.errors import ConfigurationError
from opendataflow.project.secrets import PREFIX

_ENCRYPTED = re.compile(rf"{PREFIX}[A-Za-z0-9+/]+=*")
_PARTS = re.compile(r"[^A-Za-z0-9._~%+-]+")
_LEAST_MASKED = 4  # characters: shorter ones are in every sentence


def read_address(home: str, place: str) -> str:
    """The address that stands there now, with variables and credentials filled in.

    ConfigurationError or SecretError says what is missing, and nothing of the address.
    """
    from opendataflow.project.source import Source
    from opendataflow.project.variables import expand

    node: Any = Source(home).data
    for part in place.split("/"):
        node = _below(node, part)
    if not isinstance(node, str):
        raise ConfigurationError(
            f"{home}/project.yml has no address at {place.replace('/', '.')}; run `dataflow apply`"
        )
    if re.search(r"\$\{[^}]*$", node):
        raise ConfigurationError(f"{home}/project.yml: a ${{…}} is not closed at {place.replace('/', '.')}")
    return fill(expand(node.strip()))


def _below(node: Any, part: str) -> Any:
    if isinstance(node, str) and part == "0":
        return node  # one address stands for a list of one
    if isinstance(node, dict):
        return node.get(part)
    if not isinstance(node, list):
        return None
    if part.isdecimal() and not any(isinstance(one, dict) for one in node):
        return node[int(part)] if int(part) < len(node) else None
    return next((one for one in node if isinstance(one, dict) and one.get("slug") == part), None)


def fill(address: str) -> str:
    """The address with its credentials decrypted: all of it, or parts of it."""
    if PREFIX not in address:
        return address
    from opendataflow.project.secrets import decrypt, get_passkey

    passkey = get_passkey()
    if address.startswith(PREFIX):
        return decrypt(address, passkey)
    return _ENCRYPTED.sub(lambda found: quote(decrypt(found.group(), passkey), safe=""), address)


def masked(text: str, address: str) -> str:
    """The text without any part of the address but its scheme."""
    scheme, _, rest = address.partition("://")
    whole = {rest, unquote(rest)}
    parts = whole | {unquote(part) for one in whole for part in _PARTS.split(one)}
    parts |= {part for one in whole for part in _PARTS.split(one)}
    for part in sorted(parts, key=len, reverse=True):
        if len(part) >= _LEAST_MASKED and part.lower() not in (scheme.lower(), "json", "from", "mode"):
            text = text.replace(part, "***")
    return text

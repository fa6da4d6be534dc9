"""The original's dataflow.properties (url, user, schema, encrypted) as a store's address."""

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode

from opendataflow.errors import ConfigurationError, SecretError
from opendataflow.project.secrets import Rotation, decrypt, get_passkey

# Java's syntax: comments, `=`, `:` or blanks between key and value, \ escapes, and \ at a line's end goes on.
_ENTRY = re.compile(
    r"""[ \t\f]*
    (?: (?P<comment> [#!][^\r\n]*)
      | (?P<key>   (?: \\ (?:(?:\r\n?|\n)[ \t\f]*|[\s\S]) | [^\\ \t\f\r\n=:] )* )
                   (?: [ \t\f] | \\ (?:\r\n?|\n) )* (?P<separator> [=:])? (?: [ \t\f] | \\ (?:\r\n?|\n) )*
        (?P<value> (?: \\ (?:\r\n|[\s\S]) | [^\\\r\n] )* ) \\?
    ) (?:\r\n?|\n|\Z)""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|((?:\r\n?|\n)[ \t\f]*)|([\s\S]))")
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}

# Connection settings of the Java driver that PostgreSQL's own library knows, by its name for them.
_CARRIED = {
    "sslmode": "sslmode",
    "sslcert": "sslcert",
    "sslkey": "sslkey",
    "sslrootcert": "sslrootcert",
    "connectTimeout": "connect_timeout",
    "loginTimeout": "connect_timeout",
    "tcpKeepAlive": "keepalives",
    "gssEncMode": "gssencmode",
    "channelBinding": "channel_binding",
}
_SWITCHES = {"true": "1", "false": "0"}


class Entry(NamedTuple):
    """A value and where its text stands in the file."""

    value: str
    start: int
    end: int


def parse(text: str, *, file: str) -> dict[str, Entry]:
    """The entries of a Java properties text; of a key that stands twice, the last."""
    found: dict[str, Entry] = {}
    at = 0
    while at < len(text):
        match = _ENTRY.match(text, at)
        if match is None or match.end() == at:  # cannot be: an empty key and value match every line
            raise ConfigurationError(f"{file}: cannot be read as Java properties")
        at = match.end()
        if match["comment"] is None:
            line = text.count("\n", 0, match.start()) + 1
            key, value = (_plain(match[part], f"{file}:{line}") for part in ("key", "value"))
            if key or value or match["separator"]:
                found[key] = Entry(value, match.start("value"), match.end("value"))
    return found


def _plain(text: str, where: str) -> str:
    def one(escape: re.Match[str]) -> str:
        code, line_end, letter = escape.groups()
        if letter == "u":
            raise ConfigurationError(rf"{where}: \u needs four hexadecimal digits")
        return chr(int(code, 16)) if code else "" if line_end else _LETTERS.get(letter, letter)

    return _ESCAPE.sub(one, text)


def read_text(file: str) -> str:
    """The file's text: UTF-8, or else Latin-1 as Java reads it."""
    try:
        with open(file, "rb") as source:
            raw = source.read()
    except OSError as error:
        raise ConfigurationError(f"{file}: {error.strerror}") from error
    return raw.decode(_encoding(raw))


def _encoding(raw: bytes) -> str:
    try:
        raw.decode()
        return "utf-8"
    except UnicodeDecodeError:
        return "latin-1"


class Properties(NamedTuple):
    """What dataflow.properties says of the database."""

    place: str  # postgresql://user:password@host:port/database
    settings: dict[str, str]  # of the connection
    schema: str | None

    @property
    def url(self) -> str:
        """The store's address, with the schema as its search path."""
        settings = dict(self.settings)
        if self.schema is not None:
            ours = f"-csearch_path={search_path(self.schema)}"
            settings["options"] = f"{settings['options']} {ours}" if settings.get("options") else ours
        return f"{self.place}?{urlencode(settings, quote_via=quote, safe='')}" if settings else self.place


def search_path(schema: str) -> str:
    """The schema as a server option takes it, exactly as it is spelt."""
    if re.fullmatch(r"[a-z_][a-z0-9_]*", schema):
        return schema
    quoted = '"' + schema.replace('"', '""') + '"'
    return re.sub(r"([\\\s])", r"\\\1", quoted)


def read_properties(file: str, *, passkey: str | None = None) -> Properties:
    """The database that the file names; its password is decrypted with this passkey, or the one of the environment."""
    entries = {key: entry.value for key, entry in parse(read_text(file), file=file).items()}
    url = entries.get("url", "").strip()
    if not url:
        raise ConfigurationError(f"{file}: url: is missing")
    known = re.fullmatch(r"(jdbc:)?postgres(?:ql)?:(.*)", url)
    if known is None:
        kind = re.match(r"(?:jdbc:)?[A-Za-z0-9+]*", url)
        raise ConfigurationError(
            f"{file}: url: starts with {kind.group() if kind else ''!r}; only PostgreSQL can be used, as "
            "jdbc:postgresql://host:port/database"
        )
    is_jdbc, rest = known[1] is not None, known[2]
    host, database, settings = _place(rest, is_jdbc=is_jdbc, file=file)
    if is_jdbc:
        # The Java driver takes what else the file says as settings of the connection.
        settings = {**{key: value for key, value in entries.items() if key not in ("user", "password")}, **settings}
    credentials, _, host = host.rpartition("@")
    in_url = [unquote(part) for part in credentials.split(":", 1)] if credentials else []
    user = settings.pop("user", None) or (in_url[0] if in_url else None) or entries.get("user", "").strip()
    password = settings.pop("password", None) or (in_url[1] if len(in_url) > 1 else None)
    if password is None:
        password = _password(entries, file, passkey)
    schema = entries.get("schema", "").strip() or settings.pop("currentSchema", "")
    who = quote(user, safe="") + (f":{quote(password, safe='')}" if password is not None else "")
    place = f"postgresql://{who + '@' if who else ''}{host}/{database}"
    return Properties(place, _libpq(settings) if is_jdbc else settings, schema or None)


def _place(rest: str, *, is_jdbc: bool, file: str) -> tuple[str, str, dict[str, str]]:
    """Host with what stands before its @, database and settings of what follows `postgresql:`."""
    place, _, query = rest.partition("?")
    settings = dict(parse_qsl(query, keep_blank_values=True))
    if place.startswith("//"):
        host, _, database = place[2:].partition("/")
    elif is_jdbc:
        host, database = "", place.lstrip("/")  # jdbc:postgresql:database
    else:
        raise ConfigurationError(f"{file}: url: is not like postgresql://host:port/database")
    # The Java driver knows no sockets: without a host it means this machine.
    return host or ("localhost" if is_jdbc else ""), database, settings


def _password(entries: dict[str, str], file: str, passkey: str | None) -> str | None:
    sealed = entries.get("encrypted", "").strip()
    if not sealed:
        if entries.get("password"):
            raise ConfigurationError(
                f"{file}: password: is plain text; make it with `dataflow crypt encrypt` and call it `encrypted`"
            )
        return None
    try:
        return decrypt(sealed, passkey if passkey is not None else get_passkey())
    except SecretError as error:
        raise SecretError(f"{file}: encrypted: {error}") from None


def _libpq(settings: dict[str, str]) -> dict[str, str]:
    """The settings that PostgreSQL's own library has too; what only tunes the Java driver is left out."""
    carried = {}
    if settings.get("ssl", "false").lower() in ("", "true"):
        carried["sslmode"] = "verify-full"  # what the Java driver means by it
    for name, ours in _CARRIED.items():
        if name in settings:
            carried[ours] = _SWITCHES.get(settings[name].lower(), settings[name])
    return carried


def rotate_properties(raw: bytes, rotate: Rotation, *, file: str) -> tuple[bytes, int, int]:
    """The file with `encrypted` under the new passkey, how many changed, and how many already were."""
    encoding = _encoding(raw)
    text = raw.decode(encoding)
    entry = parse(text, file=file).get("encrypted")
    if entry is None or not entry.value.strip():
        return raw, 0, 0
    old = entry.value.strip()
    try:
        new = rotate(old)
    except SecretError as error:
        raise SecretError(f"{file}: encrypted: {error}; nothing was changed") from None
    if new == old:
        return raw, 0, 1
    return (text[: entry.start] + new + text[entry.end :]).encode(encoding), 1, 0

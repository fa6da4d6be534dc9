"""What a database's driver says, as one sentence that names the next step; never with a secret in it."""

import re
import urllib.parse
from collections.abc import Sequence

from opendataflow.errors import DataflowError
from opendataflow.spark.bigquery import explain_bigquery
from opendataflow.spark.bigquery import is_passing as is_passing_bigquery

MASK = "***"
_USERINFO = re.compile(r"(?P<scheme>[A-Za-z][\w+.-]*://)(?P<user>[^:/@\s]*):[^@\n]*@")
_SECRET_ITEMS = re.compile(r"(?i)\b(password|passwd|pwd|sslpassword|token|secret|credentials)=[^&;\s]*")

# By SQLSTATE where the server gave one: what it says may hold values of a table, which may be anything. A driver that
# gets no connection has no SQLSTATE, nor have those of SQLite and BigQuery: then by what they are known to say.
_REFUSED_PASSWORD = re.compile(
    r"password authentication failed|no password supplied|no pg_hba\.conf entry|SCRAM|[Aa]ccess denied for user"
    r"|authentication failed|401 Unauthorized|invalid_grant"
)
_NO_CREDENTIALS = re.compile(r"could not find default credentials|unidentified file type|constructing client")
_NO_ROUTE = re.compile(
    r"Connection refused|could not translate host name|timeout expired|timed out|No route to host"
    r"|Network is unreachable|No such file or directory|invalid response to SSL|no such host|dial tcp|Connection reset"
)
_LOST = re.compile(
    r"server closed the connection|no connection to the server|connection not open|terminating connection"
    r"|Connection reset|Broken pipe|SSL connection has been closed|could not receive data|EOF detected"
    r"|unexpectedly|the database system is (starting up|shutting down|in recovery)"
)
_NO_TABLE = re.compile(
    r'no such table: (?P<a>[^\s"]+)|[Nn]ot found: Table (?P<b>\S+)|relation "(?P<c>[^"]+)" does not exist'
)
_NO_COLUMN = re.compile(
    r'no such column: (?P<a>[^\s"]+)|Unrecognized name: (?P<b>\S+)|column "?(?P<c>[^"\s]+)"? does not exist'
)
_NO_NAME = re.compile(r'(?P<what>role|database) "(?P<name>[^"]+)" does not exist')
_NO_ACCESS = re.compile(r"permission denied|Access Denied|readonly database|not authorized|accessDenied")
_NO_DRIVER = re.compile(r"Could not load|dlopen\(\) failed|No module named")
_NESTED = re.compile(r'malformed array literal: "\d+ dimensions in (.*?)"')
_STATES = re.compile(r"SQLSTATE: (\w{5})")
_SEVERITY = re.compile(r"\b(ERROR|FATAL): +")
_LAYERS = re.compile(r"^[A-Z_]+: (\[[\w ]+\] )?(Failed to [\w ]+: )?")


def without_secrets(text: str, secrets: Sequence[str] = ()) -> str:
    """The text with what is secret masked: given values, and passwords in anything that looks like an address."""
    for secret in secrets:
        for form in {secret, urllib.parse.quote(secret, safe="")}:
            text = text.replace(form, MASK)
    text = _USERINFO.sub(r"\g<scheme>\g<user>@", text)
    return _SECRET_ITEMS.sub(rf"\1={MASK}", text)


def explain_error(
    error: BaseException, *, dialect: str, shown: str, table: str | None, secrets: Sequence[str], driver: str = ""
) -> str:
    """The error of a driver in one sentence."""
    if isinstance(error, DataflowError):
        return str(error)
    said = without_secrets(str(error), secrets)
    state = _state(error) or next(iter(_STATES.findall(said)), "")
    place = table or "the query"
    if _NO_DRIVER.search(said) and not state:
        return (
            f"there is no ADBC driver {driver!r} on this machine; install its package with pip, "
            "or give `driver:` the path of its library"
        )
    if dialect == "bigquery" and (_NO_CREDENTIALS.search(said) or _REFUSED_PASSWORD.search(said)):
        return (
            f"BigQuery gets no credentials that it takes for {shown} ({_short(said)}); set `password:` to a service "
            "account's JSON key, or GOOGLE_APPLICATION_CREDENTIALS to its file"
        )
    if dialect == "bigquery" and (told := explain_bigquery(said, _short(said), shown)):
        return told
    if state in ("28P01", "28000") or (not state and _REFUSED_PASSWORD.search(said)):
        return (
            f"{shown} refuses this user or password ({_short(said)}); check the user in `url:`, and make `password:` "
            "again with `dataflow crypt encrypt`"
        )
    if state in ("", "3D000") and (missing := _NO_NAME.search(said)):
        return f"there is no {missing['what']} {missing['name']!r} at {shown}; check `url:`"
    if state == "42P01" or (not state and _NO_TABLE.search(said)):
        found = _NO_TABLE.search(said)
        name = next((one for one in found.groups() if one), place) if found else place
        return (
            f"there is no table {name} at {shown}; check `table:` or `query:`, the schema's name in it, "
            "and upper and lower case"
        )
    if state == "42703" or (not state and _NO_COLUMN.search(said)):
        found = _NO_COLUMN.search(said)
        name = next((one for one in found.groups() if one), "") if found else ""
        return f"there is no column {name} in {place} at {shown}; see `dataflow source schema`"
    if state == "42501" or (not state and _NO_ACCESS.search(said)):
        return (
            f"this user has no permission for {place} at {shown} ({_short(said)}); "
            "ask its owner to grant it, or use another user in `url:`"
        )
    if state in ("", "22P02") and (nested := _NESTED.search(said)):
        return f"column {nested[1]} of {place} holds an array of arrays, which is not supported; convert it in `query:`"
    if state in ("", "0A000", "22003") and "cannot convert NaN" in said:
        return f"a numeric column of {place} holds NaN, which no decimal is; convert it in `query:`, or leave it out"
    if state in ("", "22023") and "invalid snapshot identifier" in said:
        return (
            f"the moment of {shown} that this read was to see is gone, with the connection that held it; run it again"
        )
    if state == "53300" or (not state and "too many clients" in said):
        return f"{shown} takes no more connections; set `connections:` of the dataset to what it allows"
    if is_lost(error):
        return f"the connection to {shown} was lost ({_short(said)}); run it again when the database is back"
    if dialect == "sqlite" and "failed to open" in said:
        return f"{shown} cannot be opened ({_short(said)}); check that the folder exists and may be written"
    if not state and _NO_ROUTE.search(said):
        return f"{shown} cannot be reached ({_short(said)}); is it running, and are host and port in `url:` right?"
    return f"{shown} says: {_short(said)}"


def is_lost(error: BaseException) -> bool:
    """True when the server went away, or is not up yet: asking again may do."""
    if state := _state(error):
        return state[:2] in ("08", "57") and state != "57014"  # a statement that was cancelled
    return bool(_LOST.search(str(error))) or is_passing_bigquery(str(error))


def is_passing(error: BaseException) -> bool:
    """True when connecting again in a moment may do."""
    if state := _state(error):
        return is_lost(error) or state == "53300"
    said = str(error)
    if _NO_DRIVER.search(said):
        return False
    return is_lost(error) or "too many clients" in said or bool(_NO_ROUTE.search(said) and "FATAL" not in said)


def _state(error: BaseException) -> str:
    """The SQLSTATE that a server gave; empty where none did."""
    state = str(getattr(error, "sqlstate", None) or "")
    return state if state.strip("0\0") else ""


def _short(said: str) -> str:
    """The first line that says something, without the driver's layers around it."""
    text = re.split(r"\n+(?:Query was|query|LINE \d+|DETAIL|HINT):|\n\t", said, maxsplit=1)[0]
    found = _SEVERITY.search(text)
    text = text[found.end() :] if found else _LAYERS.sub("", text)
    return re.sub(r"\s+", " ", text.strip()).rstrip(".") or "no reason given"

"""BigQuery's address as its ADBC driver takes it: bigquery://project/dataset?location=EU.

Options are the driver's own without what they all begin with: `location` is `adbc.bigquery.sql.location`. Those of a
query (`query.max_bytes_billed`) are set on each statement.
"""

import os
import re
import urllib.parse
from collections.abc import Mapping

from opendataflow.errors import ConfigurationError

_PREFIX = "adbc.bigquery.sql."
_QUERY = f"{_PREFIX}query."
_AUTH = f"{_PREFIX}auth_type"
_CREDENTIALS = f"{_PREFIX}auth_credentials"
_NO_DATASET = re.compile(
    r"[Nn]ot found: Dataset (?P<name>\S+?)( was not found in location (?P<location>[\w-]+))?(?=[\s;.,]|$)"
)
_NO_FILES = re.compile(r"[Nn]ot found: (URI|Files|Uris) (?P<name>\S+)")
_NO_FILE_ACCESS = re.compile(r"Access Denied: File (?P<name>gs://[^\s:]+)|does not have storage\.\S+ access")
_NO_READ_SESSION = re.compile(r"readSessionUser|bigquery\.readsessions\.create")
_NO_JOBS = re.compile(r"bigquery\.jobs\.create")
_APART = re.compile(r"Cannot read and write in different locations: source: (?P<a>[\w-]+), destination: (?P<b>[\w-]+)")
_BYTES = re.compile(r"exceeded limit for bytes billed: (?P<limit>\d+)\. (?P<needed>\d+) or higher required")
_QUOTA = re.compile(r"[Qq]uota exceeded|quotaExceeded|rateLimitExceeded|Exceeded rate limits")
_NULL_ELEMENT = re.compile(r"[Aa]rray cannot have a null element(; error in writing field (?P<name>\S+))?")
_PASSING = re.compile(
    r"unexpected EOF|i/o timeout|connection reset by peer|backendError|jobBackendError|jobInternalError"
    r"|googleapi: (got HTTP response code|Error) 50[0234]\b|TLS handshake timeout"
)


def database_options(
    url: str, options: Mapping[str, str], password: str | None
) -> tuple[dict[str, str], dict[str, str | int]]:
    """The driver's options of the database and of each statement.

    The password is a service account's key: its JSON text, or the path of its file. Without one the driver looks for
    the credentials of the machine, as all of Google's tools do.
    """
    parts = urllib.parse.urlsplit(url)
    project, dataset = parts.netloc, parts.path.strip("/")
    if not project or "/" in dataset:
        raise ConfigurationError(f"{url}: BigQuery's address is bigquery://PROJECT or bigquery://PROJECT/DATASET")
    found = {f"{_PREFIX}project_id": project}
    statement: dict[str, str | int] = {}
    if dataset:
        found[f"{_PREFIX}dataset_id"] = dataset
        statement = {f"{_QUERY}default_project_id": project, f"{_QUERY}default_dataset_id": dataset}
    if password is not None:
        is_file = os.path.isfile(password) if len(password) < 4096 and "{" not in password else False
        found[_AUTH] = f"{_AUTH}.json_credential_{'file' if is_file else 'string'}"
        found[_CREDENTIALS] = password
    given = {**dict(urllib.parse.parse_qsl(parts.query)), **options}
    for name, value in given.items():
        full = name if name.startswith("adbc.") else f"{_PREFIX}{name}"
        if full.startswith(_QUERY):
            statement[full] = int(value) if str(value).isdigit() else str(value)  # it takes numbers as numbers only
        else:
            found[full] = str(value)
    return found, statement


# What goes wrong ------------------------------------------------------------------------------------------------------
def is_passing(said: str) -> bool:
    """True when BigQuery, or the way to it, was away for a moment."""
    return _PASSING.search(said) is not None


def explain_bigquery(said: str, short: str, shown: str) -> str | None:
    """What BigQuery says of itself in one sentence; None for what is said in the same words of any database."""
    if found := _NO_DATASET.search(said):
        where = f" in location {found['location']}" if found["location"] else ""
        return (
            f"there is no dataset {found['name']} at {shown}{where}; check `url:` and `table:`, make the dataset, or "
            "name its location: bigquery://project/dataset?location=EU"
        )
    if found := _APART.search(said):
        return (
            f"{shown} is in {found['b']}, and what it is to read in {found['a']}; let `staging:` be a bucket in the "
            "dataset's own location"
        )
    if found := _BYTES.search(said):
        return (
            f"a statement at {shown} would be billed {found['needed']} bytes, and `query.max_bytes_billed` allows "
            f"{found['limit']}; raise it in `driver_options:`"
        )
    if "free tier" in said or "Billing has not been enabled" in said:
        return f"{shown} has no billing account, without which BigQuery changes no rows ({short}); give its project one"
    if _QUOTA.search(said):
        return f"{shown} has used up a quota ({short}); run it later, or fewer chunks at once"
    if found := _NO_FILE_ACCESS.search(said):
        return (
            f"BigQuery may not read {found['name'] or 'the files'} for this account ({short}); grant it "
            "roles/storage.objectViewer on the bucket of `staging:`"
        )
    if found := _NO_FILES.search(said):
        return f"BigQuery finds no files {found['name']} to load; check `staging:`, and that nothing else empties it"
    if _NO_READ_SESSION.search(said):
        return f"this account may not read results of {shown}; grant it roles/bigquery.readSessionUser"
    if _NO_JOBS.search(said):
        return f"this account may not run statements in {shown}; grant it roles/bigquery.jobUser"
    if found := _NULL_ELEMENT.search(said):
        name = f"column {found['name']}" if found["name"] else "a column"
        return f"{name} has null inside of an array, which no table of BigQuery holds; take such elements out"
    if "streaming buffer" in said:
        return (
            f"rows that were streamed into a table at {shown} cannot be replaced for up to 90 minutes ({short}); let "
            "nothing else stream into it, or run it later"
        )
    return None

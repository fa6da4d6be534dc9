"""BigQuery's address as its ADBC driver takes it: bigquery://project/dataset?location=EU.

Options are the driver's own without what they all begin with: `location` is `adbc.bigquery.sql.location`. Those of a
query (`query.max_bytes_billed`) are set on each statement.
"""

import os
import urllib.parse
from collections.abc import Mapping

from opendataflow.errors import ConfigurationError

_PREFIX = "adbc.bigquery.sql."
_QUERY = f"{_PREFIX}query."
_AUTH = f"{_PREFIX}auth_type"
_CREDENTIALS = f"{_PREFIX}auth_credentials"


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

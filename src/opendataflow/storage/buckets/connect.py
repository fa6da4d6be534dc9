"""The way to an object store: from the variables that its own tools read, and its errors as sentences.

Nothing of it is kept anywhere: credentials are found by the store's own library, in the environment, in its profile or
on the machine. Every request ends within a bounded time.
"""

import contextlib
import datetime
import errno
import os
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from opendataflow.storage.buckets.address import GS, S3, parse

CONNECT_SECONDS = 5.0
ATTEMPTS = 4  # of one request, with a growing pause: some 5 s where nobody answers
GS_RETRY_SECONDS = 10
_S3_CREDENTIALS = (
    "AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)  # fmt: skip
_OF_THIS_MACHINE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE)
_S3_ERROR = re.compile(r"AWS Error (?P<code>[A-Z0-9_]+)(?: \(HTTP status (?P<status>\d+)\))? during")
_SAID = re.compile(r"operation: (?P<said>.*?)(?: \(Request ID: .*)?\Z", re.DOTALL)
_CURL = re.compile(r"(?:Details: |CURL error \[\d+\]=)(?P<said>.+?)(?: error_info=.*|\Z)", re.DOTALL)


def file_system(location: str) -> Any:
    """Arrow's file system of the store where this location is; made once."""
    store = settings_of(location)
    if store["kind"] == GS:
        return _google(store["endpoint"], os.getpid())
    return _amazon(store["endpoint"], store["region"], store["anonymous"], os.getpid())


def settings_of(location: str) -> dict[str, Any]:
    """Which store it is, as another process may be told: nothing of it is secret."""
    if parse(location).store == GS:
        return {"kind": GS, "endpoint": os.environ.get("STORAGE_EMULATOR_HOST")}
    is_anonymous = _is_true("AWS_NO_SIGN_REQUEST")
    return {"kind": S3, "endpoint": _s3_endpoint(), "region": _s3_region(), "anonymous": is_anonymous}


def _s3_endpoint() -> str | None:
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")


def _s3_region() -> str | None:
    # A store of one's own has no regions, but a request must name one.
    return (
        os.environ.get("AWS_REGION")
        or os.environ.get("AWS_DEFAULT_REGION")
        or ("us-east-1" if _s3_endpoint() else None)
    )


def _is_true(variable: str) -> bool:
    return os.environ.get(variable, "").lower() in ("1", "true", "yes")


@lru_cache(maxsize=8)
def _amazon(endpoint: str | None, region: str | None, is_anonymous: bool, _process: int) -> Any:
    from pyarrow import fs

    return fs.S3FileSystem(
        endpoint_override=endpoint, region=region, anonymous=is_anonymous, connect_timeout=CONNECT_SECONDS,
        request_timeout=60.0, retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
        allow_delayed_open=True,  # a small file is one request then
    )  # fmt: skip


@lru_cache(maxsize=8)
def _google(emulator: str | None, _process: int) -> Any:
    from pyarrow import fs

    limit = datetime.timedelta(seconds=GS_RETRY_SECONDS)
    if emulator is None:
        return fs.GcsFileSystem(retry_time_limit=limit)
    scheme, _, host = emulator.rpartition("://")
    return fs.GcsFileSystem(anonymous=True, scheme=scheme or "http", endpoint_override=host, retry_time_limit=limit)


# What went wrong ------------------------------------------------------------------------------------------------------
@contextlib.contextmanager
def explained(location: str) -> Iterator[None]:
    """Errors of Arrow and of the store as an OSError with the location and one sentence, without secrets."""
    from pyarrow import ArrowException

    try:
        yield
    except (OSError, ArrowException) as error:
        raise explain(error, location) from error


def explain(error: Exception, location: str) -> OSError:
    """FileNotFoundError, PermissionError, ConnectionError or OSError: `strerror` tells it, `filename` is where."""
    if isinstance(error, OSError) and (error.filename is not None or error.errno in _OF_THIS_MACHINE):
        return error  # told already, or of this machine's own disk
    text = str(error)
    match = _S3_ERROR.search(text)
    code = match["code"] if match else ""
    where = parse(location)
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), location)
    if code == "NO_SUCH_BUCKET" or "bucket does not exist" in text:
        return no_bucket(location)
    if "access token" in text:
        told = "no credentials for Google Cloud were found; set GOOGLE_APPLICATION_CREDENTIALS"
        return PermissionError(errno.EACCES, told, location)
    if code == "NETWORK_CONNECTION" or "CURL error" in text or "UNAVAILABLE" in text:
        said = _CURL.search(text)
        told = f"no connection{_at(where.store)}: {said['said'].strip() if said else _plain(text)}"
        return ConnectionError(errno.EHOSTUNREACH, told, location)
    if code in ("INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH", "EXPIRED_TOKEN", "INVALID_CLIENT_TOKEN_ID"):
        told = f"the credentials are refused{_at(where.store)}: {_said(text)}"
        return PermissionError(errno.EACCES, told, location)
    if code == "INTERNAL_FAILURE" and not _said(text) and not _has_credentials(where.store):
        code = "ACCESS_DENIED"
    if code == "ACCESS_DENIED" or "PERMISSION_DENIED" in text or "HTTP status 403" in text:
        return PermissionError(errno.EACCES, _denied(where.store, where.bucket), location)
    if code in ("PERMANENT_REDIRECT", "MOVED_PERMANENTLY") or "HTTP status 301" in text:
        told = f"bucket {where.bucket!r} is in another region; set AWS_REGION to it"
        return OSError(errno.EREMOTE, told, location)
    return OSError(errno.EIO, _said(text) or _plain(text), location)


def no_bucket(location: str) -> OSError:
    """Not a FileNotFoundError: nothing will arrive where there is no bucket."""
    where = parse(location)
    return OSError(errno.ENXIO, f"there is no bucket {where.bucket!r}{_at(where.store)}", location)


def _denied(store: str, bucket: str) -> str:
    if _has_credentials(store):
        return f"access is denied{_at(store)}: the credentials are wrong, or may not do that in bucket {bucket!r}"
    how = (
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
        if store == S3
        else "GOOGLE_APPLICATION_CREDENTIALS"
    )
    return f"access is denied{_at(store)}, and no credentials were found; set {how}"


def _has_credentials(store: str) -> bool:
    """True when some are named; those of a machine's own role are not seen here."""
    if store == GS:
        return "GOOGLE_APPLICATION_CREDENTIALS" in os.environ or "STORAGE_EMULATOR_HOST" in os.environ
    file = os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or os.path.expanduser("~/.aws/credentials")
    return any(os.environ.get(name) for name in _S3_CREDENTIALS) or os.path.exists(file)


def _at(store: str) -> str:
    endpoint = _s3_endpoint() if store == S3 else os.environ.get("STORAGE_EMULATOR_HOST")
    if endpoint is None:
        return ""
    scheme, separator, rest = endpoint.rpartition("://")
    return f" at {scheme}{separator}{rest.rpartition('@')[2]}"


def _said(text: str) -> str:
    found = _SAID.search(text)
    return _plain(found["said"]) if found else ""


def _plain(text: str) -> str:
    """One line, of a bearable length."""
    return " ".join(text.split())[:300]

"""Which addresses of repositories are taken: https, ssh and folders of this machine. Nothing that runs a command."""

import os
import re
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from opendataflow.errors import UsageError

LOCAL = ("127.0.0.1", "::1", "localhost")
_SCP = re.compile(r"(?P<user>[\w.+-]+@)?(?P<host>[\w.-]+):(?P<path>[^:].*)")
_BRANCH = re.compile(r"[\w][\w./+@#-]*")
_USER = re.compile(r"(?<=://)[^/\s@]+@")
MASK = "***"


class Remote(NamedTuple):
    """A repository's address, without any secret."""

    url: str
    protocol: str  # https | http | ssh | file
    host: str  # with its port
    username: str | None = None  # that the address named; of https only

    @property
    def name(self) -> str:
        """What the repository is called."""
        return self.url.rstrip("/").rpartition("/")[2].rpartition(":")[2].removesuffix(".git")


def read_remote(text: str) -> Remote:
    """The address, or UsageError that says what is wrong with it."""
    text = text.strip()
    if "::" in text.partition("/")[0]:
        raise UsageError(f"{masked(text)!r} names a helper of git's, which could run any command; give https or ssh")
    if not text or text.startswith("-") or any(ord(letter) < 33 for letter in text):
        raise UsageError(f"{text!r} is no address of a repository; give https://…, ssh://…, user@host:path or a folder")
    if "://" in text:
        return _of_url(text)
    scp = _SCP.fullmatch(text)
    if scp is not None and not os.path.exists(text):
        if scp["host"].startswith("-") or scp["path"].startswith("-"):
            raise UsageError(f"{text!r} is no address of a repository")
        return Remote(text, "ssh", scp["host"])
    path = os.path.abspath(os.path.expanduser(text))
    if not os.path.isdir(path):
        raise UsageError(f"there is no folder {path}; give https://…, ssh://…, user@host:path or a folder")
    return Remote(path, "file", "")


def _of_url(text: str) -> Remote:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"{masked(text)!r} is no address: {error}") from None
    host = (parts.hostname or "") + (f":{port}" if port else "")
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or not os.path.isdir(parts.path):
            raise UsageError(f"there is no folder {parts.path} on this machine")
        return Remote(text, "file", "")
    if parts.scheme not in ("https", "http", "ssh"):
        raise UsageError(f"{parts.scheme}:// is not taken; repositories are at https://, ssh:// or in a folder")
    if not parts.hostname or parts.hostname.startswith("-"):
        raise UsageError(f"{masked(text)!r} names no host")
    if parts.query or parts.fragment:
        raise UsageError(f"{masked(text)!r} has a query; the address of a repository has none")
    if parts.password:
        raise UsageError(
            "the address holds a password, which lists of processes and logs would show; leave it out, and give it in "
            "DATAFLOW_GIT_TOKEN or with --token-file"
        )
    if parts.scheme == "ssh":
        return Remote(text, "ssh", host)
    if parts.scheme == "http" and parts.hostname not in LOCAL:
        raise UsageError(f"http:// is not encrypted; use https://{host}{parts.path}")
    return Remote(f"{parts.scheme}://{host}{parts.path}", parts.scheme, host, parts.username)


def read_branch(text: str) -> str:
    wrong = not _BRANCH.fullmatch(text) or ".." in text or "//" in text or "@{" in text
    if wrong or text.endswith(("/", ".", ".lock")):
        raise UsageError(f"{text!r} is no name of a branch")
    return text


def masked(text: str, *secrets: str) -> str:
    """The text without these secrets, as they are or as a URL would write them, and without users in URLs."""
    for secret in secrets:
        for form in {secret, quote(secret), quote(secret, safe="")}:
            if form:
                text = text.replace(form, MASK)
    return _USER.sub(f"{MASK}@", text)

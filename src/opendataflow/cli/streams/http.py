"""Sending items to a server, as `stream send --url` does: again when it asks for that, never twice."""

import http.client
import json
import os
import time
from typing import Any
from urllib.parse import quote, urlsplit

from opendataflow.errors import DataflowError, UsageError
from opendataflow.intake.log import Accepted
from opendataflow.intake.schema import Items

TOKEN = "DATAFLOW_STREAM_TOKEN"  # noqa: S105  the name of a variable
_AGAIN = (429, 503, 507)
_TRIES = 30
_MOST_PAUSE = 10.0
_TIMEOUT = 60.0


class NotSent(DataflowError):
    """The server cannot be reached, or has no room; what it acknowledged stays."""

    exit_code = 75


class Sender:
    """A connection to a server's intake of one stream."""

    def __init__(self, url: str, project: str, slug: str) -> None:
        self.token = os.environ.get(TOKEN, "")
        if not self.token:
            raise UsageError(f"set {TOKEN} to the stream's token; `dataflow stream token {slug}` makes a new one")
        place = urlsplit(url)
        if place.scheme not in ("http", "https") or not place.hostname:
            raise UsageError(f"{url!r} is not the address of a server, like http://localhost:8321")
        kind = http.client.HTTPSConnection if place.scheme == "https" else http.client.HTTPConnection
        self.url, self.slug = url, slug
        self._path = f"{place.path.rstrip('/')}/v1/streams/{quote(project, safe='')}/{quote(slug, safe='')}"
        # With a port: of one without, the client takes what stands behind the last colon, also that of an IPv6 address.
        self._connection = kind(place.hostname, place.port or kind.default_port, timeout=_TIMEOUT)

    def send(self, items: Items, key: str) -> Accepted:
        """Send them until they are accepted; raises UsageError when they never will be, NotSent after many tries."""
        said = ""
        for attempt in range(_TRIES):
            try:
                status, told, pause = self._post(items, key)
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                said, pause = str(error) or type(error).__name__, 1.0
            else:
                if status == 202:
                    first = int(str(told["first"]).removeprefix(f"{self.slug}-"))
                    return Accepted(first, int(told["count"]), bool(told.get("repeated")))
                said = f"{status}: {told.get('detail', '')}"
                if status not in _AGAIN:
                    raise UsageError(f"{self.url} answered {said}")
            if attempt < _TRIES - 1:
                time.sleep(min(pause, _MOST_PAUSE))
        raise NotSent(f"{self.url} did not accept it in {_TRIES} tries: {said}")

    def _post(self, items: Items, key: str) -> tuple[int, dict[str, Any], float]:
        headers = {
            "Authorization": f"Bearer {self.token}", "Content-Type": "application/json", "Idempotency-Key": key,
        }  # fmt: skip
        self._connection.request("POST", self._path, items.data, headers)
        answer = self._connection.getresponse()
        text = answer.read()
        told = json.loads(text) if answer.headers.get_content_type().endswith("json") else {}
        pause = answer.headers.get("Retry-After", "")
        return answer.status, told, float(pause) if pause.isdecimal() else 1.0

    def close(self) -> None:
        self._connection.close()

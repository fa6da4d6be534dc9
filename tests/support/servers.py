"""A real `dataflow serve` over a project with streams, and a plain client of it."""

import http.client
import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from support.projects import DATAFLOW, Project

LEADS = """
name: crm
datasets:
  leads: {path: leads, format: parquet}
  few: {path: few, format: parquet}
  sent: {path: sent, format: parquet}
pipelines:
  - slug: leads
    mode: stream
    destination: leads
    transformations: []
    stream: {schema: {email: string, name: string, age: {type: int, required: false}}, body: 1MB, backlog: 1000000}
  - slug: few
    mode: stream
    destination: few
    stream: {schema: {email: string, name: string}, backlog: 5}
  - slug: sent
    mode: stream
    destination: sent
    stream: {schema: {email: string, name: string, age: {type: int, required: false}}}
"""


class Server:
    """A running server of a project; stopped by its own process id, at the latest at the end of a `with`."""

    def __init__(
        self,
        project: Project,
        port: int = 0,
        options: Sequence[str] = (),
        command: Sequence[str] = (DATAFLOW,),
        **env: str,
    ) -> None:
        self.project = project
        self.process = project.start(*command, "serve", "--port", str(port), "--json", *options, env=env)
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        assert said, self.process.communicate()[1]
        self.said: dict[str, Any] = json.loads(said)
        self.url: str = self.said["url"]
        self.port = urlsplit(self.url).port or 0

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.returncode is None:
            self.kill()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=90)

    def stop(self) -> tuple[int, str]:
        """Ask it to end; its exit code and what it said."""
        self.process.terminate()
        _, said = self.process.communicate(timeout=90)
        return self.process.returncode, said


class Client:
    """One connection that stays open."""

    def __init__(self, port: int, token: str | None, path: str = "/v1/streams/leads") -> None:
        self.token, self.path = token, path
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def post(self, body: bytes | str, *, path: str | None = None, **headers: str) -> tuple[int, dict[str, Any]]:
        """Status and JSON of the answer; headers with _ for -."""
        sent = {"content-type": "application/json"} | {name.replace("_", "-"): value for name, value in headers.items()}
        if self.token is not None:
            sent.setdefault("authorization", f"Bearer {self.token}")
        data = body.encode() if isinstance(body, str) else body
        try:
            self._connection.request("POST", path or self.path, data, sent)
            answer = self._connection.getresponse()
            text = answer.read()
        except BaseException:
            self.close()
            raise
        self.headers = answer.headers
        return answer.status, json.loads(text) if text else {}

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def new_token(project: Project, slug: str = "leads") -> str:
    """A token as the command prints it."""
    done = project.dataflow("stream", "token", slug)
    assert done.returncode == 0, done.stderr
    return str(done.stdout.split()[-1])

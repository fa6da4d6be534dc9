"""An S3 of our own: moto's server on a free port of this machine, in a process of its own, stopped by its id."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

from pyarrow import fs

BUCKET = "lake"
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class ObjectStore:
    """A running server with the bucket `lake`; `env` is what a command needs to reach it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.env = {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": "somebody",
            "AWS_SECRET_ACCESS_KEY": "hush-hush-hush",
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        self.system = fs.S3FileSystem(
            endpoint_override=url, access_key="somebody", secret_key="hush-hush-hush", region="us-east-1",
            allow_bucket_creation=True,
        )  # fmt: skip

    def empty(self) -> None:
        """Forget all objects and who is let in."""
        self._post("reset")
        self.let_in(everybody=True)
        self.system.create_dir(BUCKET)

    def let_in(self, *, everybody: bool) -> None:
        """Whether any credentials will do, or none will."""
        self._post("reset-auth", b"1000000000" if everybody else b"0")

    def _post(self, what: str, data: bytes = b"") -> None:
        request = urllib.request.Request(  # noqa: S310  our own server
            f"{self.url}/moto-api/{what}", data=data, method="POST", headers={"Content-Type": "text/plain"}
        )
        _OPENER.open(request, timeout=10).read()

    def forget_bucket(self) -> None:
        """Forget the bucket, and all that is in it."""
        self._post("reset")

    def put(self, key: str, text: str | bytes) -> None:
        with self.system.open_output_stream(f"{BUCKET}/{key}") as stream:
            stream.write(text.encode() if isinstance(text, str) else text)

    def text(self, key: str) -> str:
        with self.system.open_input_stream(f"{BUCKET}/{key}") as stream:
            return stream.read().decode()

    def keys(self, prefix: str = "") -> list[str]:
        """The names of all objects below a prefix."""
        listed = self.system.get_file_info(
            fs.FileSelector(f"{BUCKET}/{prefix}".rstrip("/"), recursive=True, allow_not_found=True)
        )
        return sorted(one.path.removeprefix(f"{BUCKET}/") for one in listed if one.type == fs.FileType.File)


@contextlib.contextmanager
def object_store() -> Iterator[ObjectStore]:
    port = free_port()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    server = subprocess.Popen(
        [sys.executable, "-P", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=kept,
    )  # fmt: skip
    try:
        url = f"http://127.0.0.1:{port}"
        _wait(server, url)
        yield ObjectStore(url)
    finally:
        server.kill()
        server.wait()


def _wait(server: subprocess.Popen[bytes], url: str) -> None:
    give_up = time.monotonic() + 60
    while True:
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            json.loads(_OPENER.open(f"{url}/moto-api/data.json", timeout=5).read())
            return
        assert server.poll() is None, "the server ended"
        assert time.monotonic() < give_up, "the server does not answer"
        time.sleep(0.1)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])

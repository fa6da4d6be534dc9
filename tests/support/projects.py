"""Projects in temporary folders, driven through the installed commands as a user would."""

import atexit
import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.drivers import VARIABLE
from support.quick import Forks

BIN = Path(sys.executable).parent
RUNJOB = str(BIN / "RunJob")
DATAFLOW = str(BIN / "dataflow")

_ENTRIES = {
    DATAFLOW: "from opendataflow.cli.main import end as main",
    RUNJOB: "from opendataflow.cli.runjob import main",
}


def with_settings(command: str, *settings: str) -> tuple[str, ...]:
    """The installed command, with other values in its modules: `execution.supervise.GRACE_SECONDS = 0.3`, for example.

    What takes seconds for people takes a moment here, and what must not happen in between has all the time it needs.
    """
    modules = {one.partition("=")[0].strip().rpartition(".")[0] for one in settings}
    lines = [f"import opendataflow.{name}" for name in sorted(modules)] + [f"opendataflow.{one}" for one in settings]
    return (sys.executable, "-P", "-c", "\n".join([*lines, _ENTRIES[command], "raise SystemExit(main())"]))


SUPERVISING = ("run", "tick", "validate", "worker", "serve", "stream run")


@functools.cache
def _forks() -> Forks:
    forks = Forks()
    atexit.register(forks.close)
    return forks


class Project:
    """A folder with a project.yml, and the commands run in it."""

    def __init__(self, folder: Path, store: str) -> None:
        self.folder = folder
        self.store = store
        folder.mkdir(parents=True, exist_ok=True)

    def write(self, path: str, text: str) -> Path:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def script(self, path: str, body: str) -> Path:
        """An executable bash script."""
        file = self.write(path, f"#!/bin/bash\n{body}\n")
        file.chmod(0o755)
        return file

    def env(self, **extra: str) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("DATAFLOW_", "PASSKEY")) or k == VARIABLE}
        return {**kept, "PATH": f"{BIN}:{kept['PATH']}", "DATAFLOW_STORE": self.store, "NO_COLOR": "1", **extra}

    def run(
        self, *argv: str | Path, env: dict[str, str] | None = None, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """A command to its end, output captured."""
        return subprocess.run(
            [str(part) for part in argv], cwd=options.pop("cwd", self.folder), env=self.env(**(env or {})),
            capture_output=True, text=True, timeout=options.pop("timeout", 120), **options,
        )  # fmt: skip

    def start(self, *argv: str | Path, env: dict[str, str] | None = None, **options: Any) -> subprocess.Popen[str]:
        """A command in the background, output captured."""
        return subprocess.Popen(
            [str(part) for part in argv], cwd=self.folder, env=self.env(**(env or {})), stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, **options,
        )  # fmt: skip

    def runjob(self, *argv: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
        return self.run(RUNJOB, *argv, **options)

    def dataflow(
        self, *argv: str, env: dict[str, str] | None = None, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        is_supervising = any(" ".join(argv[:number]) in SUPERVISING for number in (1, 2))
        is_quick = argv[:1] and not is_supervising and not any(name.startswith("PYTHON") for name in env or {})
        if is_quick and options.keys() <= {"cwd", "timeout", "input"}:
            done = _forks().run(
                [DATAFLOW, *argv], env=self.env(**(env or {})), cwd=str(options.get("cwd", self.folder)),
                given=options.get("input"), timeout=options.get("timeout", 120),
            )  # fmt: skip
            if done is not None:
                return done
        return self.run(DATAFLOW, *argv, env=env, **options)

    def apply(self, text: str) -> None:
        """Write project.yml and register it."""
        self.write("project.yml", text)
        done = self.dataflow("apply")
        assert done.returncode == 0, done.stderr

    def json(self, *argv: str, **options: Any) -> Any:
        """A command's --json output."""
        done = self.dataflow(*argv, "--json", **options)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """Direct SQL, as an operator's shell would run it."""
        if self.store.startswith("sqlite"):
            import sqlite3

            connection = sqlite3.connect(self.store.removeprefix("sqlite:///"), timeout=60)
            try:
                with connection:
                    return connection.execute(statement).fetchall()
            finally:
                connection.close()
        import psycopg

        with psycopg.connect(self.store) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def statuses(self, jobid: str) -> dict[str, str]:
        """dataid → status of a job, in the store's order."""
        return {row["dataid"]: row["status"] for row in self.json("status", jobid, "--limit", "100000")}

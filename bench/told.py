"""A process that stays and is told by lines of JSON what to do; it answers each with one line."""

import json
import subprocess
import sys
import tempfile
from typing import Any, Self


class Told:
    """`with Told("script.py", "loop") as process: process.ask(days=[…])["seconds"]`. Its noise is shown if it dies."""

    def __init__(self, *argv: str) -> None:
        self._noise = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed with the process
        self._process = subprocess.Popen(
            [sys.executable, *argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._noise, text=True
        )

    def ask(self, **order: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            self._noise.seek(0)
            sys.exit(f"the process that was measured ended:\n{self._noise.read()[-4000:]}")
        return dict(json.loads(answer))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.communicate()  # closes its input: it ends by itself
        self._noise.close()

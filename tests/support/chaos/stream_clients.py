"""The clients of a storm: processes that send, and their journals as these grow."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, BinaryIO

from support.chaos import client_process
from support.chaos.stream_plan import LINES, SINGLE, Request, text_of
from support.projects import Project


class Clients:
    """The processes that send, and their journals as these grow."""

    def __init__(self, project: Project, plans: dict[str, list[Request]], bad: set[tuple[str, int]], port: int) -> None:
        self._folder = project.folder / "clients"
        self._folder.mkdir()
        self._plans = plans
        self.accepted = 0  # items
        self._over = 0
        self._known: set[tuple[str, int]] = set()
        done = project.dataflow("stream", "token", "leads")
        assert done.returncode == 0, done.stderr
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._files: dict[str, BinaryIO] = {}
        self._rests = dict.fromkeys(plans, b"")
        for who, requests in plans.items():
            spec = {
                "port": port,
                "token": done.stdout.split()[-1],
                "requests": [_as_sent(who, one, bad) for one in requests],
            }
            given = self._folder / f"{who}.json"
            given.write_text(json.dumps(spec))
            self.journal(who).touch()
            self._files[who] = self.journal(who).open("rb")
            argv = [sys.executable, "-S", "-E", client_process.__file__, str(given), str(self.journal(who))]
            with self._said(who).open("wb") as said:
                self._processes[who] = subprocess.Popen(argv, cwd=project.folder, stdout=said, stderr=said)

    def journal(self, who: str) -> Path:
        return self._folder / f"{who}.journal"

    def _said(self, who: str) -> Path:
        return self._folder / f"{who}.log"

    def read(self) -> None:
        """Take in what they have written since."""
        for who, file in self._files.items():
            *lines, self._rests[who] = (self._rests[who] + file.read()).split(b"\n")
            for what, number, _, *more in map(json.loads, lines):
                self._over += what == "over"
                if what == "answered" and more[0] == 202 and (who, number) not in self._known:
                    self._known.add((who, number))
                    self.accepted += self._plans[who][number].length

    @property
    def are_over(self) -> bool:
        return self._over == len(self._plans)

    def stop(self) -> list[str]:
        """What was wrong with how they ended; what still runs is killed."""
        if not self.are_over:
            self.kill()
            return []
        problems = []
        for who, process in self._processes.items():
            code, said = process.wait(10), self._said(who).read_text()
            if code or said:
                problems.append(f"client {who} exited {code}: {said[-500:]}")
        return problems

    def kill(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()
        for file in self._files.values():
            file.close()


def _as_sent(who: str, request: Request, bad: set[tuple[str, int]]) -> dict[str, Any]:
    items = [
        {"client": who, "number": n, "text": text_of(who, n, is_bad=(who, n) in bad)} for n in request.numbers
    ]  # fmt: skip
    if request.form == SINGLE:
        (body,) = map(json.dumps, items)
    else:
        body = "\n".join(map(json.dumps, items)) if request.form == LINES else json.dumps(items, ensure_ascii=False)
    kind = "application/x-ndjson" if request.form == LINES else "application/json"
    return {"body": body, "type": kind, "key": request.key, "quirk": request.quirk}

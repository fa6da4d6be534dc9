"""A client of the intake in a process of its own; it starts quickly, with the standard library only.

    python client_process.py SPEC.json JOURNAL

It sends the requests of its spec one after the other, and appends to its journal before and after each step, one line
with one write: a client that would be killed leaves whole lines.
"""

import http.client
import json
import os
import sys
import time
from typing import Any

LATER = (408, 429, 503, 507)  # nothing was accepted
PAUSE_SECONDS = 0.05  # after a lost connection
LATER_SECONDS = 0.25
TIMEOUT_SECONDS = 60.0


class Client:
    def __init__(self, spec: dict[str, Any], journal: str) -> None:
        self._spec = spec
        self._journal = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._connection = http.client.HTTPConnection("127.0.0.1", spec["port"], timeout=TIMEOUT_SECONDS)

    def run(self) -> None:
        for number, request in enumerate(self._spec["requests"]):
            self._deal_with(number, request)
        self._note("over", -1)

    def _deal_with(self, number: int, request: dict[str, Any]) -> None:
        """Send it until it is answered; without a key, or with enough of it, until an answer is lost."""
        quirk, wants = request["quirk"], 1 + (request["quirk"] == "again")
        if quirk == "hangs up":
            self._hang_up(number, request)
        while wants:
            try:
                self._send(number, request)
                answer = self._connection.getresponse()
                told = json.loads(answer.read())
            except ConnectionRefusedError:  # nobody is there: nothing was sent
                self._close(number, "closed")
                continue
            except (OSError, http.client.HTTPException, ValueError) as error:
                self._close(number, "lost", type(error).__name__)
                if request["key"] is None or quirk == "gives up":
                    return
                continue
            self._note("answered", number, answer.status, told.get("first"), told.get("count"), "repeated" in told)
            if answer.status in LATER:
                time.sleep(LATER_SECONDS)
            elif answer.status == 202:
                wants -= 1
            else:
                return

    def _hang_up(self, number: int, request: dict[str, Any]) -> None:
        """Send it and do not wait for the answer."""
        try:
            self._send(number, request)
        except OSError:
            pass
        self._close(number, "lost", "hung up")

    def _send(self, number: int, request: dict[str, Any]) -> None:
        self._connection.connect() if self._connection.sock is None else None
        self._note("sent", number)
        headers = {"Authorization": f"Bearer {self._spec['token']}", "Content-Type": request["type"]}
        if request["key"] is not None:
            headers["Idempotency-Key"] = request["key"]
        self._connection.request("POST", "/v1/streams/leads", request["body"].encode(), headers)

    def _close(self, number: int, what: str, *more: object) -> None:
        self._note(what, number, *more)
        self._connection.close()
        time.sleep(PAUSE_SECONDS)

    def _note(self, what: str, number: int, *more: object) -> None:
        os.write(self._journal, (json.dumps([what, number, time.time(), *more]) + "\n").encode())


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        spec = json.load(file)
    Client(spec, sys.argv[2]).run()

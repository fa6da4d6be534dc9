"""A program for a zygote, as small as can be: its children run the Python code that they are given."""

import json
import os
import sys
from typing import Any

FAILS = os.environ.get("FAILS_FILE", "")  # code that is executed instead of an import
PREPARED = os.environ.get("PREPARED_FILE", "")
kept: list[str] = []  # a child that wrote to it would be seen by the next, if they were one process


def preload() -> list[str]:
    import decimal  # noqa: F401  as the real one imports pandas

    if FAILS and os.path.exists(FAILS):
        with open(FAILS, encoding="utf-8") as file:
            exec(file.read())  # noqa: S102  the test's own code
    return [FAILS] if FAILS else []


def prepare(what: Any) -> None:
    if PREPARED:
        with open(PREPARED, "a", encoding="utf-8") as file:
            file.write(json.dumps(what) + "\n")


def main(argv: list[str]) -> int:
    sys.stdout = open(1, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115
    names: dict[str, Any] = {"kept": kept, "answer": lambda **said: os.write(3, json.dumps(said).encode() + b"\n")}
    exec(argv[0], names)  # noqa: S102  the test's own code
    return int(names.get("code", 0))

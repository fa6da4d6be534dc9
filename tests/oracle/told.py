"""What an oracle tells: the chunks that a project must come to, value by value. No product code here."""

import csv
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

LONG_AGO_SECONDS = 3600.0


@dataclass(frozen=True, kw_only=True)
class Text:
    """A chunk that is this text, to the letter."""

    path: str  # below the project's folder, as all paths here
    text: str


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """A chunk in a CSV file, its rows in this order; where several lie in one file, in the order of their dataids."""

    path: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class Table:
    """A chunk of Parquet files: names and types of its columns (as Arrow says them), and its rows in any order."""

    path: str
    columns: dict[str, str]
    rows: list[tuple[object, ...]]


@dataclass(frozen=True, kw_only=True)
class Live:
    """A stream: the file of items that is sent, and the rows that they become, in however many chunks."""

    items: str
    dataset: str
    columns: dict[str, str]
    rows: list[tuple[object, ...]]


@dataclass(frozen=True, kw_only=True)
class Told:
    """A project that is laid out: what arrives, what is to be run on what, and what comes out."""

    jobs: dict[str, list[str]]  # job → dataids, producers first
    made: dict[tuple[str, str], Text | Sheet | Table]  # (dataset, dataid) → its chunk
    streams: dict[str, Live] = field(default_factory=dict)  # pipeline → what is sent
    arrive: list[list[str]] = field(default_factory=list)  # commands that take in what is there
    env: dict[str, str] = field(default_factory=dict)
    tools: tuple[str, ...] = ()  # programs that its scripts call, by which an outage catches them
    step: str = ""  # or the transformation in which it does


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A file that nobody has written to for a while, so that it counts as whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([columns, *rows])
    long_ago = time.time() - LONG_AGO_SECONDS
    os.utime(path, (long_ago, long_ago))


def with_env(told: Told, env: dict[str, str]) -> Told:
    return replace(told, env={**told.env, **env})

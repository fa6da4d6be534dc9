"""The work of a storm: extract → load over many shards, by scripts that start nothing and write a journal.

A line of the journal is appended with one write: what, job, dataid, run, pid, time, and more. Before it begins, a
script looks whether the script of an earlier run of its chunk still lives: the sharpest look at two owners there is.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from support.chaos.plan import Size
from support.projects import Project

JOBS = {"extract": "raw", "load": "loaded"}  # job → what it makes
_SALT = {"extract": 1, "load": 2}
RETRIES = 8
FAILED_WITH = 3
_PF_EXITING = 4

_PROJECT = """\
name: Storm
environments: {{dev: {{root: ./data}}}}
datasets:
  raw: {{path: "raw/{{dataid}}.txt", partitions: {{shards: 1..{chunks}}}}}
  loaded: {{path: "loaded/{{dataid}}.txt"}}
jobs:
  extract: {{script: jobs/extract.sh, outputs: [raw], {settings}}}
  load: {{script: jobs/load.sh, inputs: [raw], outputs: [loaded], {settings}}}
"""

# bash reads /proc, waits on a pipe that nobody writes to, and appends to files: it needs no child of its own.
_HEAD = """\
note() {{ echo "$1 $jobid $dataid $DATAFLOW_RUN_ID $$ $EPOCHREALTIME ${{*:2}}" >> journal; }}
read -r -a me < "/proc/$$/stat"
live="live/$jobid.$dataid"
if [[ -s $live ]] && read -r pid began run < "$live" && read -r -a other 2> /dev/null < "/proc/$pid/stat" \\
        && [[ ${{other[21]}} == "$began" && ${{other[2]}} != Z ]]; then
    pending=0
    while read -r name value; do
        [[ $name == *Pnd: ]] && (( pending |= 16#$value ))
    done 2> /dev/null < "/proc/$pid/status"
    note alive "$run" "$pid" "${{other[2]}}" "${{other[8]}}" "$pending"
fi
echo "$$ ${{me[21]}} $DATAFLOW_RUN_ID" > "$live"
note start
echo "run $DATAFLOW_RUN_ID of $jobid/$dataid: {noise}"
printf -v seconds '0.%03d' $(( RANDOM % {spread} + {least} ))
read -r -t "$seconds" <> pause
h=$(( dataid * 2654435761 + DATAFLOW_ATTEMPT * 40503 + {salt} * 97003 + {seed} ))
if (( (h ^ (h >> 15)) % 1000 < {per_mille} )); then
    note fail
    : > "$live"
    exit {code}
fi
"""
_BODY = {
    "extract": 'echo "$dataid $DATAFLOW_RUN_ID" > "$raw_location"\n',
    "load": """\
read -r of by < "$raw_location"
[[ $of == "$dataid" && -n $by ]] || note torn "$of" "$by"
echo "$dataid $DATAFLOW_RUN_ID $by" > "$loaded_location"
""",
}
_TAIL = 'note end\n: > "$live"\n'


def make(project: Project, size: Size, seed: int) -> None:
    """Register the two jobs and write their scripts."""
    most = sum(size.slots)
    settings = f"lease: {size.lease_seconds:g}s, concurrency: {most}, timeout: 10m, "
    settings += f"retries: {{max: {RETRIES}, backoff: 1s}}"
    for job in JOBS:
        least, longest = size.work_ms
        head = _HEAD.format(
            salt=_SALT[job], seed=seed % 1_000_003, per_mille=size.fail_percent * 10, code=FAILED_WITH, least=least,
            spread=longest - least, noise="." * 200,
        )  # fmt: skip
        project.script(f"jobs/{job}.sh", head + _BODY[job] + _TAIL)
    for name in ("live", "data", "data/raw", "data/loaded"):
        (project.folder / name).mkdir(exist_ok=True)
    os.mkfifo(project.folder / "pause")
    (project.folder / "journal").touch()
    project.apply(_PROJECT.format(chunks=size.chunks, settings=settings))


def failures_expected(size: Size, seed: int) -> int:
    """How many runs fail by themselves, as the scripts decide it: from the dataid and the attempt."""

    def fails(job: str, dataid: int, attempt: int) -> bool:
        h = dataid * 2654435761 + attempt * 40503 + _SALT[job] * 97003 + seed % 1_000_003
        return (h ^ (h >> 15)) % 1000 < size.fail_percent * 10

    found = 0
    for job in JOBS:
        for dataid in range(1, size.chunks + 1):
            attempt = 1
            while fails(job, dataid, attempt):
                attempt += 1
            assert attempt <= RETRIES, "a seed that the retries do not suffice for"
            found += attempt - 1
    return found


class Note(NamedTuple):
    """A line of the journal."""

    what: str  # start, end, fail, torn or alive
    job: str
    dataid: str
    runid: int
    pid: int
    at: float
    more: tuple[str, ...] = ()


class Journal:
    """Read as it grows: every line once."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._rest = b""
        self.notes: list[Note] = []
        self.ended = 0

    def read(self) -> None:
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        for line in lines:
            what, job, dataid, runid, pid, at, *more = line.decode().split()
            self.notes.append(Note(what, job, dataid, int(runid), int(pid), float(at), tuple(more)))
            self.ended += what == "end"

    def close(self) -> None:
        self._file.close()


def still_alive(notes: Iterable[Note]) -> list[Note]:
    """Where a script began while one of an earlier run of its chunk could still do something: not one that is dying."""

    def is_dying(note: Note) -> bool:
        _, _, _, flags, pending = note.more
        return bool(int(flags) & _PF_EXITING) or bool(int(pending) & 1 << 8)  # SIGKILL is on its way

    return [note for note in notes if note.what == "alive" and not is_dying(note)]

"""Files that arrive from outside: find them by the dataset's path, wait until they are whole, check them, READY.

One look costs a stat for each file that is READY already, and nothing in the store; only what is new is read.
"""

import json
import os
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any, NamedTuple

from opendataflow.checks.perform import check_chunk, with_checks
from opendataflow.domain.checks.check import Finding, checks_of, failures, passed, printable
from opendataflow.domain.chunk import ChunkStatus, Manifest
from opendataflow.domain.dataset import Dataset, chunk_location
from opendataflow.domain.partitions.path_template import (
    PLACEHOLDER,
    Fields,
    complete,
    fill,
    has_mark,
    is_settled,
    pattern_of,
    settle,
)
from opendataflow.domain.partitions.scheme import FULL, is_dataid, is_file_name, natural_key
from opendataflow.domain.runs.questions import CODES, Question
from opendataflow.errors import Refused, UsageError
from opendataflow.storage.files import Found, is_reachable, is_same, manifest_of, why_stale
from opendataflow.storage.folders import Folders, folders_of
from opendataflow.store.arrivals import (
    Known,
    earlier_rows,
    forget_rejection,
    known_chunks,
    list_problems,
    record_change,
    record_rejection,
)
from opendataflow.store.claims import LoopStore
from opendataflow.store.registry import assert_ready
from opendataflow.store.reports.check_results import record_findings

STABLE_SECONDS = 10.0  # where a dataset declares no `arrival:`


class State(StrEnum):
    READY = "READY"  # new: it was declared READY just now
    KNOWN = "known"  # READY since earlier, and still the same
    WAITING = "waiting"
    REJECTED = "rejected"
    CHANGED = "changed"  # READY since earlier, but no longer the same
    IGNORED = "ignored"  # its name tells no dataid of the scheme


class Arrival(NamedTuple):
    """What one look made of a file, or of a folder that could not be read (`dataid` is empty then)."""

    datasetid: str
    dataid: str
    state: State
    text: str = ""
    question: Question | None = None  # which of the five a rejection answers with no
    manifest: Manifest | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def code(self) -> str:
        return CODES[self.question][0] if self.question else ""

    @property
    def exit_code(self) -> int:
        return CODES[self.question][1] if self.question else 0


class _Candidate(NamedTuple):
    dataid: str
    path: str
    error: OSError | None = None


class _Stop(Exception):
    """An end of looking at a file, with what came of it."""

    def __init__(self, state: State, text: str, question: Question | None = None) -> None:
        super().__init__(text)
        self.state, self.text, self.question = state, text, question


def why_not(dataset: Dataset, root: str, producer: str | None) -> str:
    """Why files of this dataset cannot be found by a scan; empty when they can."""
    if dataset.location is None:
        return "has no path"
    if producer is not None:
        return f"is made by {producer}, which says itself when it is READY"
    if dataset.has_own_runs:
        return "has no {dataid} in its path"
    if not is_reachable(root):
        return f"lies at {root}, where files cannot be looked at from here"
    return ""


def scan_dataset(
    store: LoopStore, dataset: Dataset, root: str, *, now: float, dry_run: bool = False
) -> Iterator[Arrival]:
    """Look for the dataset's files, and declare READY those that arrived whole and pass their checks.

    With `dry_run` nothing is declared and no rejection is kept.
    """
    yield from _Scan(store, dataset, root, now, dry_run).run()


class _Scan:
    def __init__(self, store: LoopStore, dataset: Dataset, root: str, now: float, dry_run: bool) -> None:
        self.store, self.dataset, self.root, self.now, self.dry_run = store, dataset, root, now, dry_run
        self.folders = folders_of(root)
        self.arrival: dict[str, Any] = json.loads(dataset.definition or "{}").get("arrival") or {}

    def run(self) -> Iterator[Arrival]:
        candidates = []
        has_seen_all = not self.dry_run
        is_known_dataid = _membership(self.dataset)
        for one in find_candidates(self.dataset, self.root, self.folders):
            if not one.dataid:
                missing = isinstance(one.error, FileNotFoundError)
                has_seen_all &= missing
                text = f"{one.path} is not there" if missing else f"{one.path}: {_strerror(one.error)}"
                state, question = (State.WAITING, None) if missing else (State.REJECTED, Question.LOCATION)
                yield Arrival(self.dataset.datasetid, "", state, text, question)
            elif is_known_dataid(one.dataid):
                candidates.append(one)
            else:
                yield self._arrival(
                    one.dataid, State.IGNORED, f"{one.path} names no dataid of {self.dataset.datasetid}"
                )
        beside = {path for one in candidates for path in self._files_beside(one.dataid)}
        known = known_chunks(self.store, self.dataset) if candidates else {}
        for one in sorted(candidates, key=lambda one: natural_key(one.dataid)):
            if os.path.normpath(one.path) not in beside:
                yield self._look(one, known.get(one.dataid))
        if has_seen_all:
            self._forget_those_gone({one.dataid for one in candidates})

    def _forget_those_gone(self, there: set[str]) -> None:
        """A file that was rejected and is no longer there is no problem any more."""
        for problem in list_problems(self.store, project=self.dataset.project, datasetid=self.dataset.datasetid):
            if not problem.is_change and problem.dataid not in there:
                forget_rejection(self.store, problem)

    def _files_beside(self, dataid: str) -> Iterator[str]:
        """Markers and checksum files of a chunk, which are no chunks themselves."""
        templates = [self.arrival.get("done")]
        templates += [check.options["file"] for check in checks_of(self.dataset.definition) if check.kind == "checksum"]
        place = chunk_location(self.dataset, dataid, root=self.root) or ""
        for template in templates:
            if template:
                path = os.path.join(self.root, fill(template.replace("{path}", place), dataid, self.dataset.partitions))
                yield os.path.normpath(path)

    def _arrival(self, dataid: str, state: State, text: str, question: Question | None = None) -> Arrival:
        return Arrival(self.dataset.datasetid, dataid, state, printable(text), question)

    # One file, or one folder of files ---------------------------------------------------------------------------------
    def _look(self, one: _Candidate, known: Known | None) -> Arrival:
        try:
            if known is not None and known.status is ChunkStatus.READY:
                return self._compare(one, known)
            if known is not None and known.status in (ChunkStatus.RUNNING, ChunkStatus.HOLD):
                raise _Stop(State.WAITING, f"it is {known.status}")
            return self._take(one)
        except _Stop as stop:
            if stop.question is not None and stop.state is State.REJECTED and not self.dry_run:
                record_rejection(self.store, self.dataset, one.dataid, CODES[stop.question][0], printable(stop.text))
            return self._arrival(one.dataid, stop.state, stop.text, stop.question)

    def _compare(self, one: _Candidate, known: Known) -> Arrival:
        """A chunk that is READY: is it still what it was? It is never declared anew by itself."""
        if known.fingerprint is None or (known.location is not None and not _is_same_place(known.location, one.path)):
            return self._arrival(one.dataid, State.KNOWN, "asserted by its producer")
        found = self._files(one)
        try:
            same = is_same(one.path, found, known.fingerprint)
        except OSError as error:
            raise _Stop(State.REJECTED, f"{one.path}: {_strerror(error)}", Question.LOCATION) from error
        if same:
            if known.problem is not None and not self.dry_run:
                record_change(self.store, self.dataset, one.dataid, None)
            return self._arrival(one.dataid, State.KNOWN, "")
        if not self.dry_run:
            text = f"{CODES[Question.RIGHT][0]}: {one.path} changed after it was READY"
            record_change(self.store, self.dataset, one.dataid, printable(text))
        take = f"`dataflow ready {self.dataset.datasetid} {one.dataid}` takes it as it is now"
        return self._arrival(
            one.dataid,
            State.CHANGED,
            f"{one.path} changed after it was READY; if that is right, {take}",
            Question.RIGHT,
        )

    def _take(self, one: _Candidate) -> Arrival:
        found = self._files(one)
        self._wait_for_the_end(one, found)
        stale = why_stale(found, one.dataid)
        if stale:
            raise _Stop(State.REJECTED, stale, Question.RIGHT)
        place = chunk_location(self.dataset, one.dataid, root=self.root) or one.path
        try:
            manifest = manifest_of(place)
            checked = check_chunk(
                self.dataset, one.dataid, place, root=self.root, found_manifest=manifest, now=self.now,
                earlier_rows=earlier_rows(self.store, self.dataset, one.dataid),
            )  # fmt: skip
            if self._files(one) != found:
                raise _Stop(State.WAITING, "it changed while it was being looked at")
        except OSError as error:
            raise self._unreadable(one, error) from error
        manifest = with_checks(manifest, checked)
        seen = Arrival(self.dataset.datasetid, one.dataid, State.READY, "", None, manifest, checked.findings)
        if not passed(checked.findings):
            question, text = refusal_of(checked.findings), failures(checked.findings)
            if not self.dry_run:
                record_rejection(self.store, self.dataset, one.dataid, CODES[question][0], text)
                record_findings(self.store, self.dataset, one.dataid, None, checked.findings)
            return seen._replace(state=State.REJECTED, text=text, question=question)
        if not self.dry_run:
            try:
                assert_ready(self.store, self.dataset, one.dataid, manifest)
            except (Refused, UsageError) as error:
                raise _Stop(State.WAITING, str(error)) from error
            if checked.findings:
                record_findings(self.store, self.dataset, one.dataid, None, checked.findings)
        return seen

    def _files(self, one: _Candidate) -> Found:
        """Its files, all of them below the root and such as can be read to an end."""
        try:
            if one.error is not None:
                raise one.error
            found = self.folders.files(one.path)
            for name, _, _ in found.files:
                self._check_place(os.path.join(one.path, name) if name else one.path)
            if not found.files:
                self._check_place(one.path, is_folder=True)
        except OSError as error:
            raise self._unreadable(one, error) from error
        return found

    def _check_place(self, path: str, *, is_folder: bool = False) -> None:
        if problem := self.folders.problem(path, is_folder=is_folder):
            raise _Stop(State.REJECTED, problem, Question.LOCATION)

    def _unreadable(self, one: _Candidate, error: OSError) -> _Stop:
        if not isinstance(error, FileNotFoundError):
            return _Stop(State.REJECTED, f"{error.filename or one.path}: {_strerror(error)}", Question.LOCATION)
        if self.folders.leads_nowhere(one.path):
            return _Stop(State.REJECTED, f"{one.path} is a link that leads nowhere", Question.LOCATION)
        return _Stop(State.WAITING, "it went away while it was being looked at")

    def _is_done(self, marker: str) -> bool:
        try:
            return self.folders.is_there(marker) and not self.folders.leads_nowhere(marker)
        except OSError as error:
            raise _Stop(State.REJECTED, f"{marker}: {_strerror(error)}", Question.LOCATION) from error

    def _wait_for_the_end(self, one: _Candidate, found: Found) -> None:
        """Raise _Stop while somebody may still be writing."""
        if not found.files:
            raise _Stop(State.WAITING, "there is no file in it yet")
        if done := self.arrival.get("done"):
            marker = os.path.join(self.root, fill(done, one.dataid, self.dataset.partitions))
            if not self._is_done(marker):
                raise _Stop(State.WAITING, f"there is no {os.path.relpath(marker, self.root)} yet")
            return
        wanted = self.arrival.get("stable", STABLE_SECONDS)
        # A file that was moved in is as old as it was, its folder is not.
        newest = max(self.folders.changed_ns(one.path), *(changed for _, _, changed in found.files))
        age = self.now - newest / 1e9
        if age < 0:
            raise _Stop(State.WAITING, f"it was changed {-age:.0f} s in the future by this machine's clock")
        if age < wanted:
            raise _Stop(State.WAITING, f"it was changed {age:.0f} s ago, and must be stable for {wanted:g} s")


def refusal_of(findings: tuple[Finding, ...]) -> Question:
    """Rows of another slot are the wrong data; everything else that fails is not valid."""
    wrong = any(finding.failed and finding.check.startswith("partition ") for finding in findings)
    return Question.RIGHT if wrong else Question.VALID


def _membership(dataset: Dataset) -> Callable[[str], bool]:
    scheme = json.loads(dataset.partitions) if dataset.partitions is not None else None
    if scheme is None:
        return is_file_name
    if isinstance(scheme, dict) and "values" in scheme:
        return frozenset(scheme["values"]).__contains__
    return lambda dataid: is_dataid(scheme, dataid)


def _strerror(error: OSError | None) -> str:
    return "" if error is None else error.strerror or str(error)


def _is_same_place(one: str, other: str) -> bool:
    return os.path.normpath(one) == os.path.normpath(other)


# From the template to the files ---------------------------------------------------------------------------------------
def find_candidates(dataset: Dataset, root: str, folders: Folders | None = None) -> Iterator[_Candidate]:
    """What lies where the dataset's path points, with the dataid that its name tells.

    Only folders whose names the path leaves open are listed. A folder that cannot be is a candidate without dataid.
    """
    template = dataset.location or ""
    parts = [part for part in template.split("/") if part not in ("", ".")]
    fields: Fields = {} if has_mark(template) else {"dataid": FULL}
    yield from _walk(folders or folders_of(root), root, parts, fields, dataset.partitions)


def _walk(
    folders: Folders, folder: str, parts: list[str], fields: Fields, partitions: str | None
) -> Iterator[_Candidate]:
    if not parts:
        yield _Candidate(fields.get("dataid", ""), folder)
        return
    part, rest = parts[0], parts[1:]
    if is_settled(part, fields):
        path = os.path.join(folder, settle(part, fields))
        if "dataid" not in fields:
            yield from _walk(folders, path, rest, fields, partitions)
            return
        try:
            if not folders.is_there(path):
                return
        except OSError as error:
            yield _Candidate(fields["dataid"], path, error)
            return
        yield from _walk(folders, path, rest, fields, partitions)
        return
    try:
        names = list(folders.names(folder))
    except OSError as error:
        yield _Candidate("", folder, error)
        return
    name_of = pattern_of(part, fields)
    is_open = PLACEHOLDER.match(part) is not None
    for name in names:
        found = name_of.fullmatch(name)
        if found and not (name.startswith(("_", ".")) and is_open):
            told = complete({**fields, **found.groupdict()}, partitions)
            if told is not None:
                yield from _walk(folders, os.path.join(folder, name), rest, told, partitions)

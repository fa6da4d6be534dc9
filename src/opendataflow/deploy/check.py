"""Everything that is wrong with a version of a git project, before it is put in place; nothing is changed by looking.

Its files, project.yml as a whole, sources, scripts and transformations, whether the store can take what it declares,
and its unit tests: `dataflow validate` in a process of its own, which knows neither the store nor the passkey.
"""

import contextlib
import datetime
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from opendataflow.deploy.repository import Entry
from opendataflow.domain.checks.check import printable
from opendataflow.domain.dataset import is_below
from opendataflow.domain.registration import Registration
from opendataflow.domain.tables import find_table, sqlite_file
from opendataflow.domain.variables import without_platform_variables
from opendataflow.errors import ConfigurationError
from opendataflow.own_process import prctl
from opendataflow.project import PROJECT_FILE
from opendataflow.project.check import ERROR, Problem, check_project
from opendataflow.project.registration.load import load_registration, read_addresses
from opendataflow.project.version import base_of
from opendataflow.store.claims import LoopStore
from opendataflow.store.records.git import find_git_project, list_registered
from opendataflow.store.records.sources import bindings_of
from opendataflow.store.registry import plan

SUBMODULE, LINK = "160000", "120000"
UNIT_TEST_SECONDS = 3600.0
_LFS = b"version https://git-lfs.github.com/spec/"
_PR_SET_PDEATHSIG = 1
ROOTS = "DATAFLOW_GIT_ROOTS"  # folders, with colons, in which git projects may have data and databases

Beat = Callable[[str], None]


class Checked(NamedTuple):
    registration: Registration | None  # None: too much is wrong
    problems: list[Problem]

    @property
    def errors(self) -> list[Problem]:
        return [one for one in self.problems if one.severity == ERROR]


def check_version(
    store: LoopStore,
    folder: str,
    project: str,
    environment: str,
    *,
    files: Sequence[Problem],
    run_tests: bool,
    beat: Beat,
) -> Checked:
    """Look at all of it. `files` is what was wrong with the files themselves."""
    found = list(files)
    if not os.path.isfile(os.path.join(folder, PROJECT_FILE)):
        told = f"there is no {PROJECT_FILE} at the top of the repository"
        return Checked(None, [*found, _error(PROJECT_FILE, told, "`dataflow init` makes one; commit and push it")])
    beat("checks project.yml, sources and transformations")
    elsewhere, environment = _of_place(folder, project, environment)
    bound = bindings_of(store, project)
    found += [*elsewhere, *check_project(folder, environment, bound=bound)]
    registration = None
    with contextlib.suppress(ConfigurationError):
        registration = load_registration(folder, environment, bound=bound)
    if registration is not None:
        found += _of_paths(store, registration, folder)
        if not elsewhere:
            beat("compares with the store")
            found += _of_store(store, registration)
        if run_tests and _has_tests(registration):
            beat("runs the unit tests of its transformations")
            wrong = {one.file for one in found if one.severity == ERROR}
            tested = _unit_tests(folder, environment, beat)
            found += [one for one in tested if one.file not in wrong and os.path.exists(os.path.join(folder, one.file))]
    return Checked(registration, list(dict.fromkeys(found)))


def _error(file: str, message: str, next_step: str, line: int = 1) -> Problem:
    return Problem(severity=ERROR, file=printable(file), line=line, message=message, next_step=next_step)


# The files ------------------------------------------------------------------------------------------------------------
def check_files(folder: str, entries: Sequence[Entry]) -> list[Problem]:
    """What of the files cannot be taken over. Links that lead out of the folder are removed from it."""
    found = []
    for entry in entries:
        top = entry.path.partition("/")[0]
        if entry.mode == SUBMODULE:
            told = "is a submodule, and none is fetched: what it holds would be missing"
            found.append(_error(entry.path, told, "put its files into the repository, or install it as a package"))
        elif entry.mode == LINK and _leads_out(folder, entry.path):
            os.unlink(os.path.join(folder, entry.path))
            found.append(_error(entry.path, "is a link that leads out of the project", "commit the file itself"))
        elif _is_pointer(os.path.join(folder, entry.path)):
            told = "is a pointer of Git LFS; its content is not in the repository"
            found.append(_error(entry.path, told, "commit the file itself, or keep the data outside of the repository"))
        if top.lower() == ".dataflow" and not any(one.file == top for one in found):
            told = "is the folder in which OpenDataFlow keeps its own records; it may not be in the repository"
            found.append(_error(top, told, f"`git rm -r --cached {top}`, and add it to .gitignore"))
    own = os.path.join(folder, ".dataflow")
    if os.path.islink(own) or os.path.isfile(own):
        os.unlink(own)
    shutil.rmtree(own, ignore_errors=True)
    return found


def _leads_out(folder: str, path: str) -> bool:
    top = os.path.realpath(folder)
    return not os.path.realpath(os.path.join(folder, path)).startswith(f"{top}{os.sep}")


def _is_pointer(path: str) -> bool:
    try:
        if os.path.islink(path) or os.path.getsize(path) > 1024:
            return False
        with open(path, "rb") as file:
            return file.read(len(_LFS)) == _LFS
    except OSError:
        return False


# Where it is to go ----------------------------------------------------------------------------------------------------
def _of_place(folder: str, project: str, environment: str) -> tuple[list[Problem], str]:
    """Why it cannot go there; and an environment that it has, by which the rest can be looked at."""
    try:
        known = read_addresses(folder)
    except ConfigurationError:
        return [], environment  # check_project tells it, with its line
    found = []
    if known["project"] != project:
        told = f"the project's name has become {known['project']!r}, and it was added as {project!r}"
        step = f"give it the old name, or add it anew: `dataflow project add URL --name {known['project']}`"
        found.append(_error(PROJECT_FILE, told, step))
    if environment not in known["environments"]:
        told = f"it has no environment {environment!r}, which this store belongs to"
        step = f"it has {', '.join(known['environments'])}; add it under `environments:`"
        found.append(_error(PROJECT_FILE, told, step))
        environment = known["first"]
    return found, environment


def _of_paths(store: LoopStore, registration: Registration, folder: str) -> Iterator[Problem]:
    """Data, and databases that are files, which are neither below the project's own folder nor where git projects may
    have theirs: else `root: /` would publish any file of this machine, and the store's own."""
    allowed = [os.path.realpath(base_of(folder))]
    allowed += [os.path.realpath(one) for one in os.environ.get(ROOTS, "").split(os.pathsep) if os.path.isabs(one)]
    known = next((one for one in list_registered(store) if one.project == registration.project), None)
    if known is not None and "://" not in known.root:  # an operator has taken it over as it is
        allowed.append(os.path.realpath(known.root))
    step = f"give a path below the project's folder, or have the operator name it in {ROOTS}"
    if "://" not in registration.root and not _is_allowed(registration.root, allowed):
        yield _error(PROJECT_FILE, f"`root` is {registration.root}, which git projects may not use here", step)
        return
    for dataset in registration.datasets:
        table = find_table(dataset)
        file = sqlite_file(table.url, registration.root) if table is not None else None
        if table is not None and file is None and table.driver is not None:  # of a database in this process
            parts = urlsplit(table.url)
            file = parts.path if not parts.netloc and parts.path else None
        if file is not None and "://" not in file and not _is_allowed(file, allowed):
            told = f"dataset {dataset.datasetid}: `url` names {file}, which git projects may not use here"
            yield _error(PROJECT_FILE, told, step)


def _is_allowed(path: str, allowed: Sequence[str]) -> bool:
    real = os.path.realpath(path)
    return any(is_below(real, one) for one in allowed)


def _of_store(store: LoopStore, registration: Registration) -> list[Problem]:
    """What the store's other projects, or its own records, have against it."""
    known = next((one for one in list_registered(store) if one.project == registration.project), None)
    git = find_git_project(store, registration.project)
    if known is not None and (git is None or git.commit is None) and known.root != registration.root:
        told = f"project {known.project} is registered from {known.home} already, with its data below {known.root}"
        step = f"give that root in project.yml, as the whole path; else data would move to {registration.root}"
        return [_error(PROJECT_FILE, told, step)]
    try:
        plan(store, registration, now=datetime.datetime.now(datetime.UTC))
    except ConfigurationError as error:
        return [_error(PROJECT_FILE, line, "change this project or the other one; `dataflow project list` shows all")
                for line in str(error).splitlines()]  # fmt: skip
    return []


# Unit tests -----------------------------------------------------------------------------------------------------------
def _has_tests(registration: Registration) -> bool:
    return any(json.loads(job.definition).get("transformations") for job in registration.jobs if job.kind == "pipeline")


def _unit_tests(folder: str, environment: str, beat: Beat) -> list[Problem]:
    env = without_platform_variables(os.environ)
    env.pop("DATAFLOW_PROJECT", None)
    argv = [sys.executable, "-P", "-m", "opendataflow.cli.main", "validate", "--json"]

    def with_parent() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    with subprocess.Popen(
        argv, cwd=folder, env={**env, "DATAFLOW_ENV": environment, "PYTHONDONTWRITEBYTECODE": "1"}, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        preexec_fn=with_parent,  # noqa: PLW1509  this process has one thread
    ) as process:  # fmt: skip
        give_up = time.monotonic() + UNIT_TEST_SECONDS
        try:
            while True:
                try:
                    out, err = process.communicate(timeout=1.0)
                    break
                except subprocess.TimeoutExpired:
                    beat("")
                    if time.monotonic() > give_up:
                        told = f"the unit tests have not ended within {UNIT_TEST_SECONDS:g} s"
                        return [_error("pipelines", told, "`dataflow validate` in the project's folder shows them")]
        finally:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
    if process.returncode not in (0, 1):
        return [_error("pipelines", f"the unit tests could not be run: {_last(err)}", "`dataflow validate` shows why")]
    try:
        outcomes: list[dict[str, Any]] = json.loads(out)
    except ValueError:
        return [_error("pipelines", f"the unit tests gave no result: {_last(err)}", "`dataflow validate` shows why")]
    return [_of_outcome(one) for one in outcomes if one["status"] != "ok"]


def _of_outcome(outcome: dict[str, Any]) -> Problem:
    file, message = str(outcome["file"]), str(outcome["message"])
    line, _, rest = message.removeprefix(f"{file}:").partition(": ")
    text = rest if line.isdecimal() else message.removeprefix(f"{file}: ")
    differences = [_difference(one) for one in outcome["differences"][:3]]
    told = " · ".join([f"its unit test failed: {text}", *differences])
    step = f"`dataflow validate {outcome['id']}` shows all of it"
    return _error(file, told, step, int(line) if line.isdecimal() else 1)


def _difference(one: dict[str, Any]) -> str:
    if one["row"] is not None and one["column"] is not None:
        return f"row {one['row']}, column {one['column']}: expected {one['expected']}, got {one['got']}"
    return ", ".join(f"{value}" for value in one.values() if value not in (None, ""))


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"

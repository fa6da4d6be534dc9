"""`dataflow doctor`: look at everything that a run needs, and say what would fix what is wrong.

It changes nothing but the modes of our own files that others can read.
"""

import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

from opendataflow.domain.registration import Registration
from opendataflow.domain.tables import find_table
from opendataflow.domain.words import number_of
from opendataflow.errors import DataflowError
from opendataflow.execution.session import own_name
from opendataflow.operations import host_checks as machine
from opendataflow.operations.close_files import close_files
from opendataflow.operations.host_checks import OK, PROBLEM, WARNING, Finding, some
from opendataflow.project.address import Address, get_address
from opendataflow.storage.buckets.address import is_in_bucket
from opendataflow.store import open_store
from opendataflow.store.claims import LoopStore
from opendataflow.store.open import SCHEMA_VERSION

__all__ = ["OK", "PROBLEM", "WARNING", "Finding", "examine"]
CLOCK_SECONDS = 2.0
SHOWN = 5


def examine(folder: str) -> Iterator[Finding]:
    """Every check for a command started in this folder; one that cannot be made does not stop the others."""
    yield machine.python()
    address = wanted = None
    try:
        address = get_address(folder, remember=False)
    except DataflowError as error:
        yield Finding("project", PROBLEM, str(error))
    if address is not None:
        yield from close_files(address)  # before anything opens the store, which would do some of it silently
    if address is not None and address.home is not None:
        try:
            wanted = _declared(address)
            jobs = f"{number_of(len(wanted.datasets), 'dataset')}, {number_of(len(wanted.jobs), 'job')}"
            yield Finding("project", OK, f"{address.home}/project.yml, environment {address.environment}: {jobs}")
        except DataflowError as error:
            yield Finding("project", PROBLEM, str(error), "mend project.yml")
    has_pipelines = wanted is not None and any(job.kind == "pipeline" for job in wanted.jobs)
    yield machine.packages(_modules(address, wanted))
    yield machine.java(needed=has_pipelines)
    if has_pipelines:
        yield from machine.spark()
    if wanted is not None:
        yield _scripts(wanted)
        yield _transformations(wanted)
        yield from _places(wanted)
    if address is not None:
        yield from _work_folder(address)
        yield from _store_file(address)
        yield from _store(address, wanted)


def _declared(address: Address) -> Registration:
    from opendataflow.project.registration.load import load_registration

    return load_registration(address.home or "", address.environment or "", bound=_bound(address))


def _bound(address: Address) -> dict[str, dict[str, Any]]:
    """What was bound in the store; what is wrong with that one is told further down."""
    from opendataflow.store.records.sources import bindings_of

    try:
        store = open_store(address.store, actor="doctor", here=address.here)
    except DataflowError:
        return {}
    try:
        return bindings_of(store, address.project or "")
    finally:
        store.close()


def _modules(address: Address | None, wanted: Registration | None) -> list[str]:
    """What of the extras this project and its store need."""
    needed = ["psycopg"] if address is not None and address.store.startswith(("postgresql://", "postgres://")) else []
    if wanted is None:
        return needed
    if any(job.kind == "pipeline" for job in wanted.jobs):
        needed += ["pyspark", "pandas", "pyarrow"]
    if is_in_bucket(wanted.root) or any('"checks"' in (one.definition or "") for one in wanted.datasets):
        needed.append("pyarrow")
    schemes = {table.scheme for one in wanted.datasets if (table := find_table(one)) is not None}
    for scheme, module in (
        ("postgresql", "adbc_driver_postgresql"), ("postgres", "adbc_driver_postgresql"),
        ("sqlite", "adbc_driver_sqlite"), ("bigquery", "adbc_driver_bigquery"),
    ):  # fmt: skip
        if scheme in schemes:
            needed += ["adbc_driver_manager", module]
    return list(dict.fromkeys(needed))


# Places -------------------------------------------------------------------------------------------------------------
def _places(wanted: Registration) -> Iterator[Finding]:
    if is_in_bucket(wanted.root):
        yield _bucket(wanted.root)
    elif "://" in wanted.root:
        yield Finding("root", OK, f"{wanted.root} is not on this machine's disks; it is looked at before each run")
    else:
        yield from machine.writable("root", wanted.root)


def _bucket(root: str) -> Finding:
    from opendataflow.storage.buckets.address import parse
    from opendataflow.storage.buckets.connect import no_bucket
    from opendataflow.storage.buckets.files import is_there

    where = parse(root)
    try:
        if not is_there(f"{root.partition('://')[0]}://{where.bucket}"):
            raise no_bucket(root)
    except OSError as error:
        return Finding("root", PROBLEM, f"{root}: {error.strerror or error}", "see docs/how-to/object-stores.md")
    return Finding("root", OK, f"{root}: the bucket answers")


def _work_folder(address: Address) -> Iterator[Finding]:
    yield from machine.writable("logs", address.work)
    kept = os.path.join(address.work, "unreported")
    names = [name for name in os.listdir(kept) if name.endswith(".json")] if os.path.isdir(kept) else []
    if names:
        yield Finding(
            "endings", WARNING, f"{len(names)} runs ended while the store was away", "the next run here records them"
        )


# The project --------------------------------------------------------------------------------------------------------
def _scripts(wanted: Registration) -> Finding:
    missing, closed = [], []
    for job in wanted.jobs:
        if job.kind == "script" and job.script is not None:
            path = os.path.join(wanted.home, job.script)
            if not os.path.isfile(path):
                missing.append(path)
            elif not os.access(path, os.X_OK):
                closed.append(path)
    if missing:
        return Finding("scripts", PROBLEM, f"not there: {some(missing)}", "put them there, or mend project.yml")
    if closed:
        return Finding("scripts", PROBLEM, f"not executable: {some(closed)}", f"chmod +x {' '.join(closed[:SHOWN])}")
    return Finding("scripts", OK, "every script is there and executable")


def _transformations(wanted: Registration) -> Finding:
    missing = []
    for job in wanted.jobs:
        if job.kind == "pipeline":
            for name in json.loads(job.definition).get("transformations") or []:
                path = os.path.join(wanted.home, "pipelines", job.jobid, f"{str(name).removesuffix('.py')}.py")
                if not os.path.isfile(path):
                    missing.append(path)
    if missing:
        return Finding("pipelines", PROBLEM, f"not there: {some(missing)}", "write them, or mend project.yml")
    return Finding("pipelines", OK, "every transformation is there")


# The store ----------------------------------------------------------------------------------------------------------
def _store_file(address: Address) -> Iterator[Finding]:
    """A SQLite store: its folder takes the journal beside it, and locks work only on a disk of this machine."""
    if not address.store.startswith("sqlite:///"):
        return
    path = address.store.removeprefix("sqlite:///")
    yield from machine.writable("store's disk", os.path.dirname(path) or ".")
    if os.path.exists(path) and not os.access(path, os.W_OK):
        yield Finding("store's file", PROBLEM, f"{path} cannot be written by this user", f"chown or chmod {path}")
    kind = machine.file_system(path)
    if kind in machine.ON_A_NETWORK:
        told = f"{path} is on a network file system ({kind}), where SQLite's locks cannot be relied on"
        yield Finding(
            "store's file", WARNING, told, "use a local disk, or `store: postgresql://…` for several machines"
        )


def _store(address: Address, wanted: Registration | None) -> Iterator[Finding]:
    try:
        store = open_store(address.store, actor=own_name(), check=False, here=address.here)
    except DataflowError as error:
        yield Finding("store", PROBLEM, str(error))
        return
    looks: dict[str, Callable[[], Finding]] = {
        "store": lambda: _schema(store),
        "environment": lambda: _environment(store, address),
        "latency": lambda: _latency(store),
        "clock": lambda: _clock(store),
        "leases": lambda: _leases(store, address.project),
        "credentials": lambda: _credentials(store, address.project),
        "applied": lambda: _applied(store, wanted),
        "root's marker": lambda: _marker(store, wanted),
        "counters and locks": lambda: _sound(store),
    }
    for check, look in looks.items():
        try:
            yield look()
        except DataflowError as error:
            yield Finding(check, PROBLEM, str(error))
            if check == "store":
                break  # another schema: nothing more can be asked
    store.close()


def _schema(store: LoopStore) -> Finding:
    store.check_schema(SCHEMA_VERSION)
    return Finding("store", OK, f"{store.url}, schema {SCHEMA_VERSION}")


def _environment(store: LoopStore, address: Address) -> Finding:
    if address.environment is not None:
        store.check_environment(address.environment)
    return Finding("environment", OK, f"the store belongs to environment {store.environment!r}")


def _latency(store: LoopStore) -> Finding:
    times = []
    for _ in range(5):
        started = time.perf_counter()
        store.read("get_store", {})
        times.append(time.perf_counter() - started)
    return Finding("latency", OK, f"a read takes {statistics.median(times) * 1000:.1f} ms")


def _clock(store: LoopStore) -> Finding:
    from opendataflow.store.operations import clock_ahead_seconds

    ahead = clock_ahead_seconds(store)
    told = f"the store's clock is {abs(ahead):.1f} s {'ahead of' if ahead > 0 else 'behind'} this machine's"
    if abs(ahead) > CLOCK_SECONDS:
        return Finding("clock", WARNING, told, "let both keep time with NTP: slots begin by this machine's clock")
    return Finding("clock", OK, told)


def _leases(store: LoopStore, project: str | None) -> Finding:
    from opendataflow.store.operations import expired_leases

    found = expired_leases(store, project=project)
    if not found:
        return Finding("leases", OK, "no lease has run out")
    named = some([f"{one['jobid']}/{one['dataid']} ({one['owner']})" for one in found])
    fix = f"the next run of any job takes them back: `dataflow run {found[0]['jobid']}`"
    return Finding("leases", WARNING, f"ran out: {named}", fix)


def _credentials(store: LoopStore, project: str | None) -> Finding:
    from opendataflow.project.secrets import decrypt, find_passkey, others_can_read
    from opendataflow.store.operations import get_project

    of = {"project": get_project(store, project)}
    rows = store.read("credentials_of", of, file="credentials")
    file = os.environ.get("DATAFLOW_PASSKEY_FILE")
    if not rows:
        return Finding("credentials", OK, "no dataset has one")
    passkey = find_passkey()
    if passkey is None:
        told = f"{len(rows)} are encrypted, and no passkey is given"
        return Finding("credentials", PROBLEM, told, "set DATAFLOW_PASSKEY or DATAFLOW_PASSKEY_FILE")
    wrong = [str(datasetid) for datasetid, text in rows if not _opens(text, passkey, decrypt)]
    if wrong:
        told = f"the passkey does not open those of {some(wrong)}"
        return Finding("credentials", PROBLEM, told, "give the passkey they were encrypted with")
    if file and others_can_read(file):
        return Finding("credentials", WARNING, f"others can read the passkey file {file}", f"chmod 600 {file}")
    return Finding("credentials", OK, f"the passkey opens all {len(rows)}")


def _opens(text: str, passkey: str, decrypt: Callable[[str, str], str]) -> bool:
    try:
        decrypt(text, passkey)
    except DataflowError:
        return False
    return True


def _applied(store: LoopStore, wanted: Registration | None) -> Finding:
    from opendataflow.store.operations import not_applied

    if wanted is None:
        return Finding("applied", OK, "there is no project.yml to compare with")
    found = not_applied(store, wanted)
    if found:
        return Finding("applied", WARNING, f"the store has otherwise: {some(found)}", "`dataflow apply`")
    return Finding("applied", OK, "the store has what project.yml declares")


def _marker(store: LoopStore, wanted: Registration | None) -> Finding:
    """Whether the data below the root are this store's."""
    from opendataflow.execution.root_marker import find_problem, read_marker

    if wanted is None:
        return Finding("root's marker", OK, "there is no project.yml, so no root is looked at")
    problem = find_problem(wanted.project, wanted.home, wanted.root, store.get_mark(wanted.project, wanted.root))
    if problem:
        return Finding("root's marker", PROBLEM, problem, "`dataflow apply --move`, once the data are there")
    is_marked = "://" not in wanted.root and read_marker(wanted.root) is not None
    told = "the data below the root are this store's" if is_marked else "the first run marks the root"
    return Finding("root's marker", OK, told)


def _sound(store: LoopStore) -> Finding:
    from opendataflow.store.registry import check

    found = check(store, repair=False)
    if found:
        return Finding("counters and locks", PROBLEM, some(found), "`dataflow db check --repair`")
    return Finding("counters and locks", OK, "as the chunks are")

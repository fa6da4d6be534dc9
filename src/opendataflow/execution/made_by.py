"""What makes a job's data, as two digests: its own code files and definition, and the checks of its outputs."""

import json
import os
from collections.abc import Iterable
from typing import NamedTuple

from opendataflow.domain.job import Job
from opendataflow.store.claims import LoopStore

# Keys of a definition that say when, where and how many at once, not what comes out.
_OTHERWISE = frozenset(
    {"at_once", "brake", "checks", "chunks_per_job", "give_up_on", "notify", "on_change", "profile", "retry_on",
     "rowwise", "spark"}
)  # fmt: skip
_known: dict[tuple[str, str], tuple[object, "MadeBy"]] = {}


class MadeBy(NamedTuple):
    code: str | None  # None: not known, or not the same thing for every chunk
    checks: str | None


UNKNOWN = MadeBy(None, None)


def record_jobs(store: LoopStore, jobs: Iterable[Job]) -> None:
    """Record what makes the data of these jobs now, where this host has their files; older data of theirs is stale."""
    from opendataflow.store.stale import record_codes

    found = [(job.project, job.jobid, *made_by(job)) for job in jobs]
    if any(one[2] is not None for one in found):
        record_codes(store, [one for one in found if one[2] is not None])


def made_by(job: Job, script: str | None = None) -> MadeBy:
    """What makes the data of this job now; `script` is the file that is run. Unknown where that is another than the
    job's own, or not there.

    Files are read again only when their size or time changed.
    """
    if not job.outputs or "stream" in job.definition:
        return UNKNOWN
    try:
        files = [(path, seen.st_ino, seen.st_size, seen.st_mtime_ns) for path, seen in _seen(_files(job, script))]
    except OSError:
        return UNKNOWN
    if job.kind == "script" and not files:
        return UNKNOWN
    key, now = (job.project, job.jobid), (job, files)
    known = _known.get(key)
    if known is not None and known[0] == now:
        return known[1]
    try:
        found = MadeBy(_digest([_definition(job), *(_read(path) for path, *_ in files)]), _digest([_checks(job)]))
    except OSError:
        return UNKNOWN
    _known[key] = (now, found)
    return found


def _files(job: Job, script: str | None) -> list[str]:
    if job.kind == "script":
        own = os.path.join(job.home, job.script) if job.script is not None else script
        if own is None or (script is not None and script != own and not os.path.samefile(script, own)):
            return []
        return [own]
    names = job.definition.get("transformations")
    folder = os.path.join(job.home, "pipelines", job.jobid)
    return [os.path.join(folder, f"{str(name).removesuffix('.py')}.py") for name in names or []]  # type: ignore[attr-defined]


def _seen(paths: list[str]) -> Iterable[tuple[str, os.stat_result]]:
    return ((path, os.stat(path)) for path in paths)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _definition(job: Job) -> bytes:
    spark = job.definition.get("spark")
    fixed = {
        "definition": {name: value for name, value in job.definition.items() if name not in _OTHERWISE},
        "conf": spark.get("conf") if isinstance(spark, dict) else None,
        "inputs": sorted([*link.dataset[:2], link.map] for link in job.inputs),
        "outputs": sorted([*link.dataset[:2], link.dataset.format] for link in job.outputs),
    }
    return json.dumps(fixed, sort_keys=True, default=str).encode()


def _checks(job: Job) -> bytes:
    declared = [[link.dataset.datasetid, _checks_of(link.dataset.definition)] for link in job.outputs]
    return json.dumps([job.definition.get("checks"), sorted(declared)], sort_keys=True, default=str).encode()


def _checks_of(definition: str | None) -> object:
    return json.loads(definition).get("checks") if definition is not None and '"checks"' in definition else None


def _digest(parts: list[bytes]) -> str:
    import hashlib

    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "big") + part)
    return found.hexdigest()[:32]

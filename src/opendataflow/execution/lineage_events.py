"""OpenLineage events of runs: START, and COMPLETE, FAIL or ABORT, with what was read and written.

Nothing here may fail or delay a run. An event is one line appended to a queue beside the logs; a process of its own
sends what is there, and what it cannot send stays for the next one. A queue that is full takes no more. With a file as
the target, the line goes there.
"""

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from opendataflow import __version__
from opendataflow.domain.chunk import ChunkKey, Manifest
from opendataflow.domain.job import Candidate, Job
from opendataflow.domain.partitions.scheme import slot_of
from opendataflow.domain.runs.run import Claim, Ending, Result
from opendataflow.private_files import make_folder, opener
from opendataflow.store.claims import LoopStore

PRODUCER = f"https://github.com/opendataflow/opendataflow/tree/v{__version__}"
SPEC = "https://openlineage.io/spec"
RUN_EVENT = f"{SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent"
ENDPOINT = "api/v1/lineage"
NAMESPACE = "opendataflow"
QUEUE_BYTES = 32 * 1024 * 1024
INPUTS = 200  # chunks of one run that are named; a rollup of a year is fine
_ENDS = {
    Ending.COMPLETE: "COMPLETE", Ending.FAILED: "FAIL", Ending.GIVEN_UP: "FAIL", Ending.DIED: "FAIL",
    Ending.HANDED_BACK: "ABORT", Ending.ABORTED: "ABORT",
}  # fmt: skip
_RUNS = uuid.UUID("6f9f7a44-6c3c-5d5e-9a52-0c5f4f1f6d10")


class Target(NamedTuple):
    """Where events go: an HTTP endpoint, or a file."""

    url: str | None
    file: str | None
    namespace: str


def find_target(environ: Mapping[str, str], declared: Mapping[str, Any] | None) -> Target | None:
    """The target that OpenLineage's own variables name, or else project.yml; None when there is none."""
    if environ.get("OPENLINEAGE_DISABLED", "").lower() in ("1", "true"):
        return None
    said = declared or {}
    transport = {
        name.removeprefix("OPENLINEAGE__TRANSPORT__").lower(): value
        for name, value in environ.items()
        if name.startswith("OPENLINEAGE__TRANSPORT__")
    }
    url = environ.get("OPENLINEAGE_URL") or transport.get("url")
    file = transport.get("log_file_path") if transport.get("type") == "file" else None
    if not url and not file:
        url, file = said.get("url"), said.get("file")
    if not url and not file:
        return None
    endpoint = environ.get("OPENLINEAGE_ENDPOINT") or transport.get("endpoint") or said.get("endpoint") or ENDPOINT
    whole = f"{url.rstrip('/')}/{endpoint.lstrip('/')}" if url else None
    return Target(whole, file, environ.get("OPENLINEAGE_NAMESPACE") or said.get("namespace") or NAMESPACE)


def open_lineage(
    store: LoopStore, declared: Mapping[str, Any] | None, *, work_folder: str, say: Callable[[str], None]
) -> "Lineage | None":
    """What a runner tells its runs to; None where nobody wants to know."""
    target = find_target(os.environ, declared)
    return None if target is None else Lineage(store, target, work_folder=work_folder, say=say)


class Lineage:
    """The events of one runner's runs."""

    def __init__(self, store: LoopStore, target: Target, *, work_folder: str, say: Callable[[str], None]) -> None:
        self._store, self._target, self._say = store, target, say
        self._folder = os.path.join(work_folder, "openlineage")
        self._live: dict[int, tuple[Job, Candidate]] = {}
        self._has_complained = False
        self._sender: subprocess.Popen[bytes] | None = None

    def started(self, job: Job, candidate: Candidate, claim: Claim) -> None:
        """A run begins."""
        self._live[claim.runid] = (job, candidate)
        with self._harmless():
            self._tell("START", claim, {}, job, candidate, ())

    def ended(self, claim: Claim, result: Result | None) -> None:
        """A run has ended; None: nobody knows how, another may have the work."""
        job, candidate = self._live.pop(claim.runid, (None, None))
        if job is None or candidate is None:
            return
        with self._harmless():
            if result is None:
                self._tell("ABORT", claim, {}, job, candidate, ())
                return
            facets = {}
            if result.ending is not Ending.COMPLETE:
                facets["errorMessage"] = _facet(
                    "facets/1-0-1/ErrorMessageRunFacet.json", message=result.message or str(result.ending),
                    programmingLanguage="sh" if job.kind == "script" else "python",
                )  # fmt: skip
            self._tell(_ENDS[result.ending], claim, facets, job, candidate, result.manifests)

    @contextlib.contextmanager
    def _harmless(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001  a lineage that cannot be told never fails a run
            if not self._has_complained:
                self._has_complained = True
                self._say(f"OpenLineage: events are not kept: {type(error).__name__}: {error}")

    def _tell(
        self, kind: str, claim: Claim, facets: dict[str, Any], job: Job, candidate: Candidate,
        manifests: tuple[tuple[str, str, Manifest], ...],
    ) -> None:  # fmt: skip
        written = {(project, datasetid): manifest for project, datasetid, manifest in manifests}
        outputs = []
        for link in job.outputs:
            key = ChunkKey(link.dataset.project, link.dataset.datasetid, claim.dataid)
            outputs.append(self._output(key, written.get(key[:2]), claim.runid))
        event = {
            "eventType": kind,
            "eventTime": _now(),
            "producer": PRODUCER,
            "schemaURL": RUN_EVENT,
            "run": {"runId": run_uuid(self._store.store_id, claim.runid), "facets": self._run_facets(claim) | facets},
            "job": {
                "namespace": self._target.namespace,
                "name": f"{job.project}.{job.jobid}",
                "facets": {
                    "jobType": _facet(
                        "facets/2-0-3/JobTypeJobFacet.json", processingType="BATCH", integration="OPENDATAFLOW",
                        jobType=job.kind.upper(),
                    ),
                },
            },
            "inputs": [self._input(chunk.key, chunk.version) for chunk in candidate.inputs[:INPUTS]],
            "outputs": outputs,
        }  # fmt: skip
        self._keep(json.dumps(event, ensure_ascii=False))

    def _run_facets(self, claim: Claim) -> dict[str, Any]:
        facets = {"opendataflow_run": _own_facet(runid=claim.runid, dataid=claim.dataid, attempt=claim.attempt)}
        slot = slot_of(claim.dataid, None)
        if slot is not None:
            start, end = (moment.isoformat().replace("+00:00", "Z") for moment in slot)
            facets["nominalTime"] = _facet(
                "facets/1-0-1/NominalTimeRunFacet.json", nominalStartTime=start, nominalEndTime=end
            )
        return facets

    def _input(self, key: ChunkKey, version: int | None) -> dict[str, Any]:
        of_chunk = {"project": key.project, "datasetid": key.datasetid, "dataid": key.dataid}
        found = self._store.read("chunk", of_chunk, file="published")
        rows, size, schema = (found[0][3], found[0][4], found[0][8]) if found else (None, None, None)
        dataset = self._dataset(key, version, schema)
        if rows is not None or size is not None:
            dataset["inputFacets"] = {
                "inputStatistics": _facet(
                    "facets/1-0-0/InputStatisticsInputDatasetFacet.json", **_known(rowCount=rows, size=size)
                )
            }
        return dataset

    def _output(self, key: ChunkKey, manifest: Manifest | None, version: int) -> dict[str, Any]:
        if manifest is None:
            return self._dataset(key, None, None)
        dataset = self._dataset(key, version, manifest.schema)
        told = _known(rowCount=manifest.rows, size=manifest.bytes, fileCount=manifest.files)
        if told:
            dataset["outputFacets"] = {
                "outputStatistics": _facet("facets/1-0-2/OutputStatisticsOutputDatasetFacet.json", **told)
            }
        return dataset

    def _dataset(self, key: ChunkKey, version: int | None, schema: str | None) -> dict[str, Any]:
        facets = {"opendataflow_chunk": _own_facet(dataid=key.dataid, **_known(version=version))}
        if version is not None:
            facets["version"] = _facet(
                "facets/1-0-1/DatasetVersionDatasetFacet.json", datasetVersion=f"{key.dataid}@{version}"
            )
        if schema:
            columns = json.loads(schema)
            fields = [{"name": name, "type": str(type_)} for name, type_ in columns.items()]
            facets["schema"] = _facet("facets/1-1-1/SchemaDatasetFacet.json", fields=fields)
        return {"namespace": self._target.namespace, "name": f"{key.project}.{key.datasetid}", "facets": facets}

    # The queue ------------------------------------------------------------------------------------------------
    def _keep(self, line: str) -> None:
        if self._target.file is not None:
            os.makedirs(os.path.dirname(os.path.abspath(self._target.file)), exist_ok=True)
            _append(self._target.file, line)
            return
        make_folder(self._folder)
        queue = os.path.join(self._folder, "queue.jsonl")
        with contextlib.suppress(FileNotFoundError):
            if os.stat(queue).st_size > QUEUE_BYTES:
                raise OSError(f"{queue} is full; is {self._target.url} away?")
        _append(queue, line)
        if self._sender is None or self._sender.poll() is not None:
            self._sender = _start_sender(self._folder, self._target.url or "")


def run_uuid(store_id: str, runid: int) -> str:
    """The same for every event of a run, whoever tells it."""
    return str(uuid.uuid5(_RUNS, f"{store_id}/{runid}"))


def _facet(schema: str, **fields: Any) -> dict[str, Any]:
    name = schema.rpartition("/")[2].removesuffix(".json")
    return {"_producer": PRODUCER, "_schemaURL": f"{SPEC}/{schema}#/$defs/{name}", **fields}


def _own_facet(**fields: Any) -> dict[str, Any]:
    return {"_producer": PRODUCER, "_schemaURL": f"{SPEC}/2-0-2/OpenLineage.json#/$defs/BaseFacet", **fields}


def _known(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _now() -> str:
    moment = time.time()
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(moment))}.{int(moment % 1 * 1000):03d}Z"


def _append(path: str, line: str) -> None:
    """One write of the whole line, while nobody takes the file away."""
    while True:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            if _is_there(handle, path):
                os.write(handle, f"{line}\n".encode())
                return
        finally:
            os.close(handle)


def _is_there(handle: int, path: str) -> bool:
    """False when a sender took the file between opening and locking."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(handle), os.stat(path))
    return False


def _start_sender(folder: str, url: str) -> "subprocess.Popen[bytes] | None":
    """A process of its own, unless one is at it."""
    with open(os.path.join(folder, "sender.lock"), "a", opener=opener) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
    # The address may hold a password: by the environment, never as an argument.
    environ = {**os.environ, "DATAFLOW_LINEAGE_URL": url}
    return subprocess.Popen(
        [sys.executable, "-m", "opendataflow.integrations.openlineage", folder], env=environ, cwd="/",
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip

"""A pipeline as a job's work: its child, what it is told of its runs, and what it says it wrote."""

import contextlib
import errno
import itertools
import json
import os
import time
from collections.abc import Callable
from typing import Any

from opendataflow.domain.checks.check import Checked, Finding
from opendataflow.domain.chunk import Manifest
from opendataflow.domain.dataset import Dataset
from opendataflow.domain.job import Job
from opendataflow.domain.runs.child_json import read_json
from opendataflow.domain.runs.run import MAX_HAND_BACKS, Claim, Ending, Result
from opendataflow.domain.tables import SQL, WHOLE, find_table, source_database, table_location, target_database
from opendataflow.errors import ConfigurationError, StoreUnavailable
from opendataflow.execution.environment import dataids_of, run_environment
from opendataflow.execution.export import show
from opendataflow.execution.host_checks import check_pipeline_host
from opendataflow.execution.log import MASK, find_spellings
from opendataflow.execution.work import Forked, Locations, Sharing, Step, Work
from opendataflow.private_files import make_folder
from opendataflow.project.code_digest import code_digest
from opendataflow.store.claims import LoopStore

PROGRAM = "opendataflow.spark.chunk"
LEFTOVER_SECONDS = 86_400.0  # files of runs that nobody ended here are older than any live one by then
_told: set[tuple[str, str]] = set()  # whose `chunks_per_job` is ignored, which this process has said
CODE_SECONDS = 1.0  # between two looks whether code whose chunks share no job has changed
VERSION_SECONDS = 60.0  # the hash of each transformation is exact at any time


def pipeline_work(
    job: Job, work_folder: str, *, store: LoopStore, say: Callable[[str], None], asked: dict[str, Any] | None = None,
    secrets: tuple[str, ...] = (),
) -> Work:  # fmt: skip
    """Run the pipeline's transformations on Spark, each run in a directory of its own, in a process that ends with it.

    `asked` may hold `at_once`, `profile` and `explain`, which win over the pipeline's own. `secrets` are masked in what
    is kept of the transformations.
    """
    check_pipeline_host(job)
    for link in job.links:
        if link.dataset.location is None and link.dataset.clock is None and find_table(link.dataset) is None:
            raise ConfigurationError(
                f"pipeline {job.jobid} uses dataset {link.dataset.datasetid}, which has no path; "
                "pipelines read and write files, and tables with a `url`"
            )
    return _Pipeline(job, os.path.join(work_folder, "runs"), store, say, asked or {}, secrets).work()


class _Pipeline:
    """What is between the runner and the child: a file for each task, and one for each result."""

    def __init__(
        self, job: Job, folder: str, store: LoopStore, say: Callable[[str], None], asked: dict[str, Any],
        secrets: tuple[str, ...],
    ) -> None:  # fmt: skip
        self._secrets = find_spellings(secrets)
        self._job, self._folder, self._store, self._say, self._asked = job, folder, store, say, asked
        (self._output,) = job.outputs
        self._writes_table = find_table(self._output.dataset) is not None
        self._unshared: str | None = None  # the digest of code whose chunks are not to share a job
        self._looked_at = float("-inf")
        self._chunks_per_task: int | None = None
        self._version: dict[str, Any] = {}
        self._version_at = float("-inf")

    def work(self) -> Work:
        """The child is a fork of the zygote, for one run or for several that share a Spark job."""
        settings: Any = self._job.definition.get("spark") or {}
        sharing = None
        if self.chunks_per_task() > 1:
            sharing = Sharing(self._most, self._find_result, self._compare_argv, self._refused, self._in_vain)
        forked = Forked(
            PROGRAM,
            settings,
            self._argv,
            self._begun,
            self._keep_steps,
            self._ended,
            self._find_given_back,
            self._count_hand_backs,
            sharing,
        )
        return Work(list, self.manifests, self.reason, self.published, forked=forked)

    def chunks_per_task(self) -> int:
        """How many runs may share a Spark job."""
        if self._chunks_per_task is None:
            self._chunks_per_task = self._find_chunks_per_task()
        return self._chunks_per_task

    def _find_chunks_per_task(self) -> int:
        wanted = int(self._setting("chunks_per_job") or 1)
        # Only files can be told apart again after one Spark job has read or written several chunks.
        if wanted == 1 or self._job.strict or any(find_table(link.dataset) is not None for link in self._job.links):
            return 1
        if self._job.definition.get("rowwise") or self._is_pandas():  # in pandas, each chunk is a process of its own
            return wanted
        told = self._job.project, self._job.jobid
        if told in _told:
            return 1
        _told.add(told)
        self._say(
            f"{self._job.jobid}: chunks_per_job is ignored, and the chunks run one by one: it needs `rowwise: true`, "
            "the promise that every output row comes from one input row of the same chunk"
        )
        return 1

    def _is_pandas(self) -> bool:
        declared = self._job.definition.get("engine")
        if declared:
            return declared == "pandas"
        from opendataflow.project.inspect_code import find_engine

        names: Any = self._job.definition.get("transformations") or []
        for name in names:
            path = os.path.join(self._job.home, "pipelines", self._job.jobid, f"{str(name).removesuffix('.py')}.py")
            with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
                if find_engine(file.read()) == "pandas":
                    return True
        return False

    def _setting(self, name: str) -> Any:
        asked = self._asked.get(name)
        return self._job.definition.get(name) if asked is None else asked

    # What the child is told -------------------------------------------------------------------------------------
    def _write(self, runs: list[tuple[Claim, Locations]], **more: Any) -> str:
        make_folder(self._folder)
        _remove_leftovers(self._folder)
        task = os.path.join(self._folder, f"{runs[0][0].runid}.json")
        specs = [self._spec(claim, locations) for claim, locations in runs]
        _write_private(task, {"specs": specs, "results": [self._result_path(claim) for claim, _ in runs], **more})
        return json.dumps({"task": task})

    def _argv(self, runs: list[tuple[Claim, Locations]]) -> list[str]:
        return [json.loads(self._write(runs))["task"]]

    def _compare_argv(self, claim: Claim, locations: Locations) -> list[str]:
        return [json.loads(self._write([(claim, locations)], written=self._find_result(claim)))["task"]]

    def _spec(self, claim: Claim, locations: Locations) -> dict[str, Any]:
        """Everything the child needs to produce this chunk; opendataflow.spark.spec reads it."""
        job, output = self._job, self._output.dataset
        checks = self._checks()
        sources = [link.dataset for link in job.inputs if link.dataset.clock is None]
        if self._writes_table:
            locations = {**locations, output[:2]: table_location(output, claim.dataid, root=job.root)}
        destination = {**_place(output, locations[output[:2]]), "single_file": output.is_one_file}
        destination |= self._target(claim) if self._writes_table else {}
        return {
            "home": job.home,
            "slug": job.jobid,
            "transformations": job.definition.get("transformations") or [],
            "dataid": claim.dataid,
            "runid": claim.runid,
            "spark": job.definition.get("spark") or {},
            "environment": run_environment(job=job, claim=claim, locations=locations, dataids=dataids_of(claim.inputs)),
            "sources": [_source(dataset, claim, locations, root=job.root) for dataset in sources],
            "destination": destination,
            "engine": job.definition.get("engine"),
            "rowwise": bool(job.definition.get("rowwise")),
            "checks": checks,
            "earlier_rows": self._earlier_rows(claim, checks),
            "profile": bool(self._setting("profile")),
            "explain": bool(self._setting("explain")),
            "timeout_seconds": job.timeout_seconds,
            **(self._before(claim) if self._writes_table else {}),
        }

    def _target(self, claim: Claim) -> dict[str, Any]:
        """Where in a database this run writes, and how."""
        output, root = self._output.dataset, self._job.root
        replaces_all = bool(self._job.definition.get("replace")) or self._job.partitions == WHOLE
        database = target_database(output, claim.dataid, root=root, replaces_all=replaces_all)
        return {"format": SQL, "database": database}

    def _before(self, claim: Claim) -> dict[str, Any]:
        """What tells the child whether a run that died has left this very chunk in the target already."""
        from opendataflow.store.published import find_chunk

        chunk = find_chunk(self._store, self._output.dataset, claim.dataid)
        inputs = json.loads(self._store.read("inputs_read", {"runid": claim.runid})[0][0])
        return {
            "published_run": chunk.version if chunk is not None else None,
            "inputs_digest": _digest(inputs),
        }

    def _earlier_rows(self, claim: Claim, checks: list[dict[str, Any]]) -> list[int]:
        last = max((one["options"].get("last") or 0 for one in checks if one["kind"] == "rows"), default=0)
        if not last:
            return []
        from opendataflow.store.arrivals import earlier_rows

        return earlier_rows(self._store, self._output.dataset, claim.dataid)(last)

    # Whether runs share a child -----------------------------------------------------------------------------------
    def _most(self) -> int:
        """As many as the pipeline says, unless its code, as it is now, was found to be none to be shared."""
        if time.monotonic() - self._looked_at > CODE_SECONDS:
            self._looked_at = time.monotonic()
            from opendataflow.store.reports.pipelines import find_unshared

            noted = find_unshared(self._store, self._job.project, self._job.jobid)
            unshared = {self._unshared, noted[0] if noted else None} - {None}
            digest = code_digest(self._job.home) if unshared else None
            self._unshared = digest if digest in unshared else None
        return 1 if self._unshared is not None else self.chunks_per_task()

    def _refused(self, drawn: Claim, why: str) -> None:
        from opendataflow.store.reports.pipelines import record_unshared

        self._in_vain()
        with contextlib.suppress(StoreUnavailable):  # this process knows it all the same
            record_unshared(self._store, drawn, digest=self._unshared or "", reason=self._hidden(why))

    def _in_vain(self) -> None:
        self._unshared, self._looked_at = code_digest(self._job.home), time.monotonic()

    # What is kept -------------------------------------------------------------------------------------------------
    def _begun(self, claims: list[Claim]) -> None:
        from opendataflow.store.reports.pipelines import record_runs

        if time.monotonic() - self._version_at > VERSION_SECONDS:
            from opendataflow.project.version import find_version

            commit, dirty = find_version(self._job.home)
            self._version = {"git_commit": commit, "dirty": None if dirty is None else int(dirty)}
            self._version_at = time.monotonic()
        names: Any = self._job.definition.get("transformations") or []
        steps = [{"position": number, "name": str(name)} for number, name in enumerate(names, 1)]
        record_runs(self._store, [(claim, self._version, steps) for claim in claims])

    def _keep_steps(self, claim: Claim, steps: list[Step]) -> None:
        from opendataflow.store.reports.pipelines import record_steps

        record_steps(self._store, claim, self._masked(steps))

    def _ended(self, claim: Claim, steps: list[Step], result: Result) -> None:
        from opendataflow.store.reports.pipelines import record_runs

        said = self._find_result(claim)
        if not said and result.ending is not Ending.COMPLETE:
            steps = [
                {**step, "status": "ERROR", "error": result.message} if step["status"] == "RUNNING" else step
                for step in steps
            ]
        size = result.manifests[0][2].bytes if result.manifests else None
        details = {**self._version, **said, "bytes": size}
        with contextlib.suppress(StoreUnavailable):  # the end itself is tried again, and kept if need be
            record_runs(self._store, [(claim, details, self._masked(said.get("steps") or steps))])

    def _masked(self, steps: list[Step]) -> list[Step]:
        """Without the passwords that a transformation may have printed."""
        if not self._secrets:
            return steps
        return [
            {**step, **{key: self._hidden(str(step.get(key) or "")) for key in ("output", "error")}} for step in steps
        ]

    def _hidden(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, MASK.decode())
        return text

    def manifests(self, claim: Claim, locations: Locations) -> tuple[tuple[str, str, Manifest], ...]:
        said = _read_result(self._result_path(claim))
        output = self._output.dataset
        if self._writes_table:
            seen = _table_manifest(output, claim, said, root=self._job.root)
        else:
            seen = _manifest(locations[output[:2]] or "", said)
        return ((output.project, output.datasetid, self._audited(claim, seen, said["findings"])),)

    def _audited(self, claim: Claim, manifest: Manifest, found: list[list[Any]] | None) -> Manifest:
        """The manifest after the checks, or raise ChecksFailed; what was found is kept."""
        checks, output = self._checks(), self._output.dataset
        if not checks:
            return manifest
        from opendataflow.checks.perform import judged
        from opendataflow.execution.script import audit_output, keep_findings

        if found is None:  # one of many small chunks of a Spark job: nobody has looked at its files yet
            definition = json.dumps({**json.loads(output.definition or "{}"), "checks": checks})
            checked = output._replace(definition=definition)
            return audit_output(checked, claim, manifest, root=self._job.root, store=self._store, say=self._say)
        findings = tuple(Finding(*one) for one in found)
        keep_findings(self._store, output, claim, findings)
        return judged(output, claim.dataid, manifest, Checked(findings), say=self._say)

    def _checks(self) -> list[dict[str, Any]]:
        """Of the destination, and then the pipeline's own."""
        declared = json.loads(self._output.dataset.definition or "{}").get("checks") or ()
        own: Any = self._job.definition.get("checks") or ()
        return [*declared, *own]

    def reason(self, claim: Claim) -> str:
        return self._hidden(str(self._find_result(claim).get("error") or ""))

    def _find_given_back(self, claim: Claim) -> str | None:
        why = self._find_result(claim).get("given_back")
        return self._hidden(str(why)) if why else None

    def _count_hand_backs(self, claim: Claim) -> int:
        if not self._find_result(claim).get("used_spark"):
            return 0  # it only waited for a driver, which others may have ended any number of times
        from opendataflow.store.operations import Key, runs_of_dataid

        key = Key(claim.project, claim.jobid, claim.dataid)
        try:
            before = runs_of_dataid(
                self._store, key, status=None, since=None, before=claim.runid, limit=MAX_HAND_BACKS
            )  # fmt: skip
        except StoreUnavailable:
            return 0
        # A death, and the order to stop, have an exit code.
        ended = itertools.takewhile(lambda run: run["status"] == "RESUBMIT" and run["exit_code"] is None, before)
        return len(list(ended))

    def _find_result(self, claim: Claim) -> dict[str, Any]:
        """What the child wrote down; nothing if it could not."""
        try:
            return _read_result(self._result_path(claim))
        except OSError:
            return {}

    def published(self, claim: Claim, locations: Locations) -> None:
        if self._writes_table:
            return  # it is to be seen where it is
        show(self._output.dataset, locations[self._output.dataset[:2]] or "", claim)

    def _result_path(self, claim: Claim) -> str:
        return os.path.join(self._folder, f"{claim.runid}.result.json")


def _source(dataset: Dataset, claim: Claim, locations: Locations, *, root: str) -> dict[str, Any]:
    place = _place(dataset, locations[dataset[:2]])
    if find_table(dataset) is None:
        return place
    dataids = [key.dataid for key in claim.inputs if key[:2] == dataset[:2]]
    return {**place, "format": SQL, "database": source_database(dataset, dataids, root=root)}


def _place(dataset: Dataset, location: str | None) -> dict[str, Any]:
    declared = json.loads(dataset.definition or "{}")
    return {
        "datasetid": dataset.datasetid,
        "location": location,
        "format": dataset.format,
        "options": declared.get("options") or {},
        "schema": declared.get("schema"),
    }


def _manifest(location: str, said: dict[str, Any]) -> Manifest:
    """What lies there, seen by the runner itself; rows and schema as the child read them from the files' footers.

    Of a file system that only Spark reaches, the child's word is all there is.
    """
    from opendataflow.storage.files import is_reachable, manifest_of

    if is_reachable(location):
        seen = manifest_of(location)
    else:
        seen = Manifest(
            location=location, files=said.get("files"), bytes=said.get("bytes"), fingerprint=said.get("fingerprint")
        )
    return seen._replace(rows=said["rows"], schema=said["schema"])


def _table_manifest(dataset: Dataset, claim: Claim, said: dict[str, Any], *, root: str) -> Manifest:
    """What the child says that it published in the target; nothing here looks at it."""
    rows, place = said["rows"], table_location(dataset, claim.dataid, root=root)
    return Manifest(
        location=place, bytes=said.get("bytes"), rows=rows, schema=said["schema"],
        fingerprint=f"run {claim.runid}: {rows} rows",
    )  # fmt: skip


def _digest(inputs: list[list[Any]]) -> str:
    """The same for runs that read the same versions of the same chunks."""
    import hashlib

    read = [[*key, fingerprint or version] for *key, version, fingerprint in inputs]
    return hashlib.sha256(json.dumps(sorted(read)).encode()).hexdigest()[:32]


# The files between runner and child -------------------------------------------------------------------------------
def _write_private(path: str, value: dict[str, Any]) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(handle, "w", encoding="utf-8") as file:
        json.dump(value, file)


def _read_result(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            return dict(read_json(file.read()))
    except (FileNotFoundError, ValueError) as error:
        raise FileNotFoundError(errno.ENOENT, "the Spark child ended without saying what it wrote", path) from error


def _remove_leftovers(folder: str) -> None:
    old = time.time() - LEFTOVER_SECONDS
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        with contextlib.suppress(FileNotFoundError):
            if os.stat(path).st_mtime < old:
                os.unlink(path)

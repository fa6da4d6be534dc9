"""What is registered: the datasets and jobs of a store, all that was declared of them, and how they hang together."""

import json
from typing import Any

from opendataflow.store.claims import LoopStore

_DATASET = [
    "project",
    "datasetid",
    "hostname",
    "database",
    "schemaname",
    "tablename",
    "username",
    "encryptedpass",
    "path",
    "format",
    "partitions",
    "definition",
    "clock",
    "modified",
]
_JOB = [
    "project",
    "jobid",
    "kind",
    "script",
    "definition",
    "partitions",
    "lease_seconds",
    "timeout_seconds",
    "retries_max",
    "backoff_seconds",
    "concurrency",
    "strict",
    "catchup",
    "scaled_to",
    "braked_to",
    "max_runs",
    "paused_by",
    "paused_at",
    "paused_until",
    "expected_upto",
    "modified",
]
_LINK = ("project", "jobid", "itemtype", "dataset_project", "datasetid", "map")


def list_datasets(store: LoopStore, *, project: str | None) -> list[dict[str, Any]]:
    """Every dataset with its producer and consumers; a credential is only said to be there."""
    makers: dict[tuple[str, str], str] = {}
    makers_checks: dict[tuple[str, str], list[Any]] = {}
    of_jobs = {(one["project"], one["jobid"]): one["definition"] for one in _rows(store, "jobs", _JOB, project)}
    readers: dict[tuple[str, str], list[dict[str, str]]] = {}
    for link in _links(store, project):
        key = (link["dataset_project"], link["datasetid"])
        job = _named(link["project"], link["jobid"], of=key[0])
        if link["itemtype"] == "OUT":
            makers[key] = job
            definition = json.loads(of_jobs.get((link["project"], link["jobid"])) or "{}")
            makers_checks[key] = definition.get("checks") or []
        else:
            readers.setdefault(key, []).append({"job": job, "map": link["map"]})
    found = []
    for one in _rows(store, "datasets", _DATASET, project):
        key = (one["project"], one["datasetid"])
        definition = json.loads(one.pop("definition") or "{}")
        one["encryptedpass"] = shortened(one["encryptedpass"])
        one["partitions"] = json.loads(one["partitions"]) if one["partitions"] else None
        for name in ("url", "query", "partition_column", "options", "schema", "arrival"):
            one[name] = definition.get(name)
        one["checks"], one["pipeline_checks"] = definition.get("checks", []), makers_checks.get(key, [])
        found.append({**one, "producer": makers.get(key), "consumers": readers.get(key, [])})
    return found


def list_jobs(store: LoopStore, *, project: str | None) -> list[dict[str, Any]]:
    """Every job with its inputs and outputs."""
    sides: dict[tuple[str, str, str], list[dict[str, str]]] = {}
    for link in _links(store, project):
        dataset = _named(link["dataset_project"], link["datasetid"], of=link["project"])
        side = sides.setdefault((link["project"], link["jobid"], link["itemtype"]), [])
        side.append({"dataset": dataset, "map": link["map"]})
    found = []
    for one in _rows(store, "jobs", _JOB, project):
        key = (one["project"], one["jobid"])
        definition = json.loads(one.pop("definition") or "{}")
        one["partitions"] = json.loads(one["partitions"]) if one["partitions"] else None
        one["order"] = "strict" if one.pop("strict") else "any"
        one["inputs"] = sides.get((*key, "IN"), [])
        one["outputs"] = [link["dataset"] for link in sides.get((*key, "OUT"), [])]
        found.append({**one, **definition})
    return found


def shortened(credential: str | None) -> str | None:
    """That there is a credential, and of which kind: never the whole."""
    if not credential:
        return None
    return "enc:v1:…" if credential.startswith("enc:v1:") else "(encrypted by the original)"


def _links(store: LoopStore, project: str | None) -> list[dict[str, Any]]:
    return _rows(store, "links", _LINK, project)


def _rows(store: LoopStore, name: str, columns: Any, project: str | None) -> list[dict[str, Any]]:
    rows = store.read(name, {"project": project}, file="listing")
    return [dict(zip(columns, row, strict=True)) for row in rows]


def _named(project: str, name: str, *, of: str) -> str:
    """The name as that project would write it."""
    return name if project == of else f"{project}.{name}"

"""What the checks of a chunk found, the last time that somebody looked."""

from collections.abc import Sequence
from typing import Any

from opendataflow.domain.checks.check import Finding, printable
from opendataflow.domain.dataset import Dataset
from opendataflow.store.claims import LoopStore

FILE = "checks"
_FINDING = ("position", "check", "result", "detail", "runid", "checked_at")


def record_findings(
    store: LoopStore, dataset: Dataset, dataid: str, runid: int | None, findings: Sequence[Finding]
) -> bool:
    """Keep these findings in place of what was found of the chunk before; `runid` is None for data that arrived.

    False, and nothing changed, when the run was given up or a later run's output was looked at since.
    """
    of_chunk = {"project": dataset.project, "datasetid": dataset.datasetid, "dataid": dataid, "runid": runid}
    now = store.time()
    with store.transaction(file=FILE) as tx:
        if runid is not None and not tx.rows("may_record", of_chunk):
            return False
        tx.run("forget_findings", of_chunk)
        tx.run_many(
            "record_finding",
            [
                {**of_chunk, "position": position, "name": printable(one.check), "result": one.result,
                 "detail": printable(one.detail), "now": now}
                for position, one in enumerate(findings, start=1)
            ],
        )  # fmt: skip
    return True


def find_findings(store: LoopStore, dataset: Dataset, dataid: str) -> list[dict[str, Any]]:
    """The chunk's findings, in the order in which its checks are declared; empty when nobody has looked."""
    of_chunk = {"project": dataset.project, "datasetid": dataset.datasetid, "dataid": dataid}
    return [dict(zip(_FINDING, row, strict=True)) for row in store.read("findings_of", of_chunk, file=FILE)]


def latest_trouble(
    store: LoopStore, project: str, *, datasetid: str | None = None, limit: int = 20
) -> list[dict[str, Any]]:
    """What failed, warned or was quarantined in the chunks that were last found so, the latest first."""
    rows = store.read("latest_trouble", {"project": project, "datasetid": datasetid, "limit": limit}, file=FILE)
    return [dict(zip(("dataset", "dataid", *_FINDING), row, strict=True)) for row in rows]


def has_chunk(store: LoopStore, dataset: Dataset, dataid: str) -> bool:
    """True when the store knows such a chunk, whatever its status."""
    of_chunk = {"project": dataset.project, "datasetid": dataset.datasetid, "dataid": dataid}
    return bool(store.read("is_chunk", of_chunk, file=FILE))


def known_dataids(store: LoopStore, dataset: Dataset) -> list[str]:
    """The dataids of which the store knows anything; the first ten thousand, for a hint."""
    of_dataset = {"project": dataset.project, "datasetid": dataset.datasetid}
    return [str(row[0]) for row in store.read("dataids_of", of_dataset, file=FILE)]

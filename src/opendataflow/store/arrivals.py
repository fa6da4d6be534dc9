"""What the store knows of chunks that arrive from outside."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from opendataflow.domain.chunk import ChunkStatus
from opendataflow.domain.dataset import Dataset
from opendataflow.store.claims import LoopStore

FILE = "arrival"


class Known(NamedTuple):
    status: ChunkStatus
    location: str | None
    fingerprint: str | None


def known_chunks(store: LoopStore, dataset: Dataset) -> dict[str, Known]:
    """Every chunk of the dataset that has a row, by dataid: one query, however many files there are."""
    rows = store.read("known_chunks", {"project": dataset.project, "datasetid": dataset.datasetid}, file=FILE)
    return {
        dataid: Known(ChunkStatus(status), store.whole_location(dataset.project, location), fingerprint)
        for dataid, status, location, fingerprint in rows
    }


def open_chunks(store: LoopStore, dataset: Dataset, dataids: Iterable[str]) -> None:
    """Declare chunks READY that need no look, in one transaction; those that have a row stay as they are."""
    now = store.time()
    of_dataset = {"project": dataset.project, "datasetid": dataset.datasetid}
    wanted = [{**of_dataset, "dataid": dataid, "now": now} for dataid in dataids]

    def change() -> None:
        with store.transaction(file=FILE) as tx:
            tx.run_many("open_chunk", wanted)

    store.again(change)


def earlier_rows(store: LoopStore, dataset: Dataset, dataid: str) -> Callable[[int], list[int]]:
    """A question for checks: the row counts of up to so many READY chunks before this one, the nearest first."""

    def ask(last: int) -> list[int]:
        of = {"project": dataset.project, "datasetid": dataset.datasetid, "dataid": dataid, "last": last}
        return [int(row[0]) for row in store.read("earlier_rows", of, file=FILE)]

    return ask


def record_rejection(store: LoopStore, dataset: Dataset, dataid: str, code: str, text: str) -> None:
    """Keep why what arrived was not taken, for `why` and `status`; a READY chunk stays as it is."""
    of = {"project": dataset.project, "datasetid": dataset.datasetid, "dataid": dataid}
    with store.transaction(file=FILE) as tx:
        tx.run("record_rejection", {**of, "problem": f"{code}: {text}", "now": store.time()})

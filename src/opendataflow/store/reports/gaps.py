"""Expected and not there: the dataids of datasets and jobs that should be done by now, as ranges with the reason."""

import datetime
import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from opendataflow.domain.dataset import Dataset
from opendataflow.domain.job import Job
from opendataflow.domain.partitions.scheme import expected_dataids, is_dataid, natural_key
from opendataflow.domain.runs.refusals import find_refusal
from opendataflow.errors import UsageError
from opendataflow.store.claims import LoopStore
from opendataflow.store.published import find_dataset, find_producer

FILE = "overview"
SHOWN = 10  # names that an error message tells


class Standing(NamedTuple):
    """How a dataid stands that is not done, why, and what somebody must do about it (empty: nothing)."""

    status: str
    reason: str
    next_step: str = ""


def find_gaps(store: LoopStore, *, project: str | None, name: str | None) -> list[dict[str, Any]]:
    """The gaps of one job or dataset, or of every dataset that has any, in order.

    A gap is a range of dataids that follow each other: where it is, how many, how they stand, why, and the next step
    for the first of them, where somebody must take one.
    """
    if name is None:
        rows = store.read("datasets", {"project": project}, file=FILE)
        named = [str(row[1]) if project is not None else f"{row[0]}.{row[1]}" for row in rows if row[2] and not row[3]]
        return [gap for one in named for gap in _of_dataset(store, find_dataset(store, one, project=project)[0])]
    if store.has_job(name, project=project):
        return list(_of_job(store, store.get_job(name, project=project)))
    _must_be_known(store, name, project)
    return list(_of_dataset(store, find_dataset(store, name, project=project)[0]))


def _must_be_known(store: LoopStore, name: str, project: str | None) -> None:
    import difflib

    known = store.read("names", {"project": None}, file="registry")
    if any(name in (f"{owner}.{one}", one if project in (None, owner) else None) for _, owner, one in known):
        return
    here: dict[str, list[str]] = {"job": [], "chunk": []}
    for kind, owner, one in known:
        if project in (None, owner):
            here[kind].append(str(one))
    near = difflib.get_close_matches(name, [*here["job"], *here["chunk"]], n=1)
    named = (f"jobs are {_some(here['job'])}", f"datasets {_some(here['chunk'])}")
    hint = f"did you mean {near[0]!r}?" if near else ", ".join(named)
    raise UsageError(f"{name!r} is not registered as a job or a dataset; {hint}")


def _some(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (" …" if len(names) > SHOWN else "") if names else "(none)"


def _of_job(store: LoopStore, job: Job) -> Iterator[dict[str, Any]]:
    scheme = json.loads(job.partitions or "null")
    found = _open(store, job)
    expected = _expected(store, scheme, found) if scheme is not None else sorted(found, key=natural_key)
    upto = natural_key(job.expected_upto) if job.expected_upto is not None else None

    def told(dataid: str) -> Standing | None:
        # What has no open row is done, unless nobody has made its row: a run makes those of all slots that are over.
        is_new = scheme is not None and (upto is None or natural_key(dataid) > upto)
        return found.get(dataid, Standing("GAP", "no run has looked for it yet") if is_new else None)

    yield from _ranges({"job": job.jobid, "project": job.project}, ((one, told(one)) for one in expected))


def _of_dataset(store: LoopStore, dataset: Dataset) -> Iterator[dict[str, Any]]:
    scheme = json.loads(dataset.partitions or "null")
    of_dataset = {"project": dataset.project, "datasetid": dataset.datasetid}
    chunks = {
        str(dataid): (str(status), problem)
        for dataid, status, problem in store.read("chunk_statuses", of_dataset, file=FILE)
    }
    producer = find_producer(store, dataset)
    made = _open(store, producer) if producer is not None else {}
    expected = _expected(store, scheme, chunks) if scheme is not None else sorted(chunks, key=natural_key)

    def told(dataid: str) -> Standing | None:
        status, problem = chunks.get(dataid, ("GAP", None))
        if status == "READY":
            return None
        if producer is None:
            return Standing(status, str(problem or "it has not arrived"))
        if dataid not in made:
            return Standing(status, f"{producer.jobid} has no run for it yet")
        maker = made[dataid]
        reason = f"{producer.jobid} is {maker.status}{maker.reason and ', '}{maker.reason}"
        return Standing(status, reason, maker.next_step)

    yield from _ranges(
        {"dataset": dataset.datasetid, "project": dataset.project}, ((one, told(one)) for one in expected)
    )


def _open(store: LoopStore, job: Job) -> dict[str, Standing]:
    """What of the job is not done: its status and what it waits for."""
    rows = store.read("open_rows", {"project": job.project, "jobid": job.jobid}, file=FILE)
    return {str(dataid): _standing(job.jobid, str(dataid), *rest) for dataid, *rest in rows}


def _standing(
    jobid: str, dataid: str, status: str, waiting: int, parked_until: str | None, refusal: str | None
) -> Standing:
    if waiting > 0:
        return Standing(status, f"waits for {waiting} inputs" if waiting > 1 else "waits for an input")
    if status == "FAILED" and not parked_until:
        return Standing(status, "", f"fix the cause, then `dataflow resubmit {jobid} {dataid}`")
    if not parked_until:
        return Standing(status, "")
    refused = find_refusal(refusal) if status != "FAILED" else None
    if refused is not None and refused.needs_a_person:
        return Standing(status, f"was refused: {refused.code}", refused.next_step)
    return Standing(status, "is tried again by itself")


def _expected(store: LoopStore, scheme: Any, known: Iterable[str]) -> list[str]:
    now = datetime.datetime.fromtimestamp(store.clock(), datetime.UTC)
    inside = [dataid for dataid in known if is_dataid(scheme, dataid)]
    highest = max(inside, key=natural_key, default=None)
    return list(expected_dataids(scheme, now=now, highest=highest))


def _ranges(of: dict[str, str], dataids: Iterable[tuple[str, Standing | None]]) -> Iterator[dict[str, Any]]:
    """Neighbours that stand alike, as one."""
    current: dict[str, Any] | None = None
    for dataid, told in dataids:
        if current is not None and (told is None or told[:2] != (current["status"], current["reason"])):
            yield current
            current = None
        if told is None:
            continue
        if current is None:
            current = {**of, "first": dataid, "last": dataid, "count": 0, **told._asdict()}
        current |= {"last": dataid, "count": current["count"] + 1}
    if current is not None:
        yield current

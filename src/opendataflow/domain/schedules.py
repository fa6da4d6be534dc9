"""Schedules that people set instead of what project.yml declares: which ones there are, and which job can have one.

A job that has one reads a clock of its own, so that nobody else is moved when it changes: the dataset
`every slot of JOB`, a name that no project can declare.
"""

import datetime
import json
from typing import NamedTuple

from opendataflow.domain.dataset import Dataset
from opendataflow.domain.partitions.clocks import EPOCH, Clock, find_clock, slot_name
from opendataflow.domain.registration import JobSpec, LinkSpec
from opendataflow.errors import UsageError

WHOLE = '"none"'  # the scheme of what is one chunk
_WORDS = ("today", "hourly")
_BY_DATAID = ("same", "rollup")


def own_clock(jobid: str) -> str:
    """The dataset by which a job goes that has a schedule of its own."""
    return f"every slot of {jobid}"


def read_schedule(every: str | None = None, cron: str | None = None, timezone: str | None = None) -> str:
    """The clock as a dataset keeps it, from what a person wrote: 30m, hourly, today, or five fields; or UsageError."""
    if (every is None) == (cron is None):
        raise UsageError("give either an interval like 30m, or a cron expression like `0 3 * * *`")
    name = " ".join((every or cron or "").split())
    if every is not None:
        name = name if name in _WORDS else f"every {name.removeprefix('every ')}"
    else:
        name = f"cron {name.removeprefix('cron ')}"
    clock = find_clock(name, timezone)
    if clock is None:
        raise UsageError(f"{name!r} is no schedule; give 30m, 6h, 1d, hourly, today, or a cron expression")
    if timezone is None:
        return name
    if clock.kind in ("hourly", "every"):
        raise UsageError(f"{name!r} counts in UTC; a time zone goes with `today` and with cron")
    if len(name.split()) == 7:
        raise UsageError(f"{name!r} names its time zone already")
    return f"{name} @{timezone}"


def get_clock(text: str) -> Clock:
    """The clock of a dataset's text: `cron 0 3 * * * @Europe/Berlin`."""
    name, _, zone = text.partition(" @")
    found = find_clock(name, zone or None)
    if found is None:
        raise UsageError(f"{text!r} is no clock")
    return found


def form(clock: Clock) -> int:
    """How long the names of its slots are: days, hours and minutes differ."""
    return len(slot_name(clock, EPOCH))


# The clock of its own -------------------------------------------------------------------------------------------------
def clock_dataset(project: str, jobid: str, text: str, *, since: datetime.datetime) -> Dataset:
    """What the job reads: slots of this clock that begin after `since`."""
    definition = json.dumps({"since": since.astimezone(datetime.UTC).isoformat(timespec="milliseconds")})
    return Dataset(project, own_clock(jobid), clock=text, definition=definition)


def find_since(dataset: Dataset) -> datetime.datetime | None:
    """From when on a clock of a job's own counts; None for a clock that is declared."""
    if dataset.definition is None:
        return None
    found = json.loads(dataset.definition).get("since")
    return datetime.datetime.fromisoformat(found) if found else None


# Declared jobs --------------------------------------------------------------------------------------------------------
class Declared(NamedTuple):
    """What project.yml says of a job as far as a schedule changes it."""

    clock: str | None
    links: tuple[LinkSpec, ...]
    partitions: str | None

    def to_json(self) -> str:
        return json.dumps(self)

    @classmethod
    def from_json(cls, text: str) -> "Declared":
        clock, links, partitions = json.loads(text)
        return cls(clock, tuple(LinkSpec(*link) for link in links), partitions)


def declared_by(project: str, job: JobSpec, clocks: dict[str, str]) -> Declared:
    """Of a job and the clocks of its project, by dataset."""
    links = [link for link in job.links if link.itemtype == "IN" and link.dataset_project == project]
    clock = next((clocks[link.datasetid] for link in links if link.datasetid in clocks), None)
    return Declared(clock, job.links, job.partitions)


def rescheduled(
    project: str, job: JobSpec, declared: Declared, clock: str | None, *, clocks: dict[str, str]
) -> JobSpec:
    """The job as it goes by this clock, instead of the declared one; None: by a clock of its own as declared.

    Everything else that it reads is as declared; a job that had one dataid, `full`, has the clock's slots.
    """
    text = clock or declared.clock
    rest = tuple(
        link for link in declared.links
        if link.itemtype == "OUT" or link.dataset_project != project or link.datasetid not in clocks
    )  # fmt: skip
    if text is None:
        return job._replace(links=declared.links, partitions=declared.partitions)
    inputs = tuple(link for link in rest if link.itemtype == "IN")
    outputs = tuple(link for link in rest if link.itemtype == "OUT")
    own = LinkSpec("IN", project, own_clock(job.jobid))
    return job._replace(links=(*inputs, own, *outputs), partitions=None)


def check_schedule(
    project: str, job: JobSpec, declared: Declared, clock: str, *, clocks: dict[str, str], read_whole_by: list[str]
) -> None:
    """Raise UsageError when its dataids, or what others read, would make no sense by this clock."""
    definition = json.loads(job.definition)
    if "stream" in definition or "seal" in definition:
        raise UsageError(f"{job.jobid} belongs to a stream, which runs as its items come; it has no schedule")
    by_dataid = [
        link.datasetid for link in declared.links
        if link.itemtype == "IN" and not (link.dataset_project == project and link.datasetid in clocks)
        and (link.map in _BY_DATAID or link.map.startswith(("offset", "window")))
    ]  # fmt: skip
    if declared.clock is not None:
        if by_dataid and form(get_clock(clock)) != form(get_clock(declared.clock)):
            raise UsageError(
                f"{job.jobid} reads {by_dataid[0]} dataid by dataid, and those are called as the slots of "
                f"`{declared.clock}` are; `{clock}` calls them otherwise, so nothing would fit"
            )
        return
    if declared.partitions not in (None, WHOLE):
        raise UsageError(
            f"{job.jobid} has its dataids from the partitions of its data, {_scheme(declared.partitions or '')}: each "
            "is run when it is there; a schedule is for jobs that go by a clock or have one dataid, `full`"
        )
    if by_dataid:
        raise UsageError(
            f"{job.jobid} has its dataids from what arrives in {by_dataid[0]}, and a clock has others; "
            "to read all that is there each time, say `map: all` and `frequency` in project.yml"
        )
    if read_whole_by:
        raise UsageError(
            f"{', '.join(read_whole_by)} reads what {job.jobid} makes as one chunk, `full`, which would not come any "
            "more; give both a clock in project.yml"
        )


def _scheme(text: str) -> str:
    scheme = json.loads(text)
    if not isinstance(scheme, dict):
        return str(scheme)
    ((kind, value),) = scheme.items()
    return f"{kind} {', '.join(map(str, value[:3])) + ' …' if isinstance(value, list) else value}"

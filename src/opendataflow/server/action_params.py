"""What several actions ask for in the same way, and say in the same words."""

from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BeforeValidator, StringConstraints
from pydantic import Field as PydanticField

from opendataflow.domain.job import Job
from opendataflow.domain.words import number_of
from opendataflow.errors import UsageError
from opendataflow.server.action import Acting
from opendataflow.server.problems import NotThere
from opendataflow.store.operations import Key
from opendataflow.store.records.workers import list_workers

MOST_ROWS = 500  # that a plan shows one by one


def _listed(value: Any) -> Any:
    """A form sends one value as itself, several as a list."""
    return value if isinstance(value, list) else [value]


def Several() -> Any:
    """Any number of values; none unless some are given."""
    return PydanticField(default_factory=list)


Word = Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=r"^[^\x00-\x1f]*$")]
Words = Annotated[list[Word], BeforeValidator(_listed)]
Numbers = Annotated[list[Annotated[int, PydanticField(ge=0, le=1 << 62)]], BeforeValidator(_listed)]
Reason = Annotated[str, StringConstraints(max_length=500, pattern=r"^[^\x00-\x1f]*$")]


def get_job(acting: Acting, project: str | None, jobid: str) -> Job:
    """The job, or NotThere."""
    if not acting.store.has_job(jobid, project=project):
        raise NotThere(f"there is no job {jobid}" + (f" in project {project}" if project else ""))
    return acting.store.get_job(jobid, project=project)


def read_keys(keys: Iterable[str]) -> list[Key]:
    """Ticked dataids: `project/job/dataid`."""
    found = []
    for text in dict.fromkeys(keys):
        parts = text.split("/", 2)
        if len(parts) != 3 or not all(parts):
            raise UsageError(f"{text!r} is not a dataid of a job like project/job/2025-11-12")
        found.append(Key(*parts))
    return found


def who_works(acting: Acting, jobids: Iterable[str]) -> str:
    """Who will take what is ready, in a sentence."""
    wanted = set(jobids)
    alive = [one for one in list_workers(acting.store) if not one.is_gone]
    serving = [one for one in alive if not one.jobs or wanted & set(one.jobs)]
    if not alive:
        return "No worker is alive: nothing starts before one does (`dataflow worker`)."
    if not serving:
        return f"{number_of(len(alive), 'worker')} alive, but none serves this; `dataflow worker --jobs` names others."
    idle = [one for one in serving if one.running < one.slots] or serving
    return f"{idle[0].name} takes it" + (
        f", or one of {number_of(len(serving) - 1, 'other worker')}." if len(serving) > 1 else "."
    )


def counted(words: Iterable[str]) -> str:
    """`3 FAILED, 1 COMPLETE`."""
    return ", ".join(f"{number:,} {word}" for word, number in Counter(words).most_common())


def target_of(keys: Iterable[tuple[str, str, str]]) -> str:
    """What something was done to, for the record."""
    names = [f"{project}/{jobid}/{dataid}" for project, jobid, dataid in keys]
    return ", ".join(names[:5]) + (f" and {len(names) - 5:,} more" if len(names) > 5 else "") or "nothing"

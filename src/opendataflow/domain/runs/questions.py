"""The five questions: facts in, a verdict out. Nothing here looks at a disk, a clock or a database."""

from enum import StrEnum
from typing import NamedTuple

from opendataflow.domain.chunk import ChunkStatus
from opendataflow.domain.job import Candidate, JobStatus, Limit


class Question(StrEnum):
    READY = "ready"
    RIGHT = "right"
    LOCATION = "location"
    VALID = "valid"
    SAFE = "safe"


CODES: dict[Question, tuple[str, int]] = {
    Question.READY: ("DATA_NOT_READY", 10),
    Question.RIGHT: ("WRONG_DATA", 11),
    Question.LOCATION: ("INVALID_PATH", 12),
    Question.VALID: ("NOT_VALIDATED", 13),
    Question.SAFE: ("LOCKED", 14),
}
ASSERTED = "asserted by its producer"
SHOWN = 5  # of many chunks, so many are named


class Answer(NamedTuple):
    question: Question
    yes: bool
    evidence: str
    code: str = ""


class Sight(NamedTuple):
    """What the runner saw where a chunk is, or should go: `problem` is empty when the place is fine."""

    location: str | None
    problem: str = ""
    fingerprint: str | None = None  # as it is now; None where data has no path
    stale: str = ""  # why it cannot be this slot's data
    has_checks: bool = False  # its dataset declares some


class Items(NamedTuple):
    """Of a stream's batch: whether its items are in the log, and in which words that is told."""

    are_durable: bool
    told: str


class Verdict(NamedTuple):
    answers: tuple[Answer, ...]

    @property
    def yes(self) -> bool:
        return all(answer.yes for answer in self.answers)

    @property
    def refusal(self) -> Answer | None:
        """The first question that was answered no."""
        return next((answer for answer in self.answers if not answer.yes), None)

    @property
    def exit_code(self) -> int:
        refusal = self.refusal
        return CODES[refusal.question][1] if refusal else 0

    def as_json(self) -> list[dict[str, object]]:
        return [
            {"question": str(a.question), "yes": a.yes, "code": a.code, "evidence": a.evidence} for a in self.answers
        ]


def _answer(question: Question, problems: list[str], evidence: list[str], unseen: list[str]) -> Answer:
    if not problems and not unseen:
        return Answer(question, True, "; ".join(_brief(evidence)))
    if problems:
        return Answer(question, False, "; ".join(_brief(problems)), CODES[question][0])
    # Neither yes nor a reason of its own to refuse: the first question already does.
    return Answer(question, False, f"not known before {', '.join(_brief(unseen))} is READY")


def _unseen(candidate: Candidate) -> list[str]:
    return [str(chunk.key) for chunk in candidate.inputs if chunk.status is not ChunkStatus.READY]


def _brief(texts: list[str]) -> list[str]:
    """A window or a rollup of a thousand chunks is told by its first and its last."""
    if len(texts) <= SHOWN:
        return texts
    return [*texts[: SHOWN - 1], f"… {len(texts) - SHOWN} more …", texts[-1]]


def is_ready(candidate: Candidate, unmapped: tuple[str, ...] = (), items: Items | None = None) -> Answer:
    """`unmapped`: inputs of which no chunk is known to belong to this dataid; `items`: what a batch reads, too."""
    problems = [f"no chunk of {name} is known to belong to it" for name in unmapped]
    evidence: list[str] = []
    if items is not None:
        (evidence if items.are_durable else problems).append(items.told)
    for chunk in candidate.inputs:
        if chunk.status is ChunkStatus.READY:
            evidence.append(f"{chunk.key} READY since {chunk.modified}")
        elif chunk.problem:
            problems.append(f"{chunk.key} was rejected: {chunk.problem}")
        elif chunk.status is None:
            problems.append(
                f"{chunk.key} is not there yet" + (f"; {chunk.producer} makes it" if chunk.producer else "")
            )
        else:
            by = f" by {chunk.producer}" if chunk.producer else ""
            problems.append(f"{chunk.key} is {chunk.status}{by} since {chunk.modified}, not READY")
    return _answer(Question.READY, problems, evidence or ["it has no inputs"], [])


def is_right(candidate: Candidate, sights: tuple[Sight, ...], unseen: list[str]) -> Answer:
    problems, evidence = [], []
    if candidate.earlier is not None and candidate.earlier != candidate.dataid:
        problems.append(f"{candidate.jobid}/{candidate.earlier} comes first, its order is strict")
    for chunk, sight in zip(candidate.inputs, sights, strict=True):
        if sight.stale:
            problems.append(f"{chunk.key}: {sight.stale}")
        elif chunk.fingerprint is None or sight.fingerprint is None:
            evidence.append(f"{chunk.key} {ASSERTED}")
        elif chunk.fingerprint == sight.fingerprint:
            evidence.append(f"{chunk.key} unchanged since it was published")
        elif not sight.problem:
            problems.append(f"{chunk.key} changed after it was published: {sight.location}")
    return _answer(Question.RIGHT, problems, evidence, unseen)


def is_located(
    candidate: Candidate, sights: tuple[Sight, ...], places: tuple[Sight, ...], unseen: list[str], foreign: str = ""
) -> Answer:
    """`foreign`: why a dataid of it is none of its scheme, and becomes no part of a path."""
    problems, evidence = [foreign] if foreign else [], []
    for chunk, sight in zip(candidate.inputs, sights, strict=True):
        if sight.problem:
            problems.append(f"{chunk.key}: {sight.problem}")
        else:
            evidence.append(f"{chunk.key} {'at ' + sight.location if sight.location else ASSERTED}")
    for output, place in zip(candidate.outputs, places, strict=True):
        if place.problem:
            problems.append(f"{output.key}: {place.problem}")
        elif place.location:
            evidence.append(f"{output.key} goes to {place.location}")
    return _answer(Question.LOCATION, problems, evidence, unseen)


def is_valid(candidate: Candidate, sights: tuple[Sight, ...], unseen: list[str]) -> Answer:
    problems, evidence = [], []
    for chunk, sight in zip(candidate.inputs, sights, strict=True):
        if chunk.validated_at:
            evidence.append(f"{chunk.key} validated at {chunk.validated_at}")
        elif sight.has_checks and chunk.status is ChunkStatus.READY:
            problems.append(f"{chunk.key} has checks, but they were not passed on these data")
        else:
            evidence.append(f"{chunk.key} {ASSERTED}")
    return _answer(Question.VALID, problems, evidence, unseen)


def is_safe(candidate: Candidate, *, concurrency: int | None) -> Answer:
    """`concurrency`: the job's limit, for a candidate whose limits were not looked at."""
    problems = []
    for pause in candidate.pauses:
        what = f"{pause.jobid} is held" if pause.jobid else "everything is paused"
        problems.append(f"{what} by {pause.by}" + (f" until {pause.until}" if pause.until else ""))
    if candidate.status is JobStatus.HOLD:
        problems.append(f"{candidate.jobid}/{candidate.dataid} is on HOLD")
    if candidate.status is JobStatus.RUNNING:
        problems.append(
            f"{candidate.jobid}/{candidate.dataid} is RUNNING by {candidate.owner}, lease until {candidate.lease_until}"
        )
    for output in candidate.outputs:
        if output.readers:
            problems.append(f"{output.key} is being read by {output.readers}")
    limits = candidate.limits
    if limits is None and concurrency is not None:
        limits = (Limit("job", candidate.jobid, concurrency, candidate.running),)
    problems += [_why_full(limit) for limit in limits or () if limit.running >= limit.max_runs]
    return _answer(Question.SAFE, problems, ["nobody else produces or reads its outputs"], [])


def _why_full(limit: Limit) -> str:
    of = f"of {limit.name}" if limit.kind == "job" else f"over the connection {limit.name}"
    return f"{limit.running} runs {of} are live and its limit is {limit.max_runs}" + (limit.why and f", {limit.why}")


def ask(
    candidate: Candidate, *, sights: tuple[Sight, ...], places: tuple[Sight, ...], concurrency: int | None,
    unmapped: tuple[str, ...] = (), items: Items | None = None, foreign: str = "",
) -> Verdict:  # fmt: skip
    """All five answers, in order, whatever the earlier ones were."""
    unseen = _unseen(candidate)
    return Verdict(
        (
            is_ready(candidate, unmapped, items),
            is_right(candidate, sights, unseen),
            is_located(candidate, sights, places, unseen, foreign),
            is_valid(candidate, sights, unseen),
            is_safe(candidate, concurrency=concurrency),
        )
    )

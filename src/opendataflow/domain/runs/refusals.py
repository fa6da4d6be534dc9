"""What is to be done about a refusal: some mend themselves, others wait for a person."""

import json
import re
from typing import NamedTuple

from opendataflow.domain.job import Limit
from opendataflow.domain.runs.questions import CODES, Question

_MENDED_BY_PEOPLE = {CODES[one][0]: one for one in (Question.RIGHT, Question.LOCATION, Question.VALID)}
_CHUNK = re.compile(r"([^/\s]+)/(\S+?)(?:: | changed | has )")  # with which the evidence begins


class Refusal(NamedTuple):
    """The first answer that said no, and why."""

    code: str
    evidence: str

    @property
    def needs_a_person(self) -> bool:
        """True where trying again changes nothing until somebody has acted."""
        return self.code in _MENDED_BY_PEOPLE and "its order is strict" not in self.evidence

    @property
    def next_step(self) -> str:
        """What that person does; empty where nobody need do anything."""
        if not self.needs_a_person:
            return ""
        chunk = _CHUNK.match(self.evidence)
        return next_step(_MENDED_BY_PEOPLE[self.code], *(chunk.groups() if chunk else ()))


def scaled_name(limit: Limit) -> str:
    """As `dataflow scale` names it."""
    return limit.name if limit.kind == "job" else f"connection:{limit.name}"


def find_refusal(text: str | None) -> Refusal | None:
    """As the store keeps it with a dataid: the five answers as JSON."""
    for answer in json.loads(text) if text else []:
        if not answer["yes"] and answer["code"]:
            return Refusal(str(answer["code"]), str(answer["evidence"]))
    return None


def next_step(question: Question, datasetid: str = "DATASET", dataid: str = "DATAID") -> str:
    """For what is wrong with this chunk, by the question that was answered no: right, location or valid."""
    ready = f"`dataflow ready {datasetid} {dataid}`"
    if question is Question.RIGHT:
        return f"if these are the right data, declare them: {ready}; otherwise put the right ones there first"
    if question is Question.VALID:
        return f"have the data checked: {ready}"
    return "put the data where it belongs, or declare its place with `dataflow ready … --location`"

"""The five questions: each refusal has its code, its exit and its evidence."""

import json

import pytest

from opendataflow.domain.chunk import ChunkKey, ChunkStatus, Input, Output
from opendataflow.domain.job import Candidate, JobStatus
from opendataflow.domain.runs.questions import ASSERTED, CODES, Answer, Question, Sight, Verdict, ask
from opendataflow.store.rows import verdict_json

ORDERS = ChunkKey("p", "orders", "1")
TOTALS = ChunkKey("p", "totals", "1")
READY = Input(
    ORDERS, ChunkStatus.READY, 3, "/data/o", "f1", "2025-11-12T01:00:00.000Z", None, "feed", "2025-11-12T00:00:00.000Z"
)
SEEN = Sight("/data/o", "", "f1")
PLACE = Sight("/data/t")


def verdict(
    chunk: Input = READY,
    sight: Sight = SEEN,
    place: Sight = PLACE,
    *,
    concurrency: int | None = None,
    **changes: object,
) -> Verdict:
    candidate = Candidate(
        "load", "1", JobStatus.PENDING, 0, 0, None, None, None, 0, (chunk,), (Output(TOTALS, None, ""),)
    )._replace(**changes)
    return ask(candidate, sights=(sight,), places=(place,), concurrency=concurrency)


def test_five_answers_of_yes_are_a_yes() -> None:
    answers = verdict()
    assert answers.yes
    assert (answers.refusal, answers.exit_code) == (None, 0)
    assert [answer.question for answer in answers.answers] == list(Question)
    assert all(answer.evidence and not answer.code for answer in answers.answers)


def test_each_question_has_the_code_and_exit_of_the_design() -> None:
    assert {str(q): CODES[q] for q in Question} == {
        "ready": ("DATA_NOT_READY", 10),
        "right": ("WRONG_DATA", 11),
        "location": ("INVALID_PATH", 12),
        "valid": ("NOT_VALIDATED", 13),
        "safe": ("LOCKED", 14),
    }


REFUSALS = {
    "an input that is not there": (
        verdict(READY._replace(status=None, modified=None)), 10, "DATA_NOT_READY",
        "orders/1 is not there yet; feed makes it"),
    "an input that nobody makes": (
        verdict(READY._replace(status=None, producer="")), 10, "DATA_NOT_READY", "orders/1 is not there yet"),
    "an input that runs": (
        verdict(READY._replace(status=ChunkStatus.RUNNING)), 10, "DATA_NOT_READY",
        "orders/1 is RUNNING by feed since 2025-11-12T00:00:00.000Z, not READY"),
    "an input that changed": (
        verdict(sight=SEEN._replace(fingerprint="f2")), 11, "WRONG_DATA",
        "orders/1 changed after it was published: /data/o"),
    "an input whose place is gone": (
        verdict(sight=Sight("/data/o", "/data/o does not exist")), 12, "INVALID_PATH",
        "orders/1: /data/o does not exist"),
    "an output that cannot be written": (
        verdict(place=Sight("/data/t", "/data is not writable")), 12, "INVALID_PATH",
        "totals/1: /data is not writable"),
    "a job that is held": (verdict(status=JobStatus.HOLD), 14, "LOCKED", "load/1 is on HOLD"),
    "a job that runs": (
        verdict(status=JobStatus.RUNNING, owner="anna", lease_until="T"), 14, "LOCKED",
        "load/1 is RUNNING by anna, lease until T"),
    "an output that is read": (
        verdict(outputs=(Output(TOTALS, ChunkStatus.READY, "report (run 9)"),)), 14, "LOCKED",
        "totals/1 is being read by report (run 9)"),
    "a limit that is reached": (
        verdict(concurrency=2, running=2), 14, "LOCKED", "2 runs of load are live and its limit is 2"),
}  # fmt: skip


@pytest.mark.parametrize(("refused", "exit_code", "code", "evidence"), REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_names_its_code_exit_and_evidence(refused: Verdict, exit_code: int, code: str, evidence: str) -> None:
    assert not refused.yes
    assert refused.refusal is not None
    assert (refused.exit_code, refused.refusal.code, refused.refusal.evidence) == (exit_code, code, evidence)
    assert {
        "question": str(refused.refusal.question),
        "yes": False,
        "code": code,
        "evidence": evidence,
    } in refused.as_json()


@pytest.mark.parametrize("status", [status for status in ChunkStatus if status is not ChunkStatus.READY])
def test_only_a_ready_input_is_ready(status: ChunkStatus) -> None:
    assert verdict(READY._replace(status=status)).exit_code == 10


def test_all_five_are_asked_and_the_first_no_decides() -> None:
    both = verdict(READY._replace(status=None), status=JobStatus.HOLD)
    assert [answer.yes for answer in both.answers] == [False, False, False, False, False]
    assert both.exit_code == 10
    assert both.answers[1].evidence == "not known before orders/1 is READY"
    assert both.answers[1].code == ""
    assert both.answers[4].code == "LOCKED"


def test_below_its_limit_a_job_is_safe() -> None:
    assert verdict(concurrency=2, running=1).yes


def test_data_known_only_by_its_connection_is_asserted_by_its_producer_visibly() -> None:
    answers = verdict(READY._replace(fingerprint=None, validated_at=None, location=None), Sight(None)).answers
    assert [ASSERTED in answer.evidence for answer in answers] == [False, True, True, True, False]
    assert all(answer.yes for answer in answers)


def test_a_job_without_inputs_is_ready() -> None:
    candidate = Candidate("feed", "1", JobStatus.PENDING, 0, 0, None, None, None, 0, (), (Output(ORDERS, None, ""),))
    answers = ask(candidate, sights=(), places=(PLACE,), concurrency=None)
    assert answers.yes
    assert answers.answers[0].evidence == "it has no inputs"


def test_the_answers_are_kept_as_plain_json_whatever_the_evidence_holds() -> None:
    evidence = 'quotes " and \\ and\nnewlines, ünïcode \N{SNOWMAN} and \x00'
    told = Verdict((Answer(Question.READY, False, evidence, "DATA_NOT_READY"), Answer(Question.SAFE, True, "ok")))
    assert verdict_json(told) == json.dumps(told.as_json())
    assert json.loads(verdict_json(told)) == told.as_json()

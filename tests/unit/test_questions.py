"""The five questions: each refusal has its code, its exit and its evidence."""

import json

import pytest

from opendataflow.domain.chunk import ChunkKey, ChunkStatus, Input, Output
from opendataflow.domain.job import Candidate, JobStatus, Limit, Pause
from opendataflow.domain.runs.questions import ASSERTED, CODES, Answer, Items, Question, Sight, Verdict, ask
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
    unmapped: tuple[str, ...] = (),
    items: Items | None = None,
    foreign: str = "",
    **changes: object,
) -> Verdict:
    candidate = Candidate(
        "load", "1", JobStatus.PENDING, 0, 0, None, None, None, 0, (chunk,), (Output(TOTALS, None, ""),)
    )._replace(**changes)
    return ask(
        candidate, sights=(sight,), places=(place,), concurrency=concurrency, unmapped=unmapped, items=items,
        foreign=foreign,
    )  # fmt: skip


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
    "an input that somebody sent and that nobody vouches for": (
        verdict(READY._replace(status=ChunkStatus.FAILED, producer="")), 10, "DATA_NOT_READY",
        "orders/1 is FAILED since 2025-11-12T00:00:00.000Z, not READY"),
    "an input that was rejected": (
        verdict(READY._replace(status=ChunkStatus.FAILED, problem="2 rows are no numbers")), 10, "DATA_NOT_READY",
        "orders/1 was rejected: 2 rows are no numbers"),
    "an input of which no chunk is known": (
        verdict(unmapped=("rates", "stores")), 10, "DATA_NOT_READY",
        "no chunk of rates is known to belong to it; no chunk of stores is known to belong to it"),
    "items that are not in the log": (
        verdict(items=Items(False, "items 1 to 9 are not on disk")), 10, "DATA_NOT_READY",
        "items 1 to 9 are not on disk"),
    "an earlier dataid of a strict job": (
        verdict(earlier="0"), 11, "WRONG_DATA", "load/0 comes first, its order is strict"),
    "a later dataid that comes first all the same": (
        verdict(earlier="2"), 11, "WRONG_DATA", "load/2 comes first, its order is strict"),
    "an input that cannot be this slot's": (
        verdict(sight=SEEN._replace(stale="it is older than its day")), 11, "WRONG_DATA",
        "orders/1: it is older than its day"),
    "an input that changed": (
        verdict(sight=SEEN._replace(fingerprint="f2")), 11, "WRONG_DATA",
        "orders/1 changed after it was published: /data/o"),
    "an input whose place is gone": (
        verdict(sight=Sight("/data/o", "/data/o does not exist")), 12, "INVALID_PATH",
        "orders/1: /data/o does not exist"),
    "an output that cannot be written": (
        verdict(place=Sight("/data/t", "/data is not writable")), 12, "INVALID_PATH",
        "totals/1: /data is not writable"),
    "a dataid that is none of its scheme": (
        verdict(foreign="../1 is no day"), 12, "INVALID_PATH", "../1 is no day"),
    "an input that has not passed its checks": (
        verdict(READY._replace(validated_at=None), SEEN._replace(has_checks=True)), 13, "NOT_VALIDATED",
        "orders/1 has checks, but they were not passed on these data"),
    "a job that is held as a whole": (
        verdict(pauses=(Pause("load", "carl", None),)), 14, "LOCKED", "load is held by carl"),
    "everything that is paused": (
        verdict(pauses=(Pause("", "carl", "T"),)), 14, "LOCKED", "everything is paused by carl until T"),
    "a limit that was lowered below what runs": (
        verdict(limits=(Limit("job", "load", 1, 3, "braked by anna: slow"),)), 14, "LOCKED",
        "3 runs of load are live and its limit is 1, braked by anna: slow"),
    "a limit of a connection": (
        verdict(limits=(Limit("job", "load", 9, 1), Limit("connection", "db", 2, 2))), 14, "LOCKED",
        "2 runs over the connection db are live and its limit is 2"),
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
    assert verdict(limits=(Limit("job", "load", 2, 1), Limit("connection", "db", 2, 1))).yes
    assert verdict(limits=(), concurrency=1, running=5).yes, "the limits that were looked at are what counts"


def test_the_first_of_a_strict_order_has_nothing_before_it() -> None:
    assert verdict(earlier="1").yes


def test_items_that_are_durable_are_evidence() -> None:
    answers = verdict(items=Items(True, "items 1 to 9 are on disk"))
    assert answers.yes
    assert answers.answers[0].evidence.startswith("items 1 to 9 are on disk; orders/1 READY since")


def test_every_yes_tells_what_it_rests_on() -> None:
    assert [answer.evidence for answer in verdict().answers] == [
        "orders/1 READY since 2025-11-12T00:00:00.000Z",
        "orders/1 unchanged since it was published",
        "orders/1 at /data/o; totals/1 goes to /data/t",
        "orders/1 validated at 2025-11-12T01:00:00.000Z",
        "nobody else produces or reads its outputs",
    ]


def test_checks_that_were_passed_are_not_asked_for_again_and_those_of_nothing_are_not_missed() -> None:
    checked = SEEN._replace(has_checks=True)
    assert verdict(sight=checked).yes
    absent = verdict(READY._replace(status=None, validated_at=None), checked)
    assert absent.answers[3].evidence == "not known before orders/1 is READY", "no reason of its own"


def test_data_of_which_one_fingerprint_is_not_known_are_asserted() -> None:
    for chunk, sight in ((READY._replace(fingerprint=None), SEEN), (READY, SEEN._replace(fingerprint=None))):
        assert verdict(chunk, sight).answers[1] == Answer(Question.RIGHT, True, f"orders/1 {ASSERTED}")


def test_a_place_that_is_gone_is_not_also_told_as_changed() -> None:
    answers = verdict(sight=Sight("/data/o", "/data/o is gone", "changed"))
    assert answers.answers[1].yes
    assert answers.exit_code == 12


@pytest.mark.parametrize(("count", "told"), [(5, ["4"]), (6, ["… 1 more …", "5"]), (9, ["… 4 more …", "8"])])
def test_many_chunks_are_told_by_the_first_four_and_the_last(count: int, told: list[str]) -> None:
    absent = READY._replace(status=None, producer="")
    inputs = tuple(absent._replace(key=ChunkKey("p", "o", str(number))) for number in range(count))
    candidate = Candidate("load", "1", JobStatus.PENDING, 0, 0, None, None, None, 0, inputs, ())
    ready, right, *_ = ask(candidate, sights=(SEEN,) * count, places=(), concurrency=None).answers
    shown = [*"0123", *told]
    assert ready.evidence.split("; ") == [f"o/{one} is not there yet" if one.isdigit() else one for one in shown]
    assert (
        right.evidence
        == f"not known before {', '.join(f'o/{one}' if one.isdigit() else one for one in shown)} is READY"
    )


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

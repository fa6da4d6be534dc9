"""Resubmit: dataids, ticked ones, all that failed, a window or an outage; with what reads them, if asked."""

from typing import Any, Literal

from opendataflow.domain.words import number_of
from opendataflow.errors import UsageError
from opendataflow.operations.selection import Chosen, choose
from opendataflow.server.action import Acting, Action, Asked, Done, Field, Plan
from opendataflow.server.action_params import (
    MOST_ROWS,
    Several,
    Word,
    Words,
    counted,
    get_job,
    read_keys,
    target_of,
    who_works,
)
from opendataflow.store.operations import Key, resubmit
from opendataflow.store.records.accounts import Role

READERS_OF = 500  # dataids whose readers a plan looks for
_FOLLOW = ("leave", "follow", "all")


class ResubmitAsked(Asked):
    """Which dataids, in one of these ways: `job` with `dataid`s; `key`s; `failed`; `since` and `until`; `outage`;
    `stale`.

    What is stale has its readers follow if they come out different.
    """

    project: Word | None = None
    job: Word | None = None
    dataid: Words = Several()
    key: Words = Several()  # project/job/dataid
    failed: bool = False
    since: Word | None = None
    until: Word | None = None
    outage: Word | None = None  # 02:10..03:40
    stale: bool = False  # all that is older than an input, its code or a check
    made_by: Word | None = None  # with `stale`: only what this commit made
    readers: Literal["leave", "follow", "all"] = "leave"  # what read them: if they come out different, or in any case


def choose_keys(acting: Acting, asked: ResubmitAsked) -> Chosen:
    if asked.key:
        if asked.dataid or asked.failed or asked.since or asked.until or asked.outage or asked.stale:
            raise UsageError(
                "give keys, or a job's dataids, or what failed or is stale, or an outage; not several of them"
            )
        return Chosen(read_keys(asked.key), None, {})
    if asked.job is not None:
        get_job(acting, asked.project, asked.job)
    return choose(
        acting.store, asked.project, asked.job, asked.dataid, failed=asked.failed, since=asked.since, until=asked.until,
        outage=asked.outage, stale=asked.stale, made_by=asked.made_by,
    )  # fmt: skip


def describe(acting: Acting, asked: ResubmitAsked) -> Plan:
    if _must_ask(asked):
        fields = (
            Field(
                "outage", "The outage, from..to (UTC)", hint="02:10..03:40, 02:10..now, or full times", required=True
            ),
            _readers_field(asked),
        )
        whose = asked.job or asked.project or "all jobs"
        return Plan(
            f"Do again all of {whose} that ran, failed, was blocked or was published in an outage.", fields=fields
        )
    chosen = choose_keys(acting, asked)
    store = acting.store
    done = resubmit(store, chosen.keys, only=chosen.only, downstream=asked.readers == "all", dry_run=True)
    if not done:
        return Plan(f"Nothing to resubmit{_within(chosen)}.", possible=False)
    changed = [one for one in done if one["status"] == "RESUBMIT" and one["before"] != "RESUBMIT"]
    again = [one for one in done if one["again"]]
    same = len(done) - len(changed) - len(again)
    says = [f"{number_of(len(done), 'dataid')} of {_jobs(done)}{_within(chosen)} {'is' if len(done) == 1 else 'are'} "
            f"made again ({counted(one['before'] for one in done)}); consumers wait for the new output."]  # fmt: skip
    if again:
        says.append(f"{number_of(len(again), 'dataid')} run now, and once more afterwards.")
    if same:
        says.append(f"{number_of(same, 'dataid')} stay as they are: pending, on hold, or to be made again already.")
    readers = _count_readers(acting, chosen, asked)
    if readers:
        says.append(readers)
    says.append(who_works(acting, {one["jobid"] for one in done}))
    rows = [_row(one, chosen) for one in done[:MOST_ROWS]]
    if len(done) > MOST_ROWS:
        rows.append((f"and {len(done) - MOST_ROWS:,} more", "", "", ""))
    return Plan(" ".join(says), ("job", "dataid", "is", "becomes"), rows, (_readers_field(asked),))


def _must_ask(asked: ResubmitAsked) -> bool:
    return not (asked.key or asked.dataid or asked.failed or asked.since or asked.until or asked.outage or asked.stale)


def _readers_field(asked: ResubmitAsked) -> Field:
    return Field(
        "readers", "What read them: leave it; let it follow if they come out different; or do all of it again at once",
        choices=_FOLLOW, value=asked.readers,
    )  # fmt: skip


def _within(chosen: Chosen) -> str:
    return f", in the outage {chosen.window[0]} to {chosen.window[1]}" if chosen.window else ""


def _jobs(done: list[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(one["jobid"] for one in done))
    return ", ".join(names[:4]) + (f" and {number_of(len(names) - 4, 'more job')}" if len(names) > 4 else "")


def _row(one: dict[str, Any], chosen: Chosen) -> tuple[str, str, str, str]:
    because = chosen.why(one)
    after = "RUNNING, then again" if one["again"] else one["status"]
    return one["jobid"], one["dataid"], one["before"], f"{after} ({because})" if because else after


def _count_readers(acting: Acting, chosen: Chosen, asked: ResubmitAsked) -> str:
    """How much reads them."""
    if asked.readers == "all" or len(chosen.keys) > READERS_OF:
        return ""
    found = resubmit(acting.store, chosen.keys, only=chosen.only, cascade=True, dry_run=True)
    number = sum(one["if_changed"] for one in found)
    if not number:
        return "Nothing else has read them."
    told = f"{number_of(number, 'dataid')} read them, or what was made of them"
    return f"{told}, and {'follow' if number > 1 else 'follows'} if they come out different." if (
        asked.readers == "follow" or asked.stale
    ) else f"{told}; choose below what becomes of that."  # fmt: skip


def perform(acting: Acting, asked: ResubmitAsked) -> Done:
    chosen = choose_keys(acting, asked)
    done = resubmit(
        acting.store, chosen.keys, only=chosen.only,
        cascade=asked.readers == "follow" or (asked.stale and asked.readers == "leave"),
        downstream=asked.readers == "all",
    )  # fmt: skip
    told = counted("to run again after this run" if one["again"] else one["status"] for one in done) or "nothing to do"
    target = target_of(Key(one["project"], one["jobid"], one["dataid"]) for one in done)
    changed = [{**one, "why": chosen.why(one)} for one in done[:MOST_ROWS]]
    says = f"Resubmitted {number_of(len(done), 'dataid')}: {told}." if done else "There was nothing to resubmit."
    return Done(says, target, {"number": len(done), "changed": changed})


RESUBMIT = Action("resubmit", "Resubmit", Role.OPERATOR, ResubmitAsked, describe, perform)

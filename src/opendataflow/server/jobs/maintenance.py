"""Validate transformations, and clean the history."""

import time
from typing import Annotated

from pydantic import Field as Number

from opendataflow.domain.words import number_of
from opendataflow.errors import UsageError
from opendataflow.server.action import Acting, Action, Asked, Done, Field, Plan
from opendataflow.server.action_params import Word, get_job
from opendataflow.server.background_commands import start
from opendataflow.server.problems import NotThere
from opendataflow.store.operations import clean_history
from opendataflow.store.records.accounts import Role
from opendataflow.store.records.requests import add_request
from opendataflow.store.rows import utc_text

COUNT_SECONDS, CLEAN_SECONDS = 2.0, 10.0  # how long a plan counts, and one go cleans
PAUSE_SECONDS = 0.02  # between two batches: runners that wait for the store get their turn
DAY = 86_400


class ValidateAsked(Asked):
    project: Word
    job: Word | None = None  # none: all pipelines of the project


class CleanAsked(Asked):
    project: Word
    job: Word | None = None
    days_old: Annotated[float, Number(ge=0, le=36_500)] | None = None  # only what ended so long ago


# Validate -------------------------------------------------------------------------------------------------------------
def _home(acting: Acting, asked: ValidateAsked) -> str:
    """The folder of the project's code."""
    if asked.job is not None:
        job = get_job(acting, asked.project, asked.job)
        if job.kind != "pipeline":
            raise UsageError(f"{job.jobid} is a script; pipelines have transformations to validate")
        return job.home
    places = acting.store.list_places(asked.project)
    if not places:
        raise NotThere(f"there is no project {asked.project}")
    return places[0].home


def describe_validate(acting: Acting, asked: ValidateAsked) -> Plan:
    home = _home(acting, asked)
    what = f"of {asked.job}" if asked.job else f"of every pipeline of {asked.project}"
    return Plan(
        f"A process of its own runs every transformation {what}, in {home}, on its expected inputs, and compares what "
        "comes out. Nothing is registered or published; Spark needs some seconds to start."
    )


def perform_validate(acting: Acting, asked: ValidateAsked) -> Done:
    home = _home(acting, asked)
    number = add_request(acting.store, "validate", asked.project, asked.job or "")
    argv = ["validate", "--verbose", *([asked.job] if asked.job else [])]
    start(acting.address.store, number, argv, home=home, environment=acting.store.environment)
    return Done(f"Validation {number} has begun.", f"{asked.project}/{asked.job or 'all'}", {"request": number},
                then=f"/requests/{number}")  # fmt: skip


# Clean history --------------------------------------------------------------------------------------------------------
def _clean(acting: Acting, asked: CleanAsked, *, dry_run: bool, seconds: float) -> tuple[int, int, bool]:
    """Runs and changes, and whether that was all."""
    if asked.job is not None:
        get_job(acting, asked.project, asked.job)
    store = acting.store
    before = utc_text(store.clock() - asked.days_old * DAY) if asked.days_old is not None else None
    give_up = time.monotonic() + seconds
    runs = changes = 0
    for batch in clean_history(store, asked.project, jobid=asked.job, before=before, dry_run=dry_run):
        runs, changes = runs + batch.runs, changes + batch.history
        if time.monotonic() > give_up:
            return runs, changes, False
        if not dry_run:
            time.sleep(PAUSE_SECONDS)
    return runs, changes, True


def describe_clean(acting: Acting, asked: CleanAsked) -> Plan:
    field = Field("days_old", "Only what ended at least so many days ago", kind="number", value=_text(asked.days_old))
    if asked.days_old is None:
        days = Field("days_old", field.label, kind="number", value="90", required=True)
        return Plan(f"Remove the records of old runs and changes of {_of(asked)}.", fields=(days,))
    runs, changes, is_all = _clean(acting, asked, dry_run=True, seconds=COUNT_SECONDS)
    number = f"{number_of(runs, 'run')} and {number_of(changes, 'change')}"
    says = (
        f"{number if is_all else f'More than {number}'} of {_of(asked)} go: what ended {asked.days_old:g} days ago or "
        "earlier. Where jobs and chunks stand, what runs, and the last run of all that failed stays."
    )
    return Plan(says, fields=(field,), possible=bool(runs or changes))


def _of(asked: CleanAsked) -> str:
    return asked.job or f"project {asked.project}"


def _text(days: float | None) -> str:
    return "" if days is None else f"{days:g}"


def perform_clean(acting: Acting, asked: CleanAsked) -> Done:
    if asked.days_old is None:
        raise UsageError("how old? give days_old: 0 removes all that has ended")
    runs, changes, is_all = _clean(acting, asked, dry_run=False, seconds=CLEAN_SECONDS)
    says = f"Removed {number_of(runs, 'run')} and {number_of(changes, 'change')} of {_of(asked)}."
    says += "" if is_all else " There is more: go on with the same again."
    return Done(says, f"{asked.project}/{asked.job or 'all'}", {"runs": runs, "changes": changes, "is_all": is_all})


VALIDATE = Action("validate", "Validate", Role.OPERATOR, ValidateAsked, describe_validate, perform_validate)
CLEAN = Action("clean-history", "Clean history", Role.ADMIN, CleanAsked, describe_clean, perform_clean, is_grave=True)

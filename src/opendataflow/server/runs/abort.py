"""Abort: have runs ended that are under way."""

from opendataflow.domain.streams import find_settings
from opendataflow.domain.words import number_of
from opendataflow.errors import UsageError
from opendataflow.server.action import Acting, Action, Asked, Done, Plan
from opendataflow.server.action_params import Numbers, Several, Word, get_job, target_of
from opendataflow.store.operations import Key
from opendataflow.store.records.accounts import Role
from opendataflow.store.records.requests import Live, ask_abort, find_live, get_live


class AbortAsked(Asked):
    """`run`s, or the run of a job's dataid."""

    run: Numbers = Several()
    project: Word | None = None
    job: Word | None = None
    dataid: Word | None = None


def _find(acting: Acting, asked: AbortAsked) -> list[Live]:
    if asked.run:
        found = [get_live(acting.store, number) for number in dict.fromkeys(asked.run)]
    elif asked.job is not None and asked.dataid is not None:
        job = get_job(acting, asked.project, asked.job)
        live = find_live(acting.store, Key(job.project, job.jobid, asked.dataid))
        if live is None:
            raise UsageError(f"{asked.job}/{asked.dataid} is not running")
        found = [live]
    else:
        raise UsageError("which run? give its number, or a job and a dataid")
    for live in found:
        if find_settings(acting.store.get_job(live.key.jobid, project=live.key.project)):
            raise UsageError(f"{live.key.jobid} is a stream: pause it, and its batch comes to its end")
    return found


def describe(acting: Acting, asked: AbortAsked) -> Plan:
    try:
        found = _find(acting, asked)
    except UsageError as error:
        return Plan(f"{error}.", possible=False)
    are = "is" if len(found) == 1 else "are"
    says = [
        f"{number_of(len(found), 'run')} {are} ended by the owner within a second or two: FAILED, aborted by "
        f"{acting.store.actor}, and not tried again. One that completes before stays COMPLETE."
    ]
    if any(live.again for live in found):
        says.append("What was resubmitted meanwhile runs again afterwards.")
    if any(live.is_expired for live in found):
        says.append("An owner whose lease has run out may be gone: the work then returns by itself.")
    kinds = {acting.store.get_job(live.key.jobid, project=live.key.project).kind for live in found}
    if "pipeline" in kinds:
        says.append("Runs that share its Spark process are handed back and start again.")
    rows = [(live.runid, live.key.jobid, live.key.dataid, live.owner, live.lease_until) for live in found]
    return Plan(" ".join(says), ("run", "job", "dataid", "owner", "lease until"), rows)


def perform(acting: Acting, asked: AbortAsked) -> Done:
    found = _find(acting, asked)
    heard = [live for live in found if ask_abort(acting.store, live)]
    late = len(found) - len(heard)
    says = f"Asked for the end of {number_of(len(heard), 'run')}." if heard else "It has just ended by itself."
    if heard and late:
        says += f" {number_of(late, 'run')} had just ended."
    target = target_of(live.key for live in found)
    return Done(says, target, {"asked": [live.runid for live in heard]})


ABORT = Action("abort", "Abort", Role.OPERATOR, AbortAsked, describe, perform, is_grave=True)

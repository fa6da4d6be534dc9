"""What operators do to streams: let them go on, send items again, make a time again, and give senders a new token."""

from typing import Annotated

from pydantic import Field as Number

from opendataflow.domain.job import Job
from opendataflow.domain.words import number_of
from opendataflow.errors import UsageError
from opendataflow.operations.time_parsing import moment
from opendataflow.project.address import stream_folder
from opendataflow.server.action import Acting, Action, Asked, Done, Field, Plan
from opendataflow.server.action_params import MOST_ROWS, Numbers, Several, Word
from opendataflow.server.streams.facts import get_row, has_log
from opendataflow.store.records.accounts import Role
from opendataflow.store.records.streams import counters, list_failed_batches, new_token, revoke_token
from opendataflow.streams.replay import find_failed_items, replay_failed, replay_since, resume_stream
from opendataflow.streams.state import describe, stream_status

MOST_AT_ONCE = 10_000  # items that one request sends again


class StreamAsked(Asked):
    project: Word
    stream: Word


class ReplayAsked(StreamAsked):
    """The items that were set aside: all of them, or those of these offsets."""

    offset: Annotated[Numbers, Number(max_length=MOST_AT_ONCE)] = Several()


class SinceAsked(StreamAsked):
    """Everything that was accepted since then: a time, a date (UTC), or 2h."""

    since: Word | None = None


def _job(acting: Acting, asked: StreamAsked) -> Job:
    get_row(acting.store, asked.project, asked.stream)
    return acting.store.get_job(asked.stream, project=asked.project)


def _folder(acting: Acting, job: Job, command: str) -> str:
    """Where the stream's log is, if it is here: only there can it be read and written."""
    if not has_log(acting.address, job):
        raise UsageError(
            f"the log of {job.jobid} is not on the server's machine; run `dataflow stream {command}` where its items "
            "are taken in, or give the server that folder by DATAFLOW_STREAMS"
        )
    return stream_folder(acting.address, job.project, job.jobid)


def _target(asked: StreamAsked) -> str:
    return f"{asked.project}/{asked.stream}"


# Going on -------------------------------------------------------------------------------------------------------------
def describe_resume(acting: Acting, asked: StreamAsked) -> Plan:
    job = _job(acting, asked)
    status = stream_status(acting.store, acting.address, get_row(acting.store, asked.project, asked.stream))
    failed = list_failed_batches(acting.store, job)
    says = f"{job.jobid} is {describe(status)}. Its pause ends"
    says += f", and {number_of(len(failed), 'batch') if len(failed) == 1 else f'{len(failed)} batches'} that FAILED"
    says = says + " is tried again." if failed else says.rpartition(", and")[0] + "."
    return Plan(says, ("batch",), [(one,) for one in failed[:MOST_ROWS]])


def perform_resume(acting: Acting, asked: StreamAsked) -> Done:
    lines = list(resume_stream(acting.store, _job(acting, asked)))
    return Done("; ".join(lines), _target(asked), {"said": lines})


# Doing again ----------------------------------------------------------------------------------------------------------
def describe_replay(acting: Acting, asked: ReplayAsked) -> Plan:
    job = _job(acting, asked)
    if asked.offset:
        items = find_failed_items(acting.store, job, asked.offset)
        rows = [(one.offset, one.at, (one.error.splitlines() or [""])[-1]) for one in items]
        number = len(items)
    else:
        number, rows = counters(acting.store, job).failed, []
    if not number:
        return Plan(f"No item of {job.jobid} is set aside.", possible=False)
    _folder(acting, job, f"replay {job.jobid} --failed")
    says = f"{number_of(number, 'item')} of {job.jobid} is sent again" if number == 1 else (
        f"{number_of(number, 'item')} of {job.jobid} are sent again"
    )  # fmt: skip
    return Plan(f"{says}, as new ones at the end of its log; each once, however often this is asked for.",
                ("item", "accepted", "error"), rows)  # fmt: skip


def perform_replay(acting: Acting, asked: ReplayAsked) -> Done:
    job = _job(acting, asked)
    folder = _folder(acting, job, f"replay {job.jobid} --failed")
    items = find_failed_items(acting.store, job, asked.offset or None)[:MOST_AT_ONCE]
    sent = replay_failed(acting.store, job, folder, items)
    told = [{"offset": offset, "sent_as": name} for offset, name in sent.items()]
    return Done(f"{number_of(len(sent), 'item')} sent again.", _target(asked), told)


def describe_since(acting: Acting, asked: SinceAsked) -> Plan:
    job = _job(acting, asked)
    field = Field("since", "Since (UTC)", value=asked.since or "", hint="2026-11-16T08:00, or 2h", required=True)
    folder = _folder(acting, job, f"replay {job.jobid} --since …")
    says = (
        f"Everything that {job.jobid} accepted since then is made again from its log, in order, before anything new; "
        "until then the destination's chunks of that time are closed to consumers."
    )
    if asked.since is None:
        return Plan(says, fields=(field,))
    planned = replay_since(acting.store, job, folder, moment(asked.since), dry_run=True)
    rows = [(one["jobid"], one["dataid"]) for one in planned[:MOST_ROWS]]
    if not planned:
        return Plan("Nothing came since then.", fields=(field,), possible=False)
    return Plan(f"{says} That is {len(planned):,} batches and slots.", ("job", "dataid"), rows, fields=(field,))


def perform_since(acting: Acting, asked: SinceAsked) -> Done:
    if asked.since is None:
        raise UsageError("since when? give a time like 2026-11-16T08:00, or 2h")
    job = _job(acting, asked)
    folder = _folder(acting, job, f"replay {job.jobid} --since …")
    planned = replay_since(acting.store, job, folder, moment(asked.since), dry_run=False)
    told = [{"jobid": one["jobid"], "dataid": one["dataid"]} for one in planned]
    says = f"{len(planned):,} batches and slots are made again." if planned else "Nothing came since then."
    return Done(says, _target(asked), told)


# Who may send ---------------------------------------------------------------------------------------------------------
def describe_token(acting: Acting, asked: StreamAsked) -> Plan:
    row = get_row(acting.store, asked.project, asked.stream)
    before = (
        "The one that senders have now is void at once." if row.token_hash else "Until now nobody may send over HTTP."
    )
    return Plan(f"A new token for senders to {asked.stream}. {before} It is shown once; the store keeps its hash only.")


def perform_token(acting: Acting, asked: StreamAsked) -> Done:
    token = new_token(acting.store, _job(acting, asked))
    says = f"The token for senders to {asked.stream}; they give it as `Authorization: Bearer TOKEN`."
    return Done(says, _target(asked), {"stream": asked.stream}, once=token)


def describe_revoke(acting: Acting, asked: StreamAsked) -> Plan:
    row = get_row(acting.store, asked.project, asked.stream)
    if not row.token_hash:
        return Plan(f"{asked.stream} has no token; nobody may send to it over HTTP.", possible=False)
    return Plan(f"The token of {asked.stream} is void from now on: nobody may send to it over HTTP.")


def perform_revoke(acting: Acting, asked: StreamAsked) -> Done:
    done = revoke_token(acting.store, _job(acting, asked))
    return Done(f"{asked.stream}: {'its token is void' if done else 'it had no token'}.", _target(asked), {"was": done})


ACTIONS = (
    Action("stream-resume", "Let it go on", Role.OPERATOR, StreamAsked, describe_resume, perform_resume),
    Action("stream-replay", "Send again", Role.OPERATOR, ReplayAsked, describe_replay, perform_replay),
    Action("stream-replay-since", "Make again", Role.OPERATOR, SinceAsked, describe_since, perform_since),
    Action("stream-token", "New token", Role.OPERATOR, StreamAsked, describe_token, perform_token),
    Action("stream-token-revoke", "Revoke the token", Role.OPERATOR, StreamAsked, describe_revoke, perform_revoke,
           is_grave=True),
)  # fmt: skip

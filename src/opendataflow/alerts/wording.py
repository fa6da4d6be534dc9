"""What a message says: how many of what, the causes at the root of it, the worst first, and what mends them."""

import os
from typing import Any, NamedTuple

from opendataflow.domain.alerts import Event, summary
from opendataflow.operations.blockers import blockers
from opendataflow.store.claims import LoopStore
from opendataflow.store.records.alert_messages import message_counts, name_counts
from opendataflow.store.rows import Row

SHOWN = 5  # causes, and names of each kind
LONGEST = 300  # of a reason
URL_VARIABLE = "DATAFLOW_URL"  # where people find the server


class Words(NamedTuple):
    title: str
    body: str


def words(store: LoopStore, project: str, messageid: int) -> Words:
    """The text of a message, from how things stand now."""
    counts = message_counts(store, messageid)
    rows = name_counts(store, messageid, limit=1000)
    where = f"{project} ({store.environment})" if store.environment else project
    lines = [f"{summary(counts)} in {where}."]
    wrong = {(row[2], row[3]) for row in rows if row[0] != Event.RECOVERED}
    causes = _causes(store, project, wrong) if wrong else []
    lines += causes
    for event in Event:
        if event is Event.FAILED and causes:
            continue  # they are the causes
        lines += _names(event, [row for row in rows if row[0] == event], counts.get(event, 0))
    address = os.environ.get(URL_VARIABLE, "").rstrip("/")
    lines += ["", f"See {address}/alerts" if address else "See `dataflow why` and `dataflow notify list`."]
    return Words(f"{where}: {summary(counts)}", "\n".join(lines))


def _causes(store: LoopStore, project: str, wrong: set[tuple[str, str]]) -> list[str]:
    """What is at the root of what the message tells."""
    names = {name for _, name in wrong}
    found = [one for one in blockers(store, project=project) if one["name"] in names or names & set(one["jobs"])]
    if not found:
        return []
    lines = ["", "At the root of it, the worst first:"]
    for number, one in enumerate(found[:SHOWN], 1):
        lines += [f"{number}. {_cause(one)}", f"   {one['fix']}"]
    if len(found) > SHOWN:
        lines.append(f"… and {len(found) - SHOWN} more: `dataflow why`")
    return lines


def _cause(one: dict[str, Any]) -> str:
    dataids = one["dataids"]
    which = dataids[0] if len(dataids) == 1 else f"{len(dataids)} dataids, {dataids[0]} … {dataids[-1]}"
    blocks = f", blocks {one['blocks']} of {', '.join(one['jobs'][:SHOWN])}" if one["blocks"] else ""
    return f"{one['cause']} {one['name']}/{which}{blocks}: {_short(one['reason'])}"


def _names(event: Event, rows: list[Row], number: int) -> list[str]:
    if not rows:
        return []
    lines = ["", f"{event.capitalize()} ({number}):"]
    for _, _, _, name, many, first, last, reason in rows[:SHOWN]:
        which = first if many == 1 else f"{many} dataids, {first} … {last}"
        lines.append(f"- {name}/{which}" + (f": {_short(reason)}" if reason else ""))
    if len(rows) > SHOWN:
        lines.append(f"- … and {len(rows) - SHOWN} more")
    return lines


def _short(text: str) -> str:
    one_line = " ".join(str(text).split())
    return one_line if len(one_line) <= LONGEST else f"{one_line[:LONGEST]} …"


def words_of_test(project: str, environment: str, jobid: str | None) -> Words:
    """Of a message that somebody asked for to see whether it comes."""
    where = f"{project} ({environment})" if environment else project
    what = f"the job {jobid}" if jobid else "the project"
    return Words(f"{where}: a test", f"This is a test of `notify:` of {what}. Nothing is wrong.")

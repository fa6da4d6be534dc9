"""What must hold after a storm over a stream: from the clients' journals, the log, the destination and the store.

Each judge is a function of the facts, and gives one line.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from support.chaos.invariants import Invariant
from support.chaos.services import StreamHit
from support.chaos.stream_plan import DISK, GIVES_UP, SERVER, Request, text_of

LATER = (408, 429, 503, 507)
Name = tuple[str, int]  # an item: its client and its number


class Answer(NamedTuple):
    sent_at: float
    at: float
    status: int
    first: int | None  # the offset of the first item
    length: int | None
    is_repeated: bool


@dataclass(frozen=True, slots=True)
class Sent:
    """A request with what its client wrote down of it."""

    client: str
    request: Request
    answers: tuple[Answer, ...]
    sent: int = 1  # how often
    lost: int = 0  # answers that never came

    @property
    def names(self) -> list[Name]:
        return [(self.client, number) for number in self.request.numbers]

    @property
    def accepted(self) -> Answer | None:
        return next((one for one in self.answers if one.status == 202), None)

    @property
    def name(self) -> str:
        return f"{self.client}/{self.request.first}+{self.request.length}"


class Logged(NamedTuple):
    """A line of the log: a request."""

    first: int
    key: str | None
    items: tuple[tuple[str, int, str], ...]


@dataclass(frozen=True, kw_only=True)
class StreamFacts:
    """Everything that was written down, read once."""

    sent: list[Sent]
    log: list[Logged]
    rows: list[tuple[str, int, str]]  # of the destination
    is_in_order: bool  # the destination keeps an order: files do, tables do not
    aside: list[tuple[int, dict[str, Any]]]  # offset and item of what was set aside
    bad: set[Name] = field(default_factory=set)
    batches: list[tuple[int, int, str]] = field(default_factory=list)  # range and status
    publishes: Counter[str] = field(default_factory=Counter)
    status: dict[str, Any] = field(default_factory=dict)  # dataflow stream status --json
    problems: list[str] = field(default_factory=list)  # dataflow db check
    hits: list[StreamHit] = field(default_factory=list)
    published_at: list[float] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.log[-1].first + len(self.log[-1].items) if self.log else 0

    def times(self) -> Counter[Name]:
        """How often each item came out: published, or set aside with its error."""
        out = Counter((client, number) for client, number, _ in self.rows)
        out.update((str(item["client"]), int(item["number"])) for _, item in self.aside)
        return out


def judge_stream(facts: StreamFacts) -> list[Invariant]:
    return [
        acknowledged_once(facts),
        unacknowledged_at_most_once(facts),
        resent_once(facts),
        whole_requests(facts),
        order_kept(facts),
        destination_is_the_log(facts),
        bad_ones_set_aside(facts),
        ranges_published_once(facts),
        only_known_answers(facts),
        counters_agree(facts),
    ]


# Items ----------------------------------------------------------------------------------------------------------------
def acknowledged_once(facts: StreamFacts) -> Invariant:
    """Each item of an answer 202 came out once, and is in the log under the id that the answer gave it."""
    times, places = facts.times(), _places(facts)
    wrong, items, repeats = [], 0, 0
    for one in facts.sent:
        answer = one.accepted
        if answer is None:
            continue
        items += one.request.length
        repeats += sum(again.is_repeated for again in one.answers)
        if answer.length != one.request.length or answer.first is None:
            wrong.append(f"{one.name} was answered with {answer.length} ids")
            continue
        wrong += [f"{'/'.join(map(str, name))} came out {times[name]} times" for name in one.names if times[name] != 1]
        ids = [answer.first + n for n in range(one.request.length)]
        if [places[name] for name in one.names] != [[offset] for offset in ids]:
            wrong.append(f"{one.name} was told {ids[0]}, and is at {[places[name] for name in one.names][:3]}")
    fact = f"{items} items of {_count(facts, is_accepted=True)} requests, {repeats} answers told the ids again"
    return Invariant("every acknowledged item exactly once in the destination", fact, tuple(wrong))


def unacknowledged_at_most_once(facts: StreamFacts) -> Invariant:
    times = facts.times()
    names = [name for one in facts.sent if one.accepted is None for name in one.names]
    wrong = [f"{client}/{number} came out {times[client, number]} times" for client, number in names
             if times[client, number] > 1]  # fmt: skip
    there = sum(times[name] for name in names)
    fact = f"{len(names)} items of {_count(facts, is_accepted=False)} requests, {there} of them are there"
    return Invariant("unacknowledged ones at most once", fact, tuple(wrong))


def resent_once(facts: StreamFacts) -> Invariant:
    """Whoever lost an answer and sent the same again with its key was answered in the end, and is there once."""
    times = facts.times()
    again = [one for one in facts.sent if one.request.key and one.lost and one.request.quirk != GIVES_UP]
    wrong = [f"{one.name} was never answered" for one in again if one.accepted is None]
    wrong += [f"{client}/{number} came out {times[client, number]} times" for one in again
              for client, number in one.names if times[client, number] != 1]  # fmt: skip
    for one in facts.sent:
        told = {(answer.first, answer.length) for answer in one.answers if answer.status == 202}
        if len(told) > 1:
            wrong.append(f"{one.name} was told different ids: {sorted(map(str, told))}")
    known = sum(any(answer.is_repeated for answer in one.answers) for one in again)
    items = sum(one.request.length for one in again)
    fact = f"{items} items of {len(again)} requests, {known} of which were there before they were sent again"
    return Invariant("exactly once when re-sent with the same key", fact, tuple(wrong))


def whole_requests(facts: StreamFacts) -> Invariant:
    """A line of the log is a request as it was sent: all of it, its key, and each text to the letter."""
    asked = {(one.client, one.request.first): one for one in facts.sent}
    wrong = []
    for line in facts.log:
        client, first, _ = line.items[0]
        one = asked.get((client, first))
        expected = [(*name, text_of(*name, is_bad=name in facts.bad)) for name in one.names] if one else []
        if one is None or list(line.items) != expected or line.key != one.request.key:
            wrong.append(f"offset {line.first} holds {len(line.items)} items from {client}/{first}, key {line.key!r}")
    return Invariant("a request is accepted whole or not at all", f"{len(facts.log)} lines of the log", tuple(wrong))


def order_kept(facts: StreamFacts) -> Invariant:
    wrong = _disorder(((client, number) for line in facts.log for client, number, _ in line.items), "the log")
    if facts.is_in_order:
        wrong += _disorder(((client, number) for client, number, _ in facts.rows), "the destination")
    fact = f"{len({one.client for one in facts.sent})} clients, in the log"
    fact += " and in the destination" if facts.is_in_order else "; a table has no order"
    return Invariant("order kept per client", fact, tuple(wrong))


def _disorder(names: Iterable[Name], where: str) -> list[str]:
    last: dict[str, int] = {}
    wrong = []
    for client, number in names:
        if number <= last.get(client, -1):
            wrong.append(f"{client}/{number} after {client}/{last[client]} in {where}")
        last[client] = number
    return wrong


def destination_is_the_log(facts: StreamFacts) -> Invariant:
    """Nothing came out that is not in the log, nothing of it is missing, every text is what was sent."""
    aside = {offset for offset, _ in facts.aside}
    expected = [item for line in facts.log for offset, item in enumerate(line.items, line.first) if offset not in aside]
    found, wanted = Counter(facts.rows), Counter(expected)
    wrong = [f"{n} too many of {client}/{number}" for (client, number, _), n in (found - wanted).items()]
    wrong += [f"{n} missing of {client}/{number}" for (client, number, _), n in (wanted - found).items()]
    if not wrong and facts.is_in_order and facts.rows != expected:
        wrong.append("the rows are not in the order of the log")
    return Invariant("the destination holds what the log holds", f"{len(facts.rows)} rows", tuple(wrong))


def bad_ones_set_aside(facts: StreamFacts) -> Invariant:
    """Exactly the items that the transformation fails on, and were accepted, are set aside under their offsets."""
    expected = {
        (offset, client, number)
        for line in facts.log
        for offset, (client, number, _) in enumerate(line.items, line.first)
        if (client, number) in facts.bad
    }
    found = Counter((offset, str(item["client"]), int(item["number"])) for offset, item in facts.aside)
    wrong = [f"{one} is set aside {n} times" for one, n in found.items() if n > 1 or one not in expected]
    wrong += [f"{one} is not set aside" for one in expected - found.keys()]
    return Invariant("only items that fail are set aside", f"{len(facts.aside)} items", tuple(wrong))


# Batches --------------------------------------------------------------------------------------------------------------
def ranges_published_once(facts: StreamFacts) -> Invariant:
    """Ranges follow each other without a gap or an overlap up to the end of the log, each READY once."""
    wrong, at = [], 0
    for start, end, status in sorted(facts.batches):
        if status != "COMPLETE":
            wrong.append(f"{start}-{end} is {status}")
        if start != at:
            wrong.append(f"a batch begins at {start}, the one before it ends at {at}")
        at = end
    if at != facts.end:
        wrong.append(f"the batches end at {at}, the log at {facts.end}")
    wrong += [f"{dataid} was published {n} times" for dataid, n in facts.publishes.items() if n != 1]
    if len(facts.publishes) != len(facts.batches):
        wrong.append(f"{len(facts.publishes)} published chunks of {len(facts.batches)} batches")
    return Invariant("every range published exactly once", f"{len(facts.batches)} batches", tuple(wrong))


def only_known_answers(facts: StreamFacts) -> Invariant:
    """A good request is accepted or put off: never refused, never an error."""
    found = Counter(answer.status for one in facts.sent for answer in one.answers)
    wrong = [f"{n} answers {status}" for status, n in found.items() if status not in (202, *LATER)]
    told = ", ".join(f"{n} × {status}" for status, n in sorted(found.items()))
    lost = sum(one.lost for one in facts.sent)
    return Invariant("answers are 202 or 'later'", f"{told}; {lost} were lost", tuple(wrong))


def counters_agree(facts: StreamFacts) -> Invariant:
    expected = {
        "accepted": facts.end, "processed": facts.end, "failed": len(facts.aside), "replayed": 0, "lag_items": 0,
        "state": "STOPPED",
    }  # fmt: skip
    wrong = [f"{name} is {facts.status.get(name)}, not {value}" for name, value in expected.items()
             if facts.status.get(name) != value]  # fmt: skip
    told = "stream status: " + ", ".join(f"{name} {facts.status.get(name)}" for name in expected)
    return Invariant("counters agree", f"{told}; db check", (*wrong, *facts.problems))


# Times ----------------------------------------------------------------------------------------------------------------
def stream_recovery(facts: StreamFacts) -> dict[str, list[float]]:
    """By what was hit: seconds to the next answer (server, disk) or to the next publish (query)."""
    answers = [answer for one in facts.sent for answer in one.answers if answer.status in (202, 429)]
    found: dict[str, list[float]] = defaultdict(list)
    for hit in facts.hits:
        if hit.whom in (SERVER, DISK):
            later = [answer.at for answer in answers if answer.sent_at > hit.at]
        else:
            later = [at for at in facts.published_at if at > hit.at]
        if later:
            found[hit.whom].append(min(later) - hit.at)
    return found


# Reading --------------------------------------------------------------------------------------------------------------
def read_sent(client: str, requests: list[Request], journal: Path) -> list[Sent]:
    """The requests of a client with what its journal says of each; those it never came to are left out."""
    answers: dict[int, list[Answer]] = defaultdict(list)
    sent, lost, sent_at = Counter[int](), Counter[int](), 0.0
    for line in journal.read_text().splitlines():
        what, number, at, *more = json.loads(line)
        if what == "answered":
            status, first, count, is_repeated = more
            offset = int(str(first).rpartition("-")[2]) if first is not None else None
            answers[number].append(Answer(sent_at, at, status, offset, count, is_repeated))
        sent_at = at if what == "sent" else sent_at
        sent[number] += what == "sent"
        lost[number] += what == "lost"
    return [
        Sent(client, request, tuple(answers[number]), sent[number], lost[number])
        for number, request in enumerate(requests)
        if sent[number]
    ]


def _places(facts: StreamFacts) -> dict[Name, list[int]]:
    """The offsets at which each item is in the log."""
    found: dict[Name, list[int]] = defaultdict(list)
    for line in facts.log:
        for offset, (client, number, _) in enumerate(line.items, line.first):
            found[client, number].append(offset)
    return found


def _count(facts: StreamFacts, *, is_accepted: bool) -> int:
    return sum((one.accepted is not None) is is_accepted for one in facts.sent)

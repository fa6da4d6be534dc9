"""What happens in a storm over a stream: what each client sends, and which faults come when. All of it from the seed.

The moment of a fault is a part of the items: of those acknowledged for what hits the server, of those published for
what hits the query. So a slow machine gets the same storm.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

SERVER, DISK = "the server", "the disk"
RUNNER, GUARD, CHILD, JVM, TREE = "the runner", "the guard", "the Spark child", "the JVM", "the runner with its guard"
KEEPER = "the keeper of Spark"
QUERY = (RUNNER, GUARD, CHILD, JVM, KEEPER, TREE)

# What a client does with a request, beside sending it until it is answered.
HANGS_UP, AGAIN, GIVES_UP = "hangs up", "again", "gives up"
SINGLE, ARRAY, LINES = "single", "array", "lines"


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamSize:
    """How large a storm is."""

    items: int  # of all clients together
    server_kills: int
    query_kills: int
    full_disks: int
    bad: int  # items on which the transformation fails
    most: dict[str, int]  # items of a request, by its form
    max_batch: int
    backlog: int
    clients: int = 8


FULL_STREAM = StreamSize(
    items=100_000, server_kills=5, query_kills=6, full_disks=2, bad=16,
    most={SINGLE: 1, ARRAY: 40, LINES: 100}, max_batch=1_000, backlog=8_000,
)  # fmt: skip
SMALL_STREAM = StreamSize(
    items=2_000, server_kills=5, query_kills=1, full_disks=0, bad=2,
    most={SINGLE: 1, ARRAY: 12, LINES: 24}, max_batch=150, backlog=500,
)  # fmt: skip


class Request(NamedTuple):
    """What a client sends at once: its items first … first + length - 1."""

    first: int
    length: int
    form: str
    key: str | None
    quirk: str = ""

    @property
    def numbers(self) -> range:
        return range(self.first, self.first + self.length)


class StreamFault(NamedTuple):
    """Something that happens when this part of the items is there."""

    at: float
    whom: str
    after_seconds: float = 0.0  # a kill: so long after that moment, anywhere in what goes on then
    seconds: float = 0.0  # a full disk: so long


def draw_faults(size: StreamSize, seed: int) -> list[StreamFault]:
    """In order. The first and the last part of the items are left calm."""
    rng = random.Random(seed)
    whole_rounds, rest = divmod(size.query_kills, len(QUERY))
    killed = [*QUERY * whole_rounds, *rng.sample(QUERY, rest)]
    rng.shuffle(killed)
    found = [StreamFault(at, SERVER, rng.uniform(0.0, 0.1)) for at in _spread(rng, size.server_kills)]
    found += [
        StreamFault(at, whom, rng.uniform(0.0, 0.6)) for whom, at in zip(killed, _spread(rng, len(killed)), strict=True)
    ]
    found += [StreamFault(at, DISK, seconds=rng.uniform(0.5, 1.5)) for at in _spread(rng, size.full_disks)]
    return sorted(found)


def _spread(rng: random.Random, n: int) -> list[float]:
    """So many moments, one in each part of the work: a fault is not hidden by the one before it."""
    return [0.05 + 0.85 * (number + rng.random()) / n for number in range(n)]


def draw_requests(size: StreamSize, seed: int, client: int) -> list[Request]:
    """What this client sends, one after the other."""
    return list(_requests(size, random.Random(seed * 1_000 + client), client))


def _requests(size: StreamSize, rng: random.Random, client: int) -> Iterator[Request]:
    total, first = size.items // size.clients, 0
    while first < total:
        form = rng.choice([SINGLE, SINGLE, ARRAY, LINES])
        count = min(rng.randint(1, size.most[form]), total - first)
        key = f"client {client}: {first}" if rng.random() < 0.7 else None
        quirk = rng.choices(["", HANGS_UP, AGAIN, GIVES_UP], [14, 2, 2, 2])[0] if key else ""
        yield Request(first, count, form, key, quirk)
        first += count


def draw_bad(size: StreamSize, seed: int) -> set[tuple[str, int]]:
    """The items on which the transformation fails, by client and number."""
    rng, each = random.Random(seed + 1), size.items // size.clients
    found: set[tuple[str, int]] = set()
    while len(found) < size.bad:
        found.add((str(rng.randrange(size.clients)), rng.randrange(each)))
    return found


def text_of(client: str, number: int, *, is_bad: bool) -> str:
    """What an item says: nothing that anybody should execute, cut or translate."""
    return f'{"bad" if is_bad else "good"} {client}/{number} \'); DROP TABLE leads; --\n\t"ünï" $HOME ${{x}} \\ \u2028'

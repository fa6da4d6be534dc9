"""A stream from a Kafka topic: a batch is a range of offsets of each partition, read in Spark's tasks.

The brokers are those of the client library, in a process of their own.
"""

import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.processes import wait_for
from support.projects import Project
from support.streams import SLUG, Stream, running
from support.topics import PARTITIONS, Brokers, brokers

PANDAS = """\
import pandas as pd


def run(df, stream=None):
    if stream["email"] == "bad":
        raise ValueError("no address")
    return pd.DataFrame([{"id": stream["id"], "email": stream["email"].lower()}])
"""


@pytest.fixture
def kafka() -> Iterator[Brokers]:
    with brokers() as started:
        yield started


@pytest.fixture
def leads(sqlite_project: Project, kafka: Brokers) -> Stream:
    return Stream(sqlite_project, source=f'from: {{kafka: {{servers: "{kafka.servers}", topic: new}}}}')


def lead(number: int, email: str = "A{}@X.ORG") -> dict[str, object]:
    return {"id": number, "email": email.format(number), "city": "Oslo"}


def ids(stream: Stream) -> list[int]:
    return sorted(int(row["id"]) for row in stream.rows())


def drain(stream: Stream) -> None:
    done = stream.project.dataflow("run", SLUG, "--drain", timeout=300)
    assert done.returncode == 0, done.stderr


def test_every_record_is_published_once_whatever_dies(leads: Stream, kafka: Brokers) -> None:
    held = leads.project.folder / "held"
    slow = leads.project.folder / "slow"
    kafka.write("new", [lead(number) for number in range(100)])
    slow.touch()
    with running(leads) as runner:
        wait_for(held.exists, "a batch is being made", seconds=180)
        runner.send_signal(signal.SIGKILL)
        runner.wait(60)
    # The batch that was begun keeps its records, although there are others that would be shared out differently.
    kafka.write("new", [lead(number) for number in range(100, 130)], partitions=1)
    slow.unlink()
    held.unlink()
    drain(leads)
    assert ids(leads) == list(range(130))
    parts = leads.project.sql(
        "SELECT partition_no, start_offset, end_offset FROM stream_topic_part ORDER BY partition_no, dataid"
    )
    for partition, count in enumerate([25 + 30, 25, 25, 25]):
        bounds = [(start, end) for one, start, end in parts if one == partition]
        assert bounds[0][0] == 0
        assert bounds[-1][1] == count
        assert all(end == start for (_, end), (start, _) in itertools.pairwise(bounds))
    sizes = leads.project.sql("SELECT sum(end_offset - start_offset) FROM stream_topic_part GROUP BY dataid")
    assert max(size for (size,) in sizes) <= 40  # max_batch

    drain(leads)  # nothing is new
    kafka.write("new", [lead(130)], partitions=2)
    with running(leads) as runner:
        wait_for(lambda: ids(leads) == list(range(131)) or runner.poll() is not None, "it goes on", seconds=180)
        children = Path(f"/proc/{runner.pid}/task/{runner.pid}/children").read_text().split()
        os.kill(runner.pid, signal.SIGTERM)
        assert runner.wait(60) == 128 + signal.SIGTERM
        assert children
    assert ids(leads) == list(range(131))
    (status,) = leads.project.json("stream", "status")
    assert (status["accepted"], status["processed"], status["lag_items"]) == (131, 131, 0)


def test_records_that_fail_are_set_aside_as_they_are_and_made_again_with_their_batch(
    leads: Stream, kafka: Brokers
) -> None:
    values = [lead(0), "no JSON", None, {"id": "x", "email": "b"}, [lead(4), lead(5)], lead(6, "nobody {}"), lead(7)]
    kafka.write("new", values, partitions=1)  # type: ignore[arg-type]
    drain(leads)
    assert ids(leads) == [0, 7]
    failed = {one["offset"]: one for one in leads.project.json("stream", "failed", SLUG)}
    assert {number: one["item"] for number, one in failed.items()} == dict(
        enumerate(["no JSON", None, {"id": "x", "email": "b"}, [lead(4), lead(5)], lead(6, "nobody {}")], 1)
    )
    assert failed[1]["error"].startswith("the record does not fit the stream's schema: ")
    assert failed[2]["error"] == "the record has no value"
    assert "no address: nobody 6" in failed[5]["error"]

    clean = leads.project.folder / "pipelines" / SLUG / "clean.py"
    clean.write_text(clean.read_text().replace('~F.col("email").contains("@")', "F.lit(False)"))
    done = leads.project.dataflow("stream", "replay", SLUG, "--failed")
    assert done.returncode == 0, done.stderr
    drain(leads)
    assert ids(leads) == [0, 6, 7]
    assert {one["offset"] for one in leads.project.json("stream", "failed", SLUG)} == {1, 2, 3, 4}


def test_pandas_gets_the_records_one_by_one(sqlite_project: Project, kafka: Brokers) -> None:
    source = f'returns: items\n      from: {{kafka: {{servers: "{kafka.servers}", topic: new}}}}'
    stream = Stream(sqlite_project, source=source, settings="engine: pandas")
    stream.project.write(f"pipelines/{SLUG}/clean.py", PANDAS)
    kafka.write("new", [*(lead(number) for number in range(8)), lead(8, "bad")])
    drain(stream)
    assert ids(stream) == list(range(8))
    assert [one["offset"] for one in stream.project.json("stream", "failed", SLUG)] == [2]  # the third of partition 0


def test_what_retention_removed_stops_the_stream_or_is_skipped_and_brokers_that_are_away_are_waited_for(
    leads: Stream, kafka: Brokers
) -> None:
    kafka.write("new", [lead(number) for number in range(PARTITIONS * 2)])
    drain(leads)
    # As if the stream had read further than the topic reaches: it was made anew.
    leads.project.sql("UPDATE stream_topic_part SET end_offset = end_offset + 10 WHERE partition_no = 1")
    stopped = leads.project.dataflow("run", SLUG, "--drain", timeout=300)
    assert stopped.returncode == 1
    assert (
        "offsets 12 to 12 of partition 1 are not in the topic new any more, which has offsets 0 to 1" in stopped.stderr
    )
    assert "`lost: skip` beside `topic:`" in stopped.stderr
    project = leads.project.folder / "project.yml"
    leads.project.apply(project.read_text().replace("topic: new", "topic: new, lost: skip"))
    drain(leads)
    assert ids(leads) == sorted([*range(PARTITIONS * 2), 1, 5])  # the partition is read from its first record again

    leads.project.apply(project.read_text().replace(kafka.servers, "127.0.0.1:1"))
    with running(leads) as runner:
        assert runner.stderr is not None
        line = next(line for line in runner.stderr if "127.0.0.1:1" in line)
        assert line.startswith("leads: the topic new of 127.0.0.1:1: ")
        assert runner.poll() is None

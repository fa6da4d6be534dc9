"""Streams whose code returns the whole dataset (`returns: dataset`): what comes out is what a plain loop makes.

state = first source
for item in items:
    state = run(state, stream=item)
"""

import json
import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas
import pytest
from pandas.testing import assert_frame_equal

from opendataflow.faults import AFTER_PUBLISH, BEFORE_PUBLISH, STREAM_EXPECTED
from opendataflow.intake.log import IntakeLog
from opendataflow.spark.pandas_files import DataError
from opendataflow.spark.pandas_items import fold_items
from opendataflow.spark.pandas_state import read_state, write_state
from support.jobs import publishes, wait_until_gone
from support.processes import wait_for
from support.projects import DATAFLOW, Project

Item = dict[str, Any]
Run = Callable[..., pandas.DataFrame]


# The ways in which such code works ------------------------------------------------------------------------------------
def append(df: pandas.DataFrame, stream: Item) -> pandas.DataFrame:
    return pandas.concat([df, pandas.DataFrame([stream])], ignore_index=True)


def newest_first(df: pandas.DataFrame, stream: Item) -> pandas.DataFrame:
    return pandas.concat([pandas.DataFrame([stream]), df], ignore_index=True)


def upsert(df: pandas.DataFrame, stream: Item) -> pandas.DataFrame:
    return append(df[df["id"] != stream["id"]], stream)


def change_in_place(df: pandas.DataFrame, stream: Item) -> pandas.DataFrame:
    df.loc[df["id"] == stream["id"], "name"] = stream["name"]
    return df


def delete(df: pandas.DataFrame, stream: Item) -> pandas.DataFrame:
    return df[df["id"] != stream["id"]]  # the index keeps its gaps


def append_at_length(df: pandas.DataFrame, stream: Item) -> pandas.DataFrame:
    if stream["id"] % 5 == 0:
        return delete(df, {"id": df["id"].min()})
    df.loc[len(df)] = [stream["id"], stream["name"], stream["x"]]  # overwrites a row once there are gaps
    return df


def count_rows_before(df: pandas.DataFrame, stream: Item) -> pandas.DataFrame:
    return append(df, {**stream, "x": float(len(df))})


def half_changed_when_it_fails(df: pandas.DataFrame, stream: Item) -> pandas.DataFrame:
    df.loc[len(df)] = [stream["id"], stream["name"], 0.0]
    if stream["id"] % 7 == 3:
        raise ValueError("no such name")
    return df


WAYS = [
    append, newest_first, upsert, change_in_place, delete, append_at_length, count_rows_before,
    half_changed_when_it_fails,
]  # fmt: skip
ITEMS = [{"id": number * 7 % 23, "name": None if number % 6 == 5 else f"n{number}", "x": number / 4}
         for number in range(60)]  # fmt: skip


def first_rows() -> pandas.DataFrame:
    rows = [{"id": number, "name": f"first {number}", "x": number / 2} for number in range(30)]
    return pandas.DataFrame(rows)


def by_hand(run: Run, items: list[Item], state: pandas.DataFrame) -> pandas.DataFrame:
    for item in items:
        before = state.copy()
        try:
            state = run(state, stream=dict(item))
        except ValueError:
            state = before  # as if the item had not come
    return state


def cuts(rng: random.Random, items: list[Item]) -> Iterator[list[tuple[int, Item]]]:
    start = 0
    while start < len(items):
        end = start + rng.randint(1, 20)
        yield list(enumerate(items))[start:end]
        start = end


@pytest.mark.parametrize("run", WAYS, ids=lambda run: str(run.__name__))
@pytest.mark.parametrize("seed", range(3))
def test_batches_come_to_what_a_loop_by_hand_makes(run: Run, seed: int, tmp_path: Path) -> None:
    """However the items are cut into batches, with the dataset kept in a file between them."""
    state, path = first_rows(), str(tmp_path / "state.parquet")
    failed: list[int] = []
    for part in cuts(random.Random(seed), ITEMS):
        state, aside = fold_items(
            part, state, [], lambda frames, item: run(frames[0], stream=item), str, set_aside=True
        )  # fmt: skip
        failed += [offset for offset, _ in aside]
        write_state(state, path, "1", max_bytes=10**9)
        state = read_state(path)
    assert_frame_equal(state, by_hand(run, ITEMS, first_rows()))
    is_failing = run is half_changed_when_it_fails
    assert failed == [number for number, item in enumerate(ITEMS) if is_failing and item["id"] % 7 == 3]


def test_what_is_kept_between_batches_is_as_pandas_had_it(tmp_path: Path) -> None:
    df = pandas.DataFrame(
        {
            "text": ["a", float("nan"), "c"], "none": ["a", None, "c"], "small": pandas.array([1, None, 3], "Int8"),
            "kind": pandas.Categorical(["x", "y", "x"], ordered=True), "at": pandas.to_datetime(["2026-01-01"] * 3),
            "zoned": pandas.to_datetime(["2026-01-01"] * 3, utc=True), "flag": [True, False, True],
            "tags": [["a"], [], ["b", "c"]], "x": [1.5, float("nan"), 2.0],
        },
        index=pandas.Index([5, 1, 9], name="key"),
    )  # fmt: skip
    path = str(tmp_path / "state.parquet")
    write_state(df, path, "1", max_bytes=10**9)
    again = read_state(path)
    assert_frame_equal(again, df)
    assert again["none"].iloc[1] is None
    assert isinstance(again["text"].iloc[1], float)
    assert again["tags"].tolist() == [["a"], [], ["b", "c"]]


def test_a_dataset_that_is_too_large_or_mixed_is_refused_and_the_one_before_stays(tmp_path: Path) -> None:
    path = tmp_path / "state.parquet"
    write_state(first_rows(), str(path), "1", max_bytes=10**6)
    with pytest.raises(DataError, match=r"the dataset has grown to .* `returns: items`, or raise `max_size`"):
        write_state(first_rows(), str(path), "2", max_bytes=100)
    with pytest.raises(DataError, match="each column needs values of one type"):
        write_state(pandas.DataFrame({"x": [1, "two"]}), str(path), "3", max_bytes=10**6)
    assert_frame_equal(read_state(str(path)), first_rows())
    assert [one.name for one in tmp_path.iterdir()] == ["state.parquet"]


# Through the commands -------------------------------------------------------------------------------------------------
SLUG = "leads"
PROJECT = """\
name: Shop
environments: {{dev: {{root: ./data}}}}
spark: {{master: "local[2]"}}
datasets:
  first: {{path: first.csv, partitions: none}}
  names: {{path: names.csv, partitions: none}}
  leads: {{path: {path}}}
pipelines:
  - slug: leads
    mode: stream
    sources: [first, names]
    destination: leads
    transformations: [clean]
    stream: {{schema: {{id: bigint, name: {{type: string, required: false}}}}, max_batch: 7, every: 10ms}}
"""
UPSERT = """\
import pandas as pd


def run(df, names, stream=None):
    if stream["name"] == "bad":
        raise ValueError("no such name")
    known = names.set_index("id")["name"].to_dict()
    row = {"id": stream["id"], "name": known.get(stream["id"], stream["name"]), "before": len(df)}
    return pd.concat([df[df["id"] != stream["id"]], pd.DataFrame([row])], ignore_index=True)
"""


class Whole:
    """A project with such a stream, and the loop by hand over what was sent."""

    def __init__(self, project: Project, path: str = "leads.csv") -> None:
        self.project, self.path, self.sent = project, path, list[Item]()
        project.write(f"pipelines/{SLUG}/clean.py", UPSERT)
        project.write("data/first.csv", "id,name,before\n1,Ann,0\n2,Bob,0\n")
        project.write("data/names.csv", "id,name\n5,Eve\n")
        project.apply(PROJECT.format(path=path))
        for name in ("first", "names"):
            assert project.dataflow("ready", name, "full").returncode == 0

    def send(self, *items: tuple[int, str]) -> None:
        log = IntakeLog(str(self.project.folder / ".dataflow/streams/shop" / SLUG))
        for number, name in items:
            log.append(json.dumps([{"id": number, "name": name}]).encode(), 1)
            self.sent.append({"id": number, "name": name})
        log.close()

    def run(self) -> None:
        done = self.project.dataflow("run", SLUG, "--drain", timeout=180)
        assert done.returncode == 0, done.stderr

    def by_hand(self) -> list[Item]:
        namespace: dict[str, Any] = {}
        exec((self.project.folder / f"pipelines/{SLUG}/clean.py").read_text(), namespace)  # noqa: S102  the code that the stream runs
        state = pandas.read_csv(self.project.folder / "data/first.csv")
        names = pandas.read_csv(self.project.folder / "data/names.csv")
        for item in self.sent:
            if item["name"] != "bad":
                state = namespace["run"](state, names, stream=dict(item))
        return list(state.to_dict("records"))

    def published(self) -> list[Item]:
        found = self.project.sql("SELECT location FROM chunk_location WHERE datasetid = 'leads' AND status = 'READY'")
        assert len(found) == 1
        read = pandas.read_csv if self.path.endswith(".csv") else pandas.read_parquet
        return list(read(found[0][0]).to_dict("records"))

    @property
    def contained(self) -> int:
        """How many items the published version contains."""
        found = self.project.sql(
            "SELECT v.end_offset FROM stream_version v JOIN datastatus d ON d.version = v.runid "
            "WHERE d.datasetid = 'leads' AND d.status = 'READY'"
        )
        return int(found[0][0])


def test_a_version_after_each_batch_is_what_the_loop_makes_and_replay_builds_it_anew(sqlite_project: Project) -> None:
    whole = Whole(sqlite_project)
    whole.send(*((number % 4, f"n{number}") for number in range(10)), (5, "no"), (3, "bad"))
    whole.run()
    assert whole.published() == whole.by_hand()
    shown = sqlite_project.folder / "data/leads.csv"
    assert pandas.read_csv(shown).to_dict("records") == whole.by_hand()
    assert whole.contained == 12
    assert [one["offset"] for one in sqlite_project.json("stream", "failed", SLUG)] == [11]

    # The next items find the rows that are there; a static source that changed is what they see.
    sqlite_project.write("data/names.csv", "id,name\n5,Eva\n6,Fay\n")
    assert sqlite_project.dataflow("ready", "names", "full").returncode == 0
    before = whole.published()
    whole.send((6, "no"), (1, "again"))
    whole.run()
    kept = [row for row in before if row["id"] not in (1, 6)]
    assert whole.published() == [
        *kept, {"id": 6, "name": "Fay", "before": 5}, {"id": 1, "name": "again", "before": 6},
    ]  # fmt: skip
    assert len(list((sqlite_project.folder / "data").glob("leads_live/dataid=*"))) <= 10

    # Other code, from the first item on; until it is built, readers keep the version that has all items.
    code = (sqlite_project.folder / f"pipelines/{SLUG}/clean.py").read_text()
    sqlite_project.write(f"pipelines/{SLUG}/clean.py", code.replace("len(df)", "-len(df)"))
    replayed = sqlite_project.dataflow("stream", "replay", SLUG, "--since", "1h", "--yes")
    assert replayed.returncode == 0, replayed.stderr
    assert whole.published()[-1]["before"] == 6
    whole.run()
    assert whole.published() == whole.by_hand()
    assert whole.contained == len(whole.sent)
    dry = sqlite_project.write("sample.csv", "id,name\n9,Ida\n")
    shown_dry = sqlite_project.dataflow("run", SLUG, "--stream", str(dry), "--dry-run", timeout=180)
    assert shown_dry.returncode == 0, shown_dry.stderr
    assert [json.loads(line)["id"] for line in shown_dry.stdout.splitlines()][-1] == 9
    assert whole.published() == whole.by_hand()


@pytest.mark.parametrize("store", ["sqlite_project", "postgres_project"])
def test_whoever_is_killed_between_two_batches_the_dataset_is_the_loops(
    store: str, request: pytest.FixtureRequest
) -> None:
    project: Project = request.getfixturevalue(store)
    whole = Whole(project, "leads")
    marker = project.folder / "stopped"
    for number, point in enumerate((STREAM_EXPECTED, BEFORE_PUBLISH, AFTER_PUBLISH)):
        whole.send(*((n % 5, f"n{number}.{n}") for n in range(9)))  # two batches
        runner = project.start(
            DATAFLOW, "run", SLUG, "--drain", env={"DATAFLOW_FAULT_POINT": f"{point}:{marker}"}
        )  # fmt: skip
        try:
            for time in ("first", "second"):
                wait_for(lambda: marker.exists() and marker.read_text() != "", f"it is at {point}", seconds=120)
                if time == "first":
                    marker.unlink()  # so that one batch is published, and another on its way
        finally:
            os.kill(runner.pid, signal.SIGKILL)
            runner.communicate(timeout=60)
            marker.unlink(missing_ok=True)
        wait_until_gone(project)
    whole.run()
    assert whole.published() == whole.by_hand()
    assert whole.contained == len(whole.sent)
    assert set(publishes(project, "leads_live").values()) <= {1}


def test_what_does_not_go_together_is_said_when_it_is_applied(sqlite_project: Project) -> None:
    Whole(sqlite_project)
    text = PROJECT.format(path="leads.csv")

    def refusal(old: str, new: str) -> str:
        sqlite_project.write("project.yml", text.replace(old, new))
        done = sqlite_project.dataflow("apply")
        assert done.returncode == 2, done.stderr
        return done.stderr

    told = refusal("stream: {", "engine: spark\n    stream: {returns: dataset, ")
    assert "`returns: dataset` is for transformations on pandas" in told
    told = refusal("leads: {path: leads.csv}", "leads: {path: leads, partitions: {hourly: 2026-01-01T00}}")
    assert "is partitioned (hourly), and with `returns: dataset` it is one chunk" in told

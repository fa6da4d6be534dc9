"""A watched folder: each file's rows are in the log once, whatever changes, crashes or does not fit."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opendataflow.domain.job import Job
from opendataflow.intake.log import IntakeLog
from opendataflow.intake.reader import IntakeReader
from opendataflow.intake.rejected import list_rejected
from opendataflow.streams import watch_folder
from opendataflow.streams.feeding import Feeding, open_feed
from opendataflow.streams.watch_folder import TAKEN, FolderFeed
from support.processes import wait_for

LATER = 3600.0  # by the feed's clock every file is long complete


def stream_job(root: Path, source: dict[str, Any], *, backlog: int = 1000) -> Job:
    stream = {
        "schema": [["email", "string", True], ["age", "int", False]], "max_batch": 100, "seal": "hourly", "every": 0.2,
        "retention": 60.0, "backlog": backlog, "body": 1024, "on_error": "set_aside", "from": source,
        "destination": "leads", "live": "leads_live", "in_table": False,
    }  # fmt: skip
    fields = ("shop", "leads", "pipeline", None, {"stream": stream}, None, None, 60.0, None, 0, 30.0, 1, 0, "all")
    return Job(*fields, str(root), str(root), ())


class Watched:
    def __init__(self, tmp_path: Path, format_: str = "csv") -> None:
        self.root, self.stream = tmp_path / "data", tmp_path / "stream"
        self.folder = self.root / "incoming"
        self.folder.mkdir(parents=True)
        self.stream.mkdir()
        self.said: list[str] = []
        self.job = stream_job(self.root, {"folder": "incoming", "format": format_})
        self.feed = self.open()

    def open(self) -> FolderFeed:
        """As a new runner does; the clock is ahead, so that no file is too fresh."""
        log = IntakeLog(str(self.stream))
        return FolderFeed(self.job, str(self.stream), log, say=self.said.append, clock=lambda: time.time() + LATER)

    def again(self) -> None:
        self.feed.close()
        self.feed = self.open()

    def take(self) -> int:
        total = self.feed.feed()
        while self.feed._work is not None:
            total += self.feed.feed()
        return total

    def items(self) -> list[Any]:
        reader = IntakeReader(str(self.stream))
        end = reader.durable_end()
        return [one.item["email"] for one in reader.items(0, end)] if end else []

    def rejected(self) -> list[dict[str, Any]]:
        return list_rejected(str(self.stream))


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    made = Watched(tmp_path)
    yield made
    made.feed.close()


def test_files_are_taken_once_in_their_order_and_rows_that_do_not_fit_are_kept_apart(watched: Watched) -> None:
    (watched.folder / "b.csv").write_text("email,age\na@x,1\nb@x,old\nc@x,\n\nd@x,4,5\ne@x,9999999999\nf'@x,6")
    os.utime(watched.folder / "b.csv", ns=(1, 1))
    (watched.folder / "a.csv").write_text('age,email\n7,"g\nh@x"\n')
    for name in (".hidden.csv", "_x.csv", "y.csv.part", "z.txt"):
        (watched.folder / name).write_text("email,age\nno@x,1\n")
    os.symlink(watched.folder / "a.csv", watched.folder / "link.csv")
    assert watched.take() == 4
    assert watched.items() == ["a@x", "c@x", "f'@x", "g\nh@x"]
    assert [(one["file"], one["line"], one["row"]) for one in watched.rejected()] == [
        ("b.csv", 3, "b@x,old"), ("b.csv", 6, "d@x,4,5"), ("b.csv", 7, "e@x,9999999999"),
    ]  # fmt: skip
    assert "age" in watched.rejected()[0]["error"]
    assert watched.rejected()[1]["error"] == "it has 3 cells, the header 2"
    assert any("b.csv line 3 is rejected" in line for line in watched.said)
    watched.again()
    assert watched.take() == 0
    os.utime(watched.folder / "b.csv")  # touched: the same content
    assert watched.take() == 0
    assert len(watched.items()) == 4


def test_a_crash_at_any_point_doubles_and_loses_nothing(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_folder, "PART_ROWS", 10)
    rows = [f"{number}@x,{'x' if number % 7 == 3 else number}\n" for number in range(95)]
    (watched.folder / "leads.csv").write_text(f"email,age\n{''.join(rows)}")
    good = [f"{number}@x" for number in range(95) if number % 7 != 3]
    steps = 0
    while not (watched.stream / TAKEN).exists():  # each runner dies one step further
        steps += 1
        work = watched.feed._take_all()
        for _ in range(steps):
            next(work, None)
        watched.again()
    assert steps > 10
    assert watched.items() == good
    assert len(watched.rejected()) == 95 - len(good)
    assert watched.take() == 0


def test_a_file_that_has_grown_gives_its_new_rows_and_other_content_is_new(watched: Watched) -> None:
    file = watched.folder / "leads.csv"
    file.write_text("email,age\na@x,1\n")
    assert watched.take() == 1
    with file.open("a") as more:
        more.write("b@x,2\nc@x,3\n")
    watched.again()
    assert watched.take() == 2
    assert watched.items() == ["a@x", "b@x", "c@x"]
    file.write_text("email,age\nd@x,4\n")
    assert watched.take() == 1
    assert watched.items()[3:] == ["d@x"]


def test_a_file_that_is_still_written_waits(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = watched.open()
    monkeypatch.setattr(fresh, "_clock", time.time)
    file = watched.folder / "leads.csv"
    file.write_text("email,age\na@x,1\n")
    assert (fresh.feed(), fresh.is_settled) == (0, False)  # changed a moment ago
    fresh.close()
    work = watched.feed._take_all()
    assert next(work) == 0  # it is copied, and now it changes
    file.write_text("email,age\na@x,1\nb@x,2\n")
    assert sum(work) == 0
    assert watched.items() == []
    assert not watched.feed.is_settled
    assert watched.take() == 2
    assert (watched.take(), watched.feed.is_settled) == (0, True)


def test_a_file_that_cannot_be_read_is_told_and_stops_no_other(watched: Watched) -> None:
    (watched.folder / "bad.csv").write_text("mail,age\na@x,1\n")
    (watched.folder / "empty.csv").write_text("")
    (watched.folder / "latin.csv").write_bytes(b"email,age\n\xe9@x,1\nok@x,2\n")
    assert watched.take() == 1
    assert watched.items() == ["ok@x"]
    assert sorted((one["file"], one["line"]) for one in watched.rejected()) == [
        ("bad.csv", 0), ("empty.csv", 0), ("latin.csv", 2)
    ]  # fmt: skip
    errors = {one["file"]: one["error"] for one in watched.rejected()}
    assert errors["bad.csv"] == "bad.csv: 'mail' are not fields of this stream; it has email, age"
    assert errors["latin.csv"] == "it is not UTF-8"
    assert watched.take() == 0


def test_lines_of_json_and_the_backlog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_folder, "PART_ROWS", 2)
    watched = Watched(tmp_path, "ndjson")
    watched.job.definition["stream"]["backlog"] = 3  # type: ignore[index]
    watched.again()
    lines = ['{"email": "a"}', "[1]", '{"email": "b", "email": "c"}', '{"email": "d", "age": NaN}', '{"email": "e"}']
    (watched.folder / "x.ndjson").write_text("\n".join([*lines, *(f'{{"email": "m{n}"}}' for n in range(6))]))
    assert watched.feed.feed(committed=0) == 3  # a part at a time, until as many wait as may
    assert watched.feed.feed(committed=0) == 0
    assert watched.feed.feed(committed=3) == 4
    assert watched.feed.feed(committed=7) == 1
    assert watched.items() == ["a", "e", *(f"m{n}" for n in range(6))]
    assert [one["line"] for one in watched.rejected()] == [2, 3, 4]
    watched.feed.close()


def test_a_stream_is_fed_while_it_runs(watched: Watched) -> None:
    (watched.folder / "a.csv").write_text("email,age\na@x,1\n")
    os.utime(watched.folder / "a.csv", (1, 1))
    with Feeding(
        watched.job, str(watched.stream), committed=lambda: 0, say=watched.said.append, every_seconds=0.01
    ) as feed:
        wait_for(lambda: watched.items() == ["a@x"] and feed.is_settled, "the first file")
        (watched.folder / "b.csv.part").write_text("email,age\nb@x,1\n")
        os.utime(watched.folder / "b.csv.part", (2, 2))
        os.rename(watched.folder / "b.csv.part", watched.folder / "b.csv")
        wait_for(lambda: watched.items() == ["a@x", "b@x"], "the second file")


def test_other_sources_have_no_folder(tmp_path: Path) -> None:
    said: list[str] = []
    assert open_feed(stream_job(tmp_path, {"intake": True}), str(tmp_path), begin=0, say=said.append) is None
    missing = open_feed(stream_job(tmp_path, {"folder": "x", "format": "csv"}), str(tmp_path), begin=0, say=said.append)
    assert missing is not None
    assert (missing.feed(), missing.feed(), len(said)) == (0, 0, 1)
    missing.close()


def test_a_file_may_have_any_bytes_in_its_name_and_is_taken_once(watched: Watched) -> None:
    """Names of files that Windows or a mail program made are often no UTF-8."""
    place = os.fsencode(watched.folder)
    for name, text in ((b"caf\xe9.csv", "email,age\na@x,1\nb@x,old\n"), (b"\xff\xfe.csv", "no header of ours\n")):
        with open(os.path.join(place, name), "w") as file:
            file.write(text)
    assert watched.take() == 1
    watched.again()
    assert watched.take() == 0
    assert watched.items() == ["a@x"]
    assert {one["file"] for one in watched.rejected()} == {"caf\\udce9.csv", "\\udcff\\udcfe.csv"}
    "\n".join([*watched.said, *(str(one) for one in watched.rejected())]).encode()  # any terminal and store takes it


def test_a_file_that_became_a_link_after_the_look_is_not_followed(watched: Watched, tmp_path: Path) -> None:
    """Whoever may write into the folder, but not read a file elsewhere, would have it taken in for them."""
    secret, put = tmp_path / "secret.csv", watched.folder / "a.csv"
    secret.write_text("email,age\nsecret@x,1\n")
    put.write_text("email,age\na@x,1\n")

    def swap() -> float:
        """The clock is asked after the look at a file and before it is opened."""
        if not put.is_symlink():
            put.unlink()
            put.symlink_to(secret)
        return time.time() + LATER

    watched.feed.close()
    log = IntakeLog(str(watched.stream))
    watched.feed = FolderFeed(watched.job, str(watched.stream), log, say=watched.said.append, clock=swap)
    assert watched.take() == 0
    assert put.is_symlink()
    assert watched.items() == []
    assert watched.said == [f"{put} is not taken in: Too many levels of symbolic links"]
    assert not (watched.stream / watch_folder.COPY).exists()


def test_a_watched_folder_that_leads_out_of_the_root_is_not_read(watched: Watched, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.csv").write_text("email,age\nsecret@x,1\n")
    watched.folder.rmdir()
    watched.folder.symlink_to(outside)
    assert watched.take() == 0
    assert watched.items() == []
    assert watched.said == [f"the folder {watched.folder} leads out of {watched.root}; nothing in it is taken in"]
    assert not (watched.stream / watch_folder.COPY).exists()
    watched.folder.unlink()
    (watched.root / "elsewhere").mkdir()
    (watched.root / "elsewhere/b.csv").write_text("email,age\nb@x,1\n")
    watched.folder.symlink_to("elsewhere")
    assert watched.take() == 1


def test_a_folder_that_became_a_link_after_the_look_is_not_followed(watched: Watched, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    for folder in (outside, watched.folder):
        (folder / "a.csv").write_text("email,age\nsecret@x,1\n")

    def swap() -> float:
        """The clock is asked after the look at a file and before it is opened."""
        if not watched.folder.is_symlink():
            watched.folder.rename(watched.root / "before")
            watched.folder.symlink_to(outside)
        return time.time() + LATER

    watched.feed.close()
    log = IntakeLog(str(watched.stream))
    watched.feed = FolderFeed(watched.job, str(watched.stream), log, say=watched.said.append, clock=swap)
    assert watched.take() == 0
    assert watched.items() == []
    assert watched.said == [f"{watched.folder / 'a.csv'} is not taken in: it is not below {watched.root}"]
    assert not (watched.stream / watch_folder.COPY).exists()

"""The log of a stream: durable in groups, repaired after a torn write, written by many, read up to its durable end."""

import itertools
import json
import multiprocessing
import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from opendataflow.errors import UsageError
from opendataflow.intake.group import GroupWriter
from opendataflow.intake.log import Accepted, IntakeLog, Request
from opendataflow.intake.reader import IntakeReader
from opendataflow.intake.refusals import ItemsGone, KeyReused, LogDamaged, LogFull
from opendataflow.intake.segments import list_segments, segment_path

HOUR = 3600.0
NOON = 1_800_014_400.0  # 2027-01-15T12:00:00Z


def items(*numbers: int) -> bytes:
    return json.dumps([{"n": number} for number in numbers]).encode()


def numbers(folder: Path) -> list[int]:
    reader = IntakeReader(str(folder))
    return [one.item["n"] for one in reader.items(reader.first_offset(), reader.durable_end())]


def test_what_was_appended_is_read_back_with_the_offsets_that_were_given(tmp_path: Path) -> None:
    log = IntakeLog(str(tmp_path), clock=lambda: NOON, segment_bytes=300)
    given = [log.append(items(2 * n, 2 * n + 1), 2) for n in range(20)]
    assert [one.first for one in given] == list(range(0, 40, 2))
    assert len(list_segments(log.log)) > 3
    reader = IntakeReader(str(tmp_path))
    read = list(reader.items(3, 37))
    assert [one.offset for one in read] == [one.item["n"] for one in read] == list(range(3, 37))
    assert {one.at for one in read} == {NOON}
    assert [entry.first for entry in reader.read(3, 7)] == [2, 4, 6]
    with pytest.raises(UsageError, match="durable up to 40"):
        list(reader.read(38, 41))


def test_a_log_that_nobody_has_written_is_empty(tmp_path: Path) -> None:
    reader = IntakeReader(str(tmp_path / "nothing"))
    assert (reader.durable_end(), reader.first_offset(), reader.boundary(0, 10, "hourly")) == (0, 0, 0)
    assert reader.accepted_at(0) is None
    assert reader.offset_since(0.0) == 0


# Keys -----------------------------------------------------------------------------------------------------------------
def test_a_key_stands_for_its_items_also_in_one_group_and_after_opening_again(tmp_path: Path) -> None:
    log = IntakeLog(str(tmp_path))
    one, again, other = log.append_all(
        [Request(items(1, 2), 2, "k"), Request(items(1, 2), 2, "k"), Request(items(3), 1, "k")]
    )
    assert (one, again) == (Accepted(0, 2, repeated=False), Accepted(0, 2, repeated=True))
    assert isinstance(other, KeyReused)
    for opened in (log, IntakeLog(str(tmp_path))):
        assert opened.append(items(1, 2), 2, key="k") == Accepted(0, 2, repeated=True)
        with pytest.raises(KeyReused, match="take a new one"):
            opened.append(items(1), 1, key="k")
    assert numbers(tmp_path) == [1, 2]


def test_writers_know_the_keys_that_another_took(tmp_path: Path) -> None:
    one, other = IntakeLog(str(tmp_path)), IntakeLog(str(tmp_path))
    one.append(items(1), 1, key="k")
    assert other.append(items(1), 1, key="k") == Accepted(0, 1, repeated=True)
    assert other.append(items(2), 1).first == 1
    assert one.append(items(3), 1).first == 2


# Torn writes ----------------------------------------------------------------------------------------------------------
def test_a_tail_torn_at_any_byte_is_cut_off_and_the_log_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for sync in ("fsync", "fdatasync"):  # hundreds of logs are opened, and no power is cut
        monkeypatch.setattr(os, sync, lambda _: None)
    made = tmp_path / "made"
    log = IntakeLog(str(made), clock=lambda: NOON)
    log.append(items(0), 1)
    durable = Path(log.log, "end").read_bytes()
    log.append(items(1, 2), 2, key="two")
    log.append(items(3, 4, 5), 3)
    name = Path(segment_path(log.log, 0)).name
    data = Path(log.log, name).read_bytes()
    first = data.index(b"\n") + 1
    for cut, rest in itertools.product(range(first, len(data) + 1), (b"", b"\0" * 40)):
        torn = tmp_path / "torn"
        (torn / "log").mkdir(parents=True)
        (torn / "log" / "end").write_bytes(durable)
        (torn / "log" / name).write_bytes(data[:cut] + rest)
        assert numbers(torn) == [0], "nothing past the durable end is seen before a writer has made it durable"
        opened = IntakeLog(str(torn))
        assert opened.end in (1, 3, 6)
        assert (opened.end == 6) == (cut == len(data))
        knows_key = opened.end >= 3
        assert opened.append(items(1, 2), 2, key="two") == Accepted(1, 2, repeated=knows_key)
        assert numbers(torn) == list(range(opened.end))
        opened.close()
        shutil.rmtree(torn)


def test_a_torn_end_is_repaired_from_the_segments(tmp_path: Path) -> None:
    log = IntakeLog(str(tmp_path), segment_bytes=100)
    for n in range(5):
        log.append(items(n), 1)
    end = Path(log.log, "end")
    for text in (b"", end.read_bytes()[:-3], b"x" * 72):
        end.write_bytes(text)
        assert IntakeLog(str(tmp_path)).end == 5
        assert numbers(tmp_path) == [0, 1, 2, 3, 4]


def test_opening_again_need_not_read_segments_that_are_complete(tmp_path: Path) -> None:
    log = IntakeLog(str(tmp_path), segment_bytes=100)
    for n in range(6):
        log.append(items(n), 1, key=str(n))
    kept = sorted(Path(log.log).glob("*.keys"))
    assert len(kept) > 1
    kept[0].write_bytes(kept[0].read_bytes()[:-1] + b"?")  # one that is damaged is passed over
    kept[1].unlink()
    for _ in range(2):
        opened = IntakeLog(str(tmp_path), segment_bytes=100)
        assert (len(opened.keys), opened.end) == (6, 6)
        assert all(opened.append(items(n), 1, key=str(n)) == Accepted(n, 1, repeated=True) for n in range(6))
    Path(segment_path(log.log, 0)).write_bytes(b"x" * Path(segment_path(log.log, 0)).stat().st_size)
    assert len(IntakeLog(str(tmp_path), segment_bytes=100).keys) == 6


def test_damage_in_what_was_durable_is_told_and_never_cut_off(tmp_path: Path) -> None:
    log = IntakeLog(str(tmp_path))
    for n in range(3):
        log.append(items(n), 1)
    path = Path(segment_path(log.log, 0))
    data = path.read_bytes()
    path.write_bytes(data.replace(b'{"n": 1}', b'{"n": 7}'))
    with pytest.raises(LogDamaged, match="damaged at byte"):
        IntakeLog(str(tmp_path))
    with pytest.raises(LogDamaged, match="not what was written"):
        numbers(tmp_path)
    path.write_bytes(data)
    assert numbers(tmp_path) == [0, 1, 2]


def test_a_segment_that_was_begun_by_one_that_died_is_used(tmp_path: Path) -> None:
    log = IntakeLog(str(tmp_path), segment_bytes=10)
    log.append(items(0), 1)
    other = IntakeLog(str(tmp_path), segment_bytes=10)
    other.append(items(1), 1)
    end = Path(log.log, "end")
    before = end.read_bytes()
    other.append(items(2), 1)
    end.write_bytes(before)  # as if it had died before it said so
    assert numbers(tmp_path) == [0, 1]
    assert log.append(items(3), 1).first == 3
    assert numbers(tmp_path) == [0, 1, 2, 3]


def test_a_lost_log_goes_on_where_the_store_was_so_that_no_offset_is_given_twice(tmp_path: Path) -> None:
    log = IntakeLog(str(tmp_path), begin=1000)
    assert log.append(items(1), 1).first == 1000
    assert IntakeLog(str(tmp_path), begin=500).end == 1001
    later = IntakeLog(str(tmp_path), begin=2000)
    assert log.append(items(2), 1).first == 2000, "also for a writer that had not lost anything"
    reader = IntakeReader(str(tmp_path))
    assert [one.offset for one in reader.items(2000, 2001)] == [2000]
    with pytest.raises(ItemsGone, match="items from 1001 on"):
        list(reader.items(1000, 2001))
    shutil.rmtree(later.log)
    with pytest.raises(LogDamaged, match="was removed"):
        later.append(items(3), 1)


# A full disk ----------------------------------------------------------------------------------------------------------
def test_a_full_disk_refuses_what_does_not_fit_and_keeps_what_was_accepted(tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(folder)], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"a tmpfs cannot be mounted here: {mounted.stderr}")
    try:
        ballast = folder / "ballast"
        ballast.write_bytes(b"x" * 60_000)
        log = IntakeLog(str(folder / "stream"), segment_bytes=10_000)
        accepted: list[int] = []
        large = b'[{"n": 0, "text": "%b"}]' % (b"y" * 3000)
        while True:
            result = log.append_all([Request(large, 1, f"k{len(accepted)}")])[0]
            if isinstance(result, Exception):
                break
            accepted.append(result.first)
        assert isinstance(result, LogFull)
        assert "make room" in str(result)
        assert accepted == list(range(len(accepted)))
        assert len(accepted) > 5
        assert isinstance(log.append_all([Request(large, 1, "again")])[0], LogFull)
        assert len(numbers(folder / "stream")) == len(accepted)
        ballast.unlink()
        assert log.append(large, 1, key="k0").repeated
        assert log.append(large, 1, key="again") == Accepted(len(accepted), 1, repeated=False)
        log.close()
        assert IntakeLog(str(folder / "stream")).end == len(accepted) + 1
        assert len(numbers(folder / "stream")) == len(accepted) + 1
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


# Many writers ---------------------------------------------------------------------------------------------------------
def write_many(folder: str, who: int, count: int) -> None:
    log = IntakeLog(folder, segment_bytes=2000)
    for number in range(count):
        log.append(items(who * 1000 + number), 1, key=f"{who}-{number}")
    os._exit(0)


def test_several_processes_append_at_the_same_time_and_none_loses_or_doubles_an_item(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=write_many, args=(str(tmp_path), who, 60)) for who in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    found = numbers(tmp_path)
    assert sorted(found) == [who * 1000 + number for who in range(2) for number in range(60)]
    for who in range(2):
        own = [number for number in found if number // 1000 == who]
        assert own == sorted(own)


def test_callers_that_wait_together_share_one_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs = 0
    real = os.fdatasync

    def counted(fd: int) -> None:
        nonlocal syncs
        syncs += 1
        if syncs == 1:
            all_queued.wait(10)
        real(fd)

    all_queued, answered = threading.Event(), threading.Semaphore(0)
    told: dict[int, Accepted | Exception] = {}

    def deliver(answers: list[tuple[int, Accepted | Exception]]) -> None:
        for caller, answer in answers:
            told[caller] = answer
            answered.release()

    monkeypatch.setattr(os, "fdatasync", counted)
    writer: GroupWriter[int] = GroupWriter(IntakeLog(str(tmp_path)), deliver)
    for caller in range(100):
        writer.submit(Request(items(caller), 1), caller)
    assert writer.waiting_bytes > 0
    all_queued.set()
    for _ in range(100):
        assert answered.acquire(timeout=10)
    assert syncs <= 3
    assert numbers(tmp_path) == list(range(100))
    assert all(answer == Accepted(caller, 1, repeated=False) for caller, answer in told.items())
    assert writer.waiting_bytes == 0
    writer.close()


# Batches and retention ------------------------------------------------------------------------------------------------
def test_a_batch_ends_before_a_new_hour_at_its_size_and_never_inside_a_request(tmp_path: Path) -> None:
    now = NOON
    log = IntakeLog(str(tmp_path), clock=lambda: now, segment_bytes=150)
    for count in (2, 2, 5, 1):
        log.append(items(*range(count)), count)
    now += HOUR
    log.append(items(1, 2), 2)
    now -= 2 * HOUR  # a clock that goes back does not bring back an hour that is over
    log.append(items(3), 1)
    reader = IntakeReader(str(tmp_path))

    def ends(most: int, seal: str | None) -> list[int]:
        found = [0]
        while found[-1] < reader.durable_end():
            found.append(reader.boundary(found[-1], most, seal))
        return found

    assert ends(4, "hourly") == [0, 4, 9, 10, 13]
    assert ends(100, "hourly") == [0, 10, 13]
    assert ends(100, "daily") == ends(100, None) == [0, 13]
    assert reader.boundary(13, 4, "hourly") == 13
    assert [reader.accepted_at(offset) for offset in (0, 9, 10, 12, 13)] == [NOON, NOON, NOON + HOUR, NOON + HOUR, None]
    assert [reader.offset_since(at) for at in (0.0, NOON, NOON + 1, NOON + HOUR + 1)] == [0, 0, 10, 13]


def test_a_place_in_a_long_segment_is_found(tmp_path: Path) -> None:
    now = NOON
    log = IntakeLog(str(tmp_path), clock=lambda: now)
    for start in range(0, 3000, 100):
        log.append_all([Request(items(start + n), 1) for n in range(100)])
        now += 1
    for start in (0, 1, 1499, 2999):
        assert [one.item["n"] for one in IntakeReader(str(tmp_path)).items(start, start + 1)] == [start]
    assert IntakeReader(str(tmp_path)).offset_since(NOON + 17) == 1700


def test_segments_go_once_they_are_committed_and_old_and_their_keys_with_them(tmp_path: Path) -> None:
    now = NOON
    log = IntakeLog(str(tmp_path), clock=lambda: now, segment_bytes=10)
    for number in range(4):
        log.append(items(number), 1, key=str(number))
        now += HOUR
    assert log.drop(committed=4, before=NOON) == 0
    assert log.drop(committed=2, before=now) == 2
    reader = IntakeReader(str(tmp_path))
    assert reader.first_offset() == 2
    assert log.append(items(3), 1, key="3").repeated
    assert log.append(items(0), 1, key="0") == Accepted(4, 1, repeated=False)
    with pytest.raises(ItemsGone, match="it begins at 2"):
        list(reader.items(0, 3))
    assert [one.offset for one in reader.items(2, 5)] == [2, 3, 4]
    assert log.drop(committed=5, before=now + 1) == 3
    assert (reader.first_offset(), reader.durable_end()) == (5, 5)
    assert IntakeLog(str(tmp_path)).append(items(5), 1).first == 5
    assert numbers(tmp_path) == [5]
    assert [one.offset for one in reader.items(5, 6)] == [5], "though the segment is gone in which it had stopped"

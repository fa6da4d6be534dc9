"""Guards that are forks of a zygote, and children that are forks of them: real processes, really killed."""

import os
import select
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opendataflow.execution import zygote as zygotes
from opendataflow.execution.guard import Ended, Guard, NotStarted, Started
from opendataflow.execution.processes import ZYGOTE, kill_forks
from opendataflow.execution.zygote import Zygote, ZygoteFailed, get_zygote, new_guard
from support.processes import is_alive, wait_for

PROGRAM = "support.forked"
SECONDS = 20.0


@pytest.fixture
def zygote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Zygote]:
    monkeypatch.setenv("PREPARED_FILE", str(tmp_path / "prepared"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    monkeypatch.setenv("DATAFLOW_PASSKEY", "open sesame")
    started = Zygote(PROGRAM)
    yield started
    started.close()


@pytest.fixture
def guard(zygote: Zygote) -> Iterator[Guard]:
    made = zygote.new_guard()
    yield made
    made.close()


class Child:
    """One child under the guard, to its end."""

    def __init__(self, guard: Guard, code: str, *, cwd: str = "/", deadline: float | None = None, **env: str) -> None:
        self._follow(guard)
        until = time.monotonic() + 60 if deadline is None else deadline
        guard.start([code], env, cwd, until, forks=True)
        started = self._event()
        assert isinstance(started, Started), started
        self.pid = started.pid

    @classmethod
    def of_script(cls, guard: Guard, *argv: str, **env: str) -> "Child":
        child = cls.__new__(cls)
        child._follow(guard)
        guard.start(list(argv), env, "/", time.monotonic() + 60, tell=False)
        return child

    def _follow(self, guard: Guard) -> None:
        self.guard, self.out = guard, b""
        self.answers: list[dict[str, Any]] = []
        self._said: list[Started | NotStarted | Ended] = []

    def end(self) -> Ended:
        event = self._event()
        assert isinstance(event, Ended), event
        self._read()
        return event

    def _event(self) -> Started | NotStarted | Ended:
        while not self._said:
            assert select.select(self.guard.fds, [], [], SECONDS)[0], "nothing happened"
            self._read()
            events = self.guard.events()
            assert events is not None, "the guard is gone"
            self._said += events
        return self._said.pop(0)

    def _read(self) -> None:
        for fd in (self.guard.out_fd, self.guard.err_fd):
            try:
                self.out += os.read(fd, 1 << 16)
            except BlockingIOError:
                pass
        self.answers += self.guard.messages()


def test_a_child_has_its_own_environment_folder_and_process_group(guard: Guard, tmp_path: Path) -> None:
    code = "import os; print(sorted(os.environ), os.environ['dataid'], os.getcwd(), os.getpgid(0) == os.getpid())"
    child = Child(guard, code, cwd=str(tmp_path), dataid="2025-11-12")
    assert child.end() == Ended(0, None, False)
    assert child.out.decode() == f"['dataid'] 2025-11-12 {tmp_path} True\n"


def test_what_a_child_leaves_in_memory_is_not_the_next_ones(guard: Guard) -> None:
    for number in range(3):
        child = Child(guard, f"kept.append({number}); answer(kept=kept)")
        child.end()
        assert child.answers == [{"kept": [number]}]


def test_no_secret_of_the_platform_is_in_the_environment_of_zygote_or_guard(zygote: Zygote, guard: Guard) -> None:
    for pid in (zygote.pid, guard.pid):
        assert b"sesame" not in Path(f"/proc/{pid}/environ").read_bytes()


def test_the_exit_code_and_the_signal_of_a_child_are_its_end(guard: Guard) -> None:
    assert Child(guard, "code = 3").end() == Ended(3, None, False)
    assert Child(guard, "import os; os._exit(4)").end() == Ended(4, None, False)
    assert Child(guard, "import os; os.kill(os.getpid(), 11)").end() == Ended(None, 11, False)


def test_an_error_of_the_program_ends_with_an_exit_code_of_its_own(guard: Guard) -> None:
    assert Child(guard, "raise ValueError").end().exit_code == 70


def test_a_child_past_its_deadline_is_ended_with_all_that_it_forked(guard: Guard) -> None:
    code = "import os, time\nfor _ in range(2): os.fork() or (os.getpid() % 2 and os.setsid())\ntime.sleep(300)"
    child = Child(guard, code, deadline=time.monotonic() + 1.0)
    assert child.end().expired
    assert kill_forks(guard.pid, ZYGOTE.encode()) == [guard.pid], "nothing but the guard is left"


def test_a_killed_guard_takes_its_child_along(zygote: Zygote) -> None:
    guard = zygote.new_guard()
    child = Child(guard, "import time; time.sleep(300)")
    os.kill(guard.pid, signal.SIGKILL)
    wait_for(lambda: not is_alive(child.pid), "the child is gone")
    assert select.select([guard.events_fd], [], [], SECONDS)[0]
    assert guard.events() is None
    guard.close()


def test_what_a_child_of_a_killed_guard_forked_is_found_by_the_session(zygote: Zygote, tmp_path: Path) -> None:
    guard = zygote.new_guard()
    code = f"import os, time; pid = os.fork(); open({str(tmp_path / 'pid')!r}, 'a').write(f'{{pid}} '); time.sleep(300)"
    child = Child(guard, code)
    wait_for(lambda: len((tmp_path / "pid").read_text().split()) == 2 if (tmp_path / "pid").exists() else False, "fork")
    (below,) = [int(pid) for pid in (tmp_path / "pid").read_text().split() if pid != "0"]
    os.kill(guard.pid, signal.SIGKILL)
    wait_for(lambda: not is_alive(child.pid), "the kernel ends the child after its guard")
    assert is_alive(below), "nobody has ended it yet"
    assert kill_forks(guard.pid, ZYGOTE.encode()) == [below]
    wait_for(lambda: not is_alive(below), "it is gone")
    guard.close()


def test_a_guard_that_can_fork_starts_scripts_too(guard: Guard) -> None:
    child = Child.of_script(guard, "/bin/sh", "-c", "echo $dataid", dataid="7")
    assert child.end() == Ended(0, None, False)
    assert child.out == b"7\n"


def test_the_zygote_prepares_before_the_next_guard_is_there(zygote: Zygote, tmp_path: Path) -> None:
    zygote.prepare({"master": "local[2]"})
    zygote.new_guard().close()
    assert (tmp_path / "prepared").read_text() == '{"master": "local[2]"}\n'


def test_a_killed_zygote_is_replaced_and_its_guards_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    first = get_zygote(PROGRAM)
    guard = first.new_guard()
    os.kill(first.pid, signal.SIGKILL)
    wait_for(lambda: not is_alive(first.pid), "the zygote is gone")
    second = get_zygote(PROGRAM)
    assert second is not first
    assert Child(guard, "code = 5").end().exit_code == 5
    other = second.new_guard()
    assert Child(other, "code = 6").end().exit_code == 6
    for one in (guard, other):
        one.close()
    second.close()


# Zygotes that do not do what they are asked ---------------------------------------------------------------------------
@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """What the zygotes of this process execute instead of an import."""
    path = tmp_path / "imported.py"
    path.write_text("")
    monkeypatch.setenv("FAILS_FILE", str(path))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    yield path
    if (left := zygotes._zygotes.pop(PROGRAM, None)) is not None:
        left.close()


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_zygote_that_cannot_start_is_an_error_with_its_last_words_and_leaves_nothing_open(code: Path) -> None:
    code.write_text("raise ModuleNotFoundError('No module named pandas')")
    before = open_descriptors()
    with pytest.raises(ZygoteFailed, match="ended with exit code 1: ModuleNotFoundError: No module named pandas"):
        new_guard(PROGRAM)
    assert open_descriptors() == before


@pytest.mark.parametrize(
    ("does", "why"),
    [
        ("import time; time.sleep(600)", r"did not answer for 2 s"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSTOP)", "was stopped"),
    ],
)
def test_a_zygote_that_hangs_while_it_starts_is_given_up_in_time(
    code: Path, monkeypatch: pytest.MonkeyPatch, does: str, why: str
) -> None:
    monkeypatch.setattr(zygotes, "ANSWER_SECONDS", 2.0)
    code.write_text(does)
    before, began = open_descriptors(), time.monotonic()
    with pytest.raises(ZygoteFailed, match=why):
        new_guard(PROGRAM)
    assert time.monotonic() - began < 15.0
    assert open_descriptors() == before


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_stopped_zygote_is_replaced(code: Path, monkeypatch: pytest.MonkeyPatch, is_seen: bool) -> None:
    first = get_zygote(PROGRAM)
    first.new_guard().close()
    os.kill(first.pid, signal.SIGSTOP)
    if not is_seen:  # it is stopped right after it was looked at
        monkeypatch.setattr(zygotes, "is_stopped", lambda _pid: False)
        monkeypatch.setattr(zygotes, "ANSWER_SECONDS", 3.0)
    guard = new_guard(PROGRAM)
    assert Child(guard, "code = 5").end().exit_code == 5
    guard.close()
    assert get_zygote(PROGRAM) is not first
    assert not is_alive(first.pid)


def test_nobody_waits_for_a_stopped_zygote_to_prepare(zygote: Zygote) -> None:
    zygote.new_guard().close()
    os.kill(zygote.pid, signal.SIGSTOP)
    began = time.monotonic()
    for _ in range(20_000):
        zygote.prepare({"master": "local[2]", "filler": "x" * 500})
    assert time.monotonic() - began < 10.0


def test_a_zygote_whose_imports_were_replaced_on_disk_is_replaced_too(code: Path) -> None:
    guard = new_guard(PROGRAM)
    first = get_zygote(PROGRAM)
    assert guard.is_current()
    code.write_text("kept.append('upgraded')")
    assert not guard.is_current()
    assert get_zygote(PROGRAM) is not first
    other = new_guard(PROGRAM)
    child = Child(other, "answer(kept=kept)")
    child.end()
    assert child.answers == [{"kept": ["upgraded"]}]
    for one in (guard, other):
        one.close()


def test_what_is_no_message_on_the_childs_channel_is_left_out(guard: Guard) -> None:
    lines = [b"{half a line", b"5", b"[" * 100_000, b"\xff\xfe", b'{"fine": 1}', b"no end"]
    child = Child(guard, f"import os\nfor line in {lines!r}: os.write(3, line + b'\\n')")
    child.end()
    assert child.answers == [{"fine": 1}]

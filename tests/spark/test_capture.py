"""What chunks in threads of one process print and set: each its own, kept within bounds, and put back afterwards."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from opendataflow.spark.capture import chunk_output, kept_output
from opendataflow.spark.chunk_environment import chunk_environment, forbidden
from opendataflow.spark.kept import Kept


def together(*works: Callable[[], None]) -> None:
    """Run them at the same time; the first error is raised."""
    with ThreadPoolExecutor(len(works)) as pool:
        for done in [pool.submit(work) for work in works]:
            done.result(timeout=30)


# Output -----------------------------------------------------------------------------------------------------------
def test_chunks_in_threads_get_their_own_output_in_whole_lines(capsys: pytest.CaptureFixture[str]) -> None:
    logs: dict[str, list[str]] = {"a": [], "b": []}
    kept: dict[str, str] = {}
    meet = threading.Barrier(2)

    def chunk(name: str) -> Callable[[], None]:
        def run() -> None:
            with chunk_output(logs[name].append), kept_output() as output:
                for number in range(50):
                    meet.wait(10)
                    print(name, end=" ")
                    print(number, file=sys.stderr if number % 2 else sys.stdout)
            kept[name] = output.text

        return run

    together(chunk("a"), chunk("b"))
    for name in "ab":
        lines = [f"{name} {number}\n" for number in range(50)]
        assert logs[name] == lines
        assert kept[name] == "".join(lines)
    assert capsys.readouterr().out == ""


def test_output_outside_of_a_chunk_and_after_it_goes_where_it_always_went(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout, sys.stderr
    late, log = threading.Event(), list[str]()
    with chunk_output(log.append):
        left_over = threading.Thread(target=lambda: (late.wait(10), print("late")))
        left_over.start()
        print("inside, without an end", end="")
        assert log == []
    late.set()
    left_over.join(10)
    print("outside")
    assert log == ["inside, without an end"]
    assert capsys.readouterr().out == "late\noutside\n"
    assert (sys.stdout, sys.stderr) == before


def test_threads_and_byte_writers_of_a_chunk_are_heard() -> None:
    log: list[str] = []
    with chunk_output(log.append), kept_output() as kept:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda n: print("from a pool", n), range(2)))
        sys.stdout.buffer.write("grün\n".encode())
        with pytest.raises(TypeError, match="must be str, not bytes"):
            sys.stdout.write(b"bytes")  # type: ignore[arg-type]
    assert sorted(kept.text.splitlines()) == ["from a pool 0", "from a pool 1", "grün"]
    assert "".join(log) == kept.text


WARNING = """\
import sys, warnings
from opendataflow.spark.capture import chunk_output, kept_output
def run():
    for _ in range(3):
        warnings.warn("old way", stacklevel=1)
for _ in range(2):
    log = []
    with chunk_output(log.append), kept_output() as kept:
        run()
    assert "".join(log) == kept.text
    print(kept.text.count("UserWarning: old way"), "<string>:5:" in kept.text)
"""


def test_a_warning_is_shown_once_in_every_step_that_causes_it() -> None:
    # A Python of its own: in this one, the tests decide what becomes of warnings.
    done = subprocess.run([sys.executable, "-c", WARNING], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("1 True\n1 True\n", "")


def test_a_long_output_keeps_its_beginning_and_end_and_says_what_it_left_out() -> None:
    short, long = Kept(head=10, tail=20), Kept(head=10, tail=20)
    short.add("0123456789" * 3)
    assert short.text == "0123456789" * 3
    for number in range(1000):
        long.add(f"{number:04}\n")
    assert long.text == "0000\n0001\n\n… 4,970 characters left out …\n0996\n0997\n0998\n0999\n"


# Environment ------------------------------------------------------------------------------------------------------
def test_each_chunk_sees_its_own_variables_also_in_processes_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARED", "everybody's")
    process, popen, system = os.environ, subprocess.Popen.__init__, os.system
    meet = threading.Barrier(2)

    def chunk(runid: str) -> Callable[[], None]:
        def run() -> None:
            with chunk_environment({"RUN_ID": runid}):
                meet.wait(10)
                assert (os.environ["RUN_ID"], os.getenv("RUN_ID"), os.environ["SHARED"]) == (
                    runid,
                    runid,
                    "everybody's",
                )
                for env in (None, {**os.environ}):
                    said = subprocess.run(["sh", "-c", "echo $RUN_ID"], capture_output=True, text=True, env=env)
                    assert said.stdout == f"{runid}\n"
                assert os.system(f'test "$RUN_ID" = {runid} && exit 3') == 3 << 8  # noqa: S605
                with ThreadPoolExecutor(1) as pool:
                    assert pool.submit(os.getenv, "RUN_ID").result() == runid
                meet.wait(10)

        return run

    together(chunk("7"), chunk("8"))
    assert (os.environ, subprocess.Popen.__init__, os.system) == (process, popen, system)
    assert "RUN_ID" not in os.environ


def test_what_a_chunk_sets_or_deletes_is_forgotten_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT", "1")
    with chunk_environment({"RUN_ID": "x"}):
        os.environ["NEW"] = "2"
        os.environ |= {"NEWER": "3"}
        del os.environ["KEPT"]
        assert "KEPT" not in os.environ
        assert os.environ.get("KEPT") is None
        assert ("KEPT" in os.environ.copy(), "KEPT" in list(os.environ)) == (False, False)
        assert os.environ.setdefault("NEW", "0") == "2"
        assert (os.environ | {"a": "b"})["NEWER"] == "3"
        assert len(os.environ) == len(os.environ.copy()) == len(dict(os.environ))
        assert subprocess.check_output(["sh", "-c", "echo $NEW$KEPT"]) == b"2\n"
        with pytest.raises(KeyError):
            del os.environ["KEPT"]
        with pytest.raises(TypeError, match="str expected, not int"):
            os.environ["NUMBER"] = 1  # type: ignore[assignment]
        with pytest.raises(ValueError, match="illegal"):
            os.environ["A=B"] = "c"
    assert os.environ["KEPT"] == "1"
    assert not {"NEW", "NEWER", "RUN_ID"} & set(os.environ)


def test_outside_of_a_chunk_the_process_changes_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OURS", raising=False)
    begun, done = threading.Event(), threading.Event()

    def chunk() -> None:
        with chunk_environment({"RUN_ID": "x"}):
            begun.set()
            done.wait(10)
            assert os.environ["OURS"] == "1"

    thread = ThreadPoolExecutor(1)
    running = thread.submit(chunk)
    begun.wait(10)
    os.environ["OURS"] = "1"
    assert "RUN_ID" not in os.environ
    assert subprocess.check_output(["sh", "-c", "echo $OURS$RUN_ID"]) == b"1\n"
    done.set()
    running.result(10)
    thread.shutdown()
    assert os.environ.pop("OURS") == "1"


def test_a_forbidden_variable_raises_for_whoever_asks_for_it_or_hands_it_on() -> None:
    with chunk_environment({"RUN_ID": forbidden(LookupError("not here"))}):
        for ask in (
            lambda: os.environ["RUN_ID"],
            lambda: os.getenv("RUN_ID"),
            lambda: "RUN_ID" in os.environ,
            lambda: dict(os.environ),
            lambda: subprocess.run(["true"]),
        ):
            with pytest.raises(LookupError, match="not here"):
                ask()
        assert os.environ["PATH"]
        assert "RUN_ID" in list(os.environ)
    assert "RUN_ID" not in os.environ


def test_a_thread_that_outlives_its_chunk_has_no_variables_of_it_and_a_pool_those_of_each_chunk() -> None:
    late = threading.Event()
    seen: list[str | None] = []
    pool = ThreadPoolExecutor(1)
    with chunk_environment({"RUN_ID": "7"}):
        left_over = threading.Thread(target=lambda: (late.wait(10), seen.append(os.getenv("RUN_ID"))))
        left_over.start()
        assert pool.submit(os.getenv, "RUN_ID").result(10) == "7"
    with chunk_environment({"RUN_ID": "8"}):
        assert pool.submit(os.getenv, "RUN_ID").result(10) == "8"
        late.set()
        left_over.join(10)
    pool.shutdown()
    assert seen == [None]

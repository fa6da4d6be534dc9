"""What a worker shows: read beside its loop, and right however it was counted."""

import threading
from types import SimpleNamespace

import pytest
from world import DAYS, LOAD, World, job

from opendataflow.cli.workers import progress as worker_look
from opendataflow.cli.workers import view as worker_view
from opendataflow.cli.workers.progress import Looks
from opendataflow.cli.workers.view import Events, Lines
from opendataflow.domain.runs.run import Ending
from opendataflow.store import status_counts as tally
from opendataflow.store.claims import LoopStore
from opendataflow.store.records import workers
from opendataflow.store.status_counts import Counting, counts
from support.receivers import wait_until

REPORT = job("report", ["orders"], ["reports"])


@pytest.mark.parametrize("view", [Lines, Events])
def test_a_worker_says_why_nothing_starts_also_while_it_rests(
    loading: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], view: type[Lines]
) -> None:
    moment = 1000.0
    for module in (worker_view, worker_look):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: moment))
    here = view(Looks("p"), loading.open)

    def said(*, is_busy: bool) -> str:
        nonlocal moment
        moment += 20.0
        here.refresh(running=0, slots=1, is_busy=is_busy)
        wait_until(lambda: not here.onlooker.is_looking, "it has looked")
        here.refresh(running=0, slots=1, is_busy=is_busy)
        return "".join(capsys.readouterr())

    assert ("8 left" if view is Lines else '"left": 8') in said(is_busy=True)
    said(is_busy=False)
    assert said(is_busy=False) == "", "at rest, and nothing has changed"
    workers.pause(loading.store, None, until=loading.store.clock() + 600, reason="a rebuild")
    assert "everything is paused by tests: a rebuild until 20" in said(is_busy=False)
    assert said(is_busy=False) == ""
    workers.resume(loading.store, None)
    workers.pause(loading.store, loading.store.get_job("load"))
    assert "paused by tests" in said(is_busy=False)
    workers.resume(loading.store, loading.store.get_job("load"))
    workers.set_limit(loading.store, loading.store.get_job("load"), 0)
    assert "the limit of load is 0" in said(is_busy=False)
    here.close()


def test_a_look_that_takes_long_holds_nothing_up(loading: World, capsys: pytest.CaptureFixture[str]) -> None:
    may_look, opened = threading.Event(), []

    def open_slowly() -> LoopStore:
        opened.append(threading.current_thread())
        may_look.wait(30)
        return loading.open()

    here = worker_view.Events(Looks("p"), open_slowly)
    here.every_seconds = here._next = 0.0
    for _ in range(100):
        here.refresh(running=1, slots=2, is_busy=True)
    assert capsys.readouterr().out == ""
    assert opened in ([], [here.onlooker.thread])
    may_look.set()
    wait_until(lambda: not here.onlooker.is_looking, "it has looked")
    here.refresh(running=1, slots=2, is_busy=True)
    assert '"left": 8' in capsys.readouterr().out
    here.close()
    assert here.onlooker.thread is not None
    assert not here.onlooker.thread.is_alive()
    assert opened == [here.onlooker.thread], "one connection, of the thread's own"


def test_what_goes_wrong_with_a_look_is_said_once_and_it_looks_again(
    loading: World, capsys: pytest.CaptureFixture[str]
) -> None:
    tries = 0

    def open_at_last() -> LoopStore:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise OSError("too many open files")
        return loading.open()

    here = Lines(Looks("p"), open_at_last)
    here.every_seconds = here._next = 0.0
    for _ in range(4):
        here.refresh(running=0, slots=1, is_busy=True)
        wait_until(lambda: not here.onlooker.is_looking, "it has looked")
    told = "".join(capsys.readouterr())
    here.close()
    assert told.count("progress: OSError: too many open files") == 1
    assert "8 left" in told


def test_counts_in_between_are_those_that_counting_gives(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.apply(LOAD, REPORT)
    world.ready("orders", *DAYS)
    monkeypatch.setattr(tally, "COUNT_SHARE", 1e9)  # once counted, never again
    counting = Counting("p")

    def both() -> dict[str, dict[str, int]]:
        found = {name: {status: n for status, n in of.items() if n} for name, of in counting.jobs(world.store).items()}
        counted = counts(world.store, project="p")["jobs"]
        assert found == {name: {k: n for k, n in of.items() if k != "EXPIRED"} for name, of in counted.items()}
        return found

    assert both() == {"load": {"PENDING": 8}, "report": {"PENDING": 8}}
    claims = [world.must_claim("load") for _ in range(4)]
    assert both()["load"] == {"PENDING": 4, "RUNNING": 4}
    world.finish(claims[0])
    world.finish(claims[1], Ending.FAILED)
    assert both()["load"] == {"PENDING": 4, "RUNNING": 2, "COMPLETE": 1, "FAILED": 1}
    world.finish(world.must_claim("report"))
    world.pass_time(61)
    assert world.recover() == 2
    assert both()["report"] == {"PENDING": 7, "COMPLETE": 1}
    for _ in range(2):
        world.finish(world.must_claim("load"))
    tally.fold_if_due(world.store)
    with world.store.transaction() as tx:
        tally.fold_tally(tx)
    both()
    world.apply(LOAD)  # a job is gone: what was counted is no longer what there is
    assert both().keys() == {"load"}


def test_what_is_new_is_in_the_next_count(loading: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally, "COUNT_SHARE", 1e9)
    counting = Counting("p")
    assert counting.jobs(loading.store)["load"]["PENDING"] == 8
    loading.ready("orders", "9")
    assert counting.jobs(loading.store)["load"]["PENDING"] == 8
    monkeypatch.setattr(counting, "_next", 0.0)
    assert counting.jobs(loading.store)["load"]["PENDING"] == 9

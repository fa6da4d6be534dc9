"""The thread that watches for others: whatever it meets, it goes on watching."""

from pathlib import Path

import pytest

from opendataflow.alerts import watch as alert_watch
from opendataflow.alerts.watch import Watch, start_sender
from opendataflow.project.address import Address
from opendataflow.store import open_store
from opendataflow.store.claims import LoopStore
from opendataflow.store.migrate import upgrade
from support.receivers import wait_until


def new_store(folder: Path) -> str:
    url = f"sqlite:///{folder / 'state.db'}"
    store = open_store(url, actor="tests", must_exist=False, check=False)
    upgrade(store)
    store.close()
    return url


def test_an_error_that_nobody_thought_of_is_said_and_does_not_end_the_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alert_watch, "IDLE_SECONDS", 0.05)
    url, opened, said = new_store(tmp_path), list[str](), list[str]()

    def open_it() -> LoopStore:
        if not said:
            raise RuntimeError("no more threads")
        opened.append(url)
        return open_store(url, actor="tests")

    watch = Watch(open_it, Address(url, None, None, None, str(tmp_path)), say=said.append)
    watch.start()
    wait_until(lambda: opened, "it opened the store in the end")
    watch.close()
    assert said == ["alerts: RuntimeError: no more threads"]


def test_a_sender_is_started_from_a_project_whose_folder_is_gone(tmp_path: Path) -> None:
    url = new_store(tmp_path)
    process = start_sender(Address(url, None, None, str(tmp_path / "gone"), str(tmp_path)), linger=0.0)
    assert process.wait(30) == 0

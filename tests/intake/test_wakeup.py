"""A runner that sleeps is woken when items become durable."""

import select
from pathlib import Path

from opendataflow.intake.log import IntakeLog
from opendataflow.intake.wakeup import Wakeup


def is_readable(wakeup: Wakeup) -> bool:
    return bool(select.select(wakeup.fds, [], [], 0)[0])


def test_it_is_readable_from_an_append_until_it_is_drained(tmp_path: Path) -> None:
    wakeup = Wakeup(str(tmp_path))
    assert wakeup.fds == (), "there is no log yet"
    log = IntakeLog(str(tmp_path))
    log.append(b'[{"a": 1}]', 1)
    assert len(wakeup.fds) == 1
    assert not is_readable(wakeup), "whoever waits has looked at the log after it began to watch"
    for _ in range(300):  # as many as fit into no single read
        log.append(b'[{"a": 2}]', 1)
    assert is_readable(wakeup)
    wakeup.drain()
    assert not is_readable(wakeup)
    log.append(b'[{"a": 3}]', 1)
    assert is_readable(wakeup)
    wakeup.close()
    log.close()
    assert wakeup.fds == ()

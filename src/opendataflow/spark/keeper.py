"""The keeper of a warm Spark driver: `python -P -m opendataflow.spark.keeper FOLDER`.

It owns the driver's JVM and hands it out over a unix socket, in JSON lines. A run sends

    {"attach": {"run": "12", "group": "run-12", "identity": "store/job/dataid", "pid": 4711}}

and keeps the connection open for as long as it uses Spark. It gets `{"waiting": n}` while it waits for its turn, then
`{"gateway": {"port": …, "secret": …}, "group": …, "tag": …, "app": …}`. When the connection closes, or the process at
its other end has ended, the run is over and its Spark jobs are cancelled. `{"failed": sentence}` says why Spark did
not start; `{"jvm_ended": sentence, "signal": n, "runs": n, "stopped": false}` that the JVM is gone, and how many runs
used it. With `"stays": true` in it, the process uses Spark for many runs, one after the other; it gets
`{"leave": true}` when another waits for the driver, or the keeper is to end, and leaves after the run in its hands.
Other requests: `{"status": true}`, `{"stop": true, "force": false}`, and
`{"expect": true}` of somebody who is about to attach.

It kills a JVM that does not answer for a minute. It ends when nobody has used it for a while, after its runs when it is
asked to (`stop`, SIGTERM), at once when asked twice or with force. One that has served many runs, or whose JVM has
grown, starts another in its place, and ends with its last run.
"""

import contextlib
import json
import os
import queue
import selectors
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any, NoReturn

from opendataflow.errors import DataflowError
from opendataflow.own_process import protect
from opendataflow.spark.keeper_folder import KeeperFolder
from opendataflow.spark.keeper_jvm import Driver, OpenRun
from opendataflow.spark.keeper_peer import Peer
from opendataflow.spark.keeper_settings import KeeperSettings
from opendataflow.spark.keeper_turns import Turns

_TICK_SECONDS = 0.5
_BEAT_SECONDS = 5.0  # how often somebody who waits hears from us
_START_SECONDS = 600.0
_END_SECONDS = 10.0  # for a JVM that is ending to end
_CANCEL_AGAIN_SECONDS = (1.0, 3.0)  # a job that a dying run was about to start


class Keeper:
    """One thread serves the socket, one makes all calls to the JVM, one waits for the JVM's end."""

    def __init__(self, folder: KeeperFolder, settings: KeeperSettings) -> None:
        self._folder, self._settings = folder, settings
        self._driver = Driver(settings, folder.instance)
        self._turns = Turns(folder.read_suspects())
        self._peers: dict[int, Peer] = {}
        self._numbers = 0
        self._served = 0
        self._state = "starting"
        self._facts: dict[str, Any] = {}
        self._jvm_pid: int | None = None
        self._started_at, self._used_at = datetime.now(UTC).isoformat(), time.monotonic()
        self._beat_at = self._started = time.monotonic()
        self._terms = 0
        self._lost: tuple[str, float] | None = None  # why the driver is of no use any more, and until when to wait
        self._calling = False  # the JVM has been asked something that it has not answered
        self._answers = self._answers_seen = 0
        self._looked_at = time.monotonic()
        self._unanswered_seconds = 0.0
        self._hang: str | None = None
        self._listener: socket.socket | None = None
        self._selector = selectors.DefaultSelector()
        self._posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._wake, self._woken = socket.socketpair()
        for end in (self._wake, self._woken):
            end.setblocking(False)
        self._environ = dict(os.environ)

    # Loop -------------------------------------------------------------------------------------------------------------
    def run(self) -> NoReturn:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: self._post(lambda: self._stop(force=False)))
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        self._listener = self._folder.listen()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._woken, selectors.EVENT_READ, self._drain)
        threading.Thread(target=self._serve_calls, name="jvm-calls", daemon=True).start()
        while True:
            for key, _events in self._selector.select(_TICK_SECONDS):
                key.data()
            while not self._posted.empty():
                self._posted.get()()
            self._look_at_the_clock()

    def _drain(self) -> None:
        try:
            while self._woken.recv(4096):
                pass
        except BlockingIOError:
            pass

    def _post(self, action: Callable[[], None]) -> None:
        """Let the loop do this; from any thread."""
        self._posted.put(action)
        try:
            self._wake.send(b"\0")
        except BlockingIOError:
            pass

    def _look_at_the_clock(self) -> None:
        now = time.monotonic()
        if now - self._beat_at >= _BEAT_SECONDS:
            self._beat_at = now
            self._say_who_waits()
            if self._state != "starting" and self._is_used() and not self._calling and self._calls.empty():
                self._call(self._driver.probe)
            if not self._folder.is_found():
                self._stop(force=False)  # somebody removed the socket: nobody can come any more
        self._look_at_the_jvm(now)
        if self._lost is not None and now >= self._lost[1]:
            self._end(self._lost[0], number=None)
        if self._state == "starting" and now - self._started > _START_SECONDS:
            self._fail(f"Spark did not start within {_START_SECONDS:.0f} seconds", "JobFailed")
        if self._state == "ready" and not self._is_used() and now - self._used_at >= self._settings.idle_seconds:
            self._end_if_nobody_comes()

    def _look_at_the_jvm(self, now: float) -> None:
        """Kill one that hangs; its end is noticed as any other."""
        # The time in which this process itself did nothing, because it or the machine was stopped, does not count.
        passed, self._looked_at = min(now - self._looked_at, 2 * _TICK_SECONDS), now
        is_waiting = self._calling and self._answers == self._answers_seen
        self._unanswered_seconds = self._unanswered_seconds + passed if is_waiting else 0.0
        self._answers_seen = self._answers
        if self._unanswered_seconds >= self._settings.hang_seconds and self._hang is None:
            self._hang = f"Spark's Java process did not answer for {self._settings.hang_seconds:g} s and was killed"
            self._driver.kill()

    def _is_used(self) -> bool:
        return bool(self._turns.attached or self._turns.waiting)

    # Requests ---------------------------------------------------------------------------------------------------------
    def _accept(self) -> bool:
        """Take the next connection; False when there is none."""
        if self._listener is None:
            return False
        try:
            accepted, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return False
        self._numbers += 1
        peer = Peer.of(self._numbers, accepted)
        if peer is None:
            return True
        self._peers[peer.number] = peer
        for watched in peer.watched():
            self._selector.register(watched, selectors.EVENT_READ, partial(self._hear, peer, watched))
        return True

    def _hear(self, peer: Peer, watched: Any) -> None:
        messages = peer.receive() if watched is peer.socket else None
        if messages is None:
            self._leave(peer)
            return
        for message in messages:
            if peer.number in self._peers:
                self._answer(peer, message)

    def _answer(self, peer: Peer, message: dict[str, Any]) -> None:
        if "attach" in message:
            peer.asked = {key: message["attach"].get(key) for key in ("run", "group", "identity", "pid")}
            peer.since, peer.stays = time.time(), bool(message["attach"].get("stays"))
            self._turns.ask(peer.number, str(peer.asked["identity"]))
            self._grant()
            if peer.number in self._turns.waiting:
                self._say_who_waits(only=peer)
        elif "session" in message:
            self._call(lambda: self._driver.note(peer.number, message["session"]))
        elif "expect" in message:
            self._used_at = time.monotonic()
        elif "status" in message:
            self._send(peer, self._status())
        elif "stop" in message:
            self._send(peer, {"stopping": True})
            self._stop(force=bool(message.get("force")))

    def _send(self, peer: Peer, message: dict[str, Any]) -> None:
        if not peer.send(message):
            self._leave(peer)

    def _leave(self, peer: Peer) -> None:
        """The connection is closed: the run is over."""
        if self._peers.pop(peer.number, None) is None:
            return
        for watched in peer.watched():
            self._selector.unregister(watched)
        peer.close()
        if peer.asked is not None:
            self._used_at = time.monotonic()
        if peer.number in self._turns.attached:
            # It counts as attached until the JVM has answered once more: it may have left because the JVM is ending.
            self._call(lambda: self._close_run(peer.number))
        else:
            self._turns.leave(peer.number)
            self._grant()
            self._end_if_done()

    def _run_closed(self, number: int) -> None:
        if self._turns.leave(number):
            self._keep_suspects(self._turns.suspects)
        self._note_attached()
        self._served += 1
        self._used_at = time.monotonic()
        self._grant()
        self._end_if_done()

    def _status(self) -> dict[str, Any]:
        runs = [
            {**(peer.asked or {}), "since": peer.since}
            for number in self._turns.attached
            if (peer := self._peers.get(number)) is not None
        ]
        return {
            "state": self._state, "pid": os.getpid(), "jvm_pid": self._jvm_pid, "master": self._settings.master,
            "started_at": self._started_at, "runs": runs, "waiting": len(self._turns.waiting), "served": self._served,
            "jvm_bytes": resident_bytes(self._jvm_pid), "idle_seconds": self._settings.idle_seconds,
            "suspects": len(self._turns.suspects), **self._facts,
        }  # fmt: skip

    # Turns ------------------------------------------------------------------------------------------------------------
    def _grant(self) -> None:
        if self._state == "starting" or self._lost is not None:
            return
        granted = self._turns.grant()
        if granted:
            self._note_attached()
        for number in granted:
            self._call(lambda number=number: self._open_run(number))  # type: ignore[misc]
        self._ask_to_leave()

    def _ask_to_leave(self) -> None:
        """Those that would stay for ever make room: for a run that is to be alone, for the next keeper."""
        if not self._turns.waiting and self._state != "ending":
            return
        for number in self._turns.attached:
            peer = self._peers.get(number)
            if peer is not None and peer.stays and peer.has_gateway and not peer.is_asked_to_leave:
                peer.is_asked_to_leave = True
                self._send(peer, {"leave": True})

    def _keep_suspects(self, suspects: set[str]) -> None:
        try:
            self._folder.write_suspects(suspects)
        except OSError as error:  # a full disk, perhaps: they share the driver once more
            _log(f"the runs that are to use Spark alone could not be written down: {error}")

    def _note_attached(self) -> None:
        """Should this keeper be killed, the next one gives these runs Spark alone."""
        try:
            self._folder.note_attached(self._turns.identities)
        except OSError as error:
            _log(f"the runs that use Spark could not be written down: {error}")

    def _say_who_waits(self, *, only: Peer | None = None) -> None:
        for number in [*self._turns.attached, *self._turns.waiting]:
            peer = self._peers.get(number)
            if peer is not None and not peer.has_gateway and (only is None or peer is only):
                ahead = self._turns.ahead_of(number)
                self._send(peer, {"starting": True} if self._state == "starting" else {"waiting": ahead})

    # The JVM, in the thread that calls it -----------------------------------------------------------------------------
    def _call(self, action: Callable[[], None]) -> None:
        self._calls.put(action)

    def _serve_calls(self) -> None:
        try:
            self._driver.start(self._folder.log_pipe(), self._jvm_started)
            facts = self._driver.facts
        except DataflowError as error:
            sentence, kind = str(error), type(error).__name__
            self._post(lambda: self._fail(sentence, kind))
            return
        except BaseException as error:  # noqa: BLE001  in a thread nobody would hear of it
            traceback.print_exc()
            sentence = f"Spark did not start: {type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
            self._post(lambda: self._fail(sentence, "JobFailed"))
            return
        self._post(lambda: self._be_ready(facts))
        while True:
            action = self._calls.get()
            self._calling = True
            try:
                action()
            except BaseException as error:  # noqa: BLE001  a driver that cannot be asked is of no use to any run
                traceback.print_exc()
                is_ours = isinstance(error, DataflowError)
                sentence = str(error) if is_ours else f"Spark's driver does not answer: {type(error).__name__}"
                self._post(lambda sentence=sentence: self._driver_lost(sentence))  # type: ignore[misc]
            finally:
                self._calling = False
                self._answers += 1

    def _jvm_started(self, process: Any) -> None:
        self._jvm_pid = process.pid
        self._folder.note_jvm(process.pid)

        def wait() -> None:
            code = process.wait()
            self._post(lambda: self._jvm_ended(code))

        threading.Thread(target=wait, name="jvm-end", daemon=True).start()

    def _open_run(self, number: int) -> None:
        peer = self._peers.get(number)
        if peer is None or peer.asked is None:
            return  # it left before its turn came
        run = self._driver.open(number, str(peer.asked["group"]))
        self._post(lambda: self._hand_out(run))

    def _hand_out(self, run: OpenRun) -> None:
        peer = self._peers.get(run.number)
        if peer is None:
            return
        peer.has_gateway = True
        gateway = {"port": run.port, "secret": run.secret}
        self._send(peer, {"gateway": gateway, "group": run.group, "tag": run.tags[0], **self._facts})
        self._ask_to_leave()

    def _close_run(self, number: int) -> None:
        run = self._driver.close(number)
        self._post(lambda: self._run_closed(number))
        if run is None:
            return  # it left before it was given a gateway
        for seconds in _CANCEL_AGAIN_SECONDS:
            later = threading.Timer(seconds, lambda: self._call(lambda: self._driver.cancel(run)))
            later.daemon = True
            later.start()

    # States -----------------------------------------------------------------------------------------------------------
    def _be_ready(self, facts: dict[str, Any]) -> None:
        _log(f"{facts['app']} is ready after {time.monotonic() - self._started:.1f} s")
        self._facts = facts
        self._used_at = time.monotonic()
        self._state = "ready" if self._state == "starting" else self._state
        self._grant()
        self._end_if_done()

    def _fail(self, sentence: str, kind: str) -> None:
        """Spark did not start: everybody who waits hears why."""
        _log(sentence)
        self._folder.leave()
        while self._accept():
            pass
        for peer in list(self._peers.values()):
            self._hear(peer, peer.socket)
        if sentence.startswith("Java ended"):
            sentence = f"{sentence}: {self._folder.last_output() or 'it wrote nothing'}"
        for peer in list(self._peers.values()):
            peer.send({"failed": sentence, "kind": kind})
        self._exit(1)

    def _jvm_ended(self, code: int) -> None:
        from opendataflow.spark.jvm import JvmEnd

        end = JvmEnd(code)
        self._end(self._hang or str(end), number=end.signal)

    def _driver_lost(self, sentence: str) -> None:
        """The driver does not do what it is asked: its JVM is ending, or a run has stopped Spark in it."""
        if self._lost is None:
            self._folder.leave()
            self._lost = sentence, time.monotonic() + _END_SECONDS

    def _end_if_nobody_comes(self) -> None:
        """Stop for idleness, unless somebody has connected meanwhile."""
        self._folder.hide()
        if self._accept():
            self._folder.show()
            self._used_at = time.monotonic()
            return
        _log("stops: nobody used it")
        self._exit(0)

    def _stop(self, *, force: bool) -> None:
        _log("is asked to stop" + (" at once" if force or self._terms else ""))
        self._terms += 1
        if force or self._terms > 1:
            self._end("Spark was stopped", number=None, stopped=True)
        self._folder.leave()
        if self._state == "ready":
            self._state = "ending"
        self._ask_to_leave()
        self._end_if_done()

    def _end_if_done(self) -> None:
        if self._state == "ready" and self._has_aged():
            _log(f"aged after {self._served} runs, with {resident_bytes(self._jvm_pid) >> 20} MiB: another takes over")
            self._folder.leave()
            self._state = "ending"
            self._folder.start_another(self._environ)
            self._ask_to_leave()
        is_asked = self._terms > 0 or self._state == "ending"
        if is_asked and not self._is_used() and not self._accept():
            self._exit(0)

    def _has_aged(self) -> bool:
        if self._served >= self._settings.most_runs:
            return True
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return resident_bytes(self._jvm_pid) > self._settings.memory_share * memory

    def _end(self, sentence: str, *, number: int | None, stopped: bool = False) -> NoReturn:
        """Tell every run that its Spark is gone, and go."""
        attached = self._turns.attached
        _log(f"{sentence}; {len(attached)} runs were attached")
        self._folder.leave()
        if len(attached) > 1 and not stopped:
            self._keep_suspects(self._turns.suspects | set(self._turns.identities))
        for peer in list(self._peers.values()):
            if peer.number in attached:
                peer.send({"jvm_ended": sentence, "signal": number, "runs": len(attached), "stopped": stopped})
        self._exit(0)

    def _exit(self, code: int) -> NoReturn:
        self._folder.leave()
        self._driver.end()
        for peer in self._peers.values():
            peer.close()
        self._folder.remove_instance()
        sys.stderr.flush()
        os._exit(code)


def _log(text: str) -> None:
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{now} keeper {os.getpid()}: {text}\n")
        sys.stderr.flush()


def resident_bytes(pid: int | None) -> int:
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def main(argv: list[str]) -> NoReturn:
    os.umask(0o077)
    protect()
    folder = KeeperFolder.take(argv[0])
    if folder is None:
        sys.exit(0)  # another keeper serves this folder
    try:
        settings = KeeperSettings.read(argv[0])
    except (OSError, json.JSONDecodeError, TypeError) as error:
        sys.exit(f"the settings in {argv[0]} cannot be read: {error}")
    Keeper(folder, settings).run()


if __name__ == "__main__":
    main(sys.argv[1:])

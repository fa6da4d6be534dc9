"""The guard: a small process between a runner and its child that never lets work outlive its owner.

The runner forks it first, before it opens anything. The guard is a child subreaper and listens to a pipe from the
runner. When that pipe closes (the runner died, however), or when the runner could not renew its lease in time (it
hangs, was stopped, or is cut off), the guard kills the child's process group and then every descendant, also those
that made a session of their own. It serves one child at a time, one after the other.

Messages are JSON lines. To the guard: start, deadline, signal, kill. From the guard: started, failed, ended.

A worker's guards are programs of their own that start children without copying themselves first, which is most of what
a small child costs. Such a child has no parent-death signal: should somebody kill its guard, the worker ends it, or,
if both were killed, whoever recovers the run does; both find it by the mark in its environment.

A guard that is a fork of a zygote (zygote.py) can also start its child as a fork of itself, which then runs the
zygote's program. It sends JSON lines on file descriptor 3.

A child may also stay for many runs (that of a stream does): it reads one line per task from its standard input. While
it has nothing to do it has no deadline.
"""

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

if __name__ == "__main__":  # a program of its own, with the bare language around it
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from opendataflow.domain.variables import without_platform_variables
from opendataflow.execution.processes import kill_tree, start_time
from opendataflow.own_process import prctl, protect

_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_PDEATHSIG = 1
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE)
_LONGEST_LINE = 16 << 20  # from a child
LEFTOVER_SECONDS = 1.0  # how long what a script left behind may take to end by itself (`exec > >(tee log)` does)


def open_standard_streams() -> None:
    """Streams that the caller closed become /dev/null: no pipe of ours may get the number 0, 1 or 2."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)


class Started(NamedTuple):
    pid: int


class NotStarted(NamedTuple):
    reason: str


class Ended(NamedTuple):
    exit_code: int | None  # None when a signal ended it
    signal: int | None
    expired: bool  # the guard ended it because the lease was not renewed in time


class Guard:
    """The runner's end: send commands, read `events_fd`, and the child's output from `out_fd` and `err_fd`."""

    def __init__(self, *, apart: bool = False, forked_by: Callable[[Sequence[int]], int] | None = None) -> None:
        """Fork the guard; `apart`, it is a program of its own, small whatever this process has grown to by now.

        `forked_by` has another process fork it: it takes the guard's descriptors and returns its pid.
        """
        pipes: list[tuple[int, int]] = []
        try:
            for _ in range(6):
                pipes.append(os.pipe())
        except OSError:
            _close_all(fd for pipe in pipes for fd in pipe)
            raise
        (control_r, self._control), (self.events_fd, report_w), (self.out_fd, out_w) = pipes[:3]
        (self.err_fd, err_w), (tasks_r, self._tasks), (self.answers_fd, answers_w) = pipes[3:]
        self._unread = b""
        self._unanswered = b""
        self._common: Mapping[str, str] | None = None
        self.child_stays = False  # a child that serves many runs is alive
        self.started = 0  # children so far
        theirs = (control_r, report_w, out_w, err_w, tasks_r, answers_w)
        self.is_gone = False  # somebody killed it; this process can run nothing more
        self.can_fork = forked_by is not None  # its children may be forks of it
        self.is_current: Callable[[], bool] = lambda: True  # False when what its forks have imported was replaced
        try:
            self.pid = forked_by(theirs) if forked_by else _spawned(theirs) if apart else _forked(theirs)
        except BaseException:
            _close_all((self._control, *self.fds, self._tasks))
            raise
        finally:
            _close_all(theirs)
        for fd in (self.events_fd, self.out_fd, self.err_fd, self.answers_fd):
            os.set_blocking(fd, False)
        self.started_at = start_time(self.pid) or 0

    def start(
        self, argv: list[str], env: Mapping[str, str], cwd: str, deadline: float, *, stays: bool = False,
        forks: bool = False, tell: bool = True, common: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """Run the child; unless told of a later deadline (CLOCK_MONOTONIC), the guard ends it then.

        With `forks` it is a fork of the guard, and `argv` goes to the program of its zygote. Without `tell` the guard
        does not say that the child has started, only how it ended. `common` variables, to which those of `env` are
        added, are sent only when they are not the very ones of the child before.
        """
        self.child_stays = stays
        self.started += 1
        self._unanswered = b""  # half a line of the one before, if it was killed
        start = {"argv": argv, "env": env, "cwd": cwd, "stays": stays, "forks": forks, "tell": tell}
        if common is not self._common or common is None:
            start["common"] = common or {}
            self._common = common
        self._send(start=start, deadline=deadline)

    def give(self, task: str) -> None:
        """Tell the child that stays what to do next, in a short line: a pipe that is full would hold us up."""
        try:
            os.write(self._tasks, task.encode() + b"\n")
        except BrokenPipeError:
            pass  # it is gone; events() says so

    def messages(self) -> list[dict[str, Any]]:
        """What the child that stays has sent since the last call."""
        try:
            data = os.read(self.answers_fd, 1 << 20)
        except BlockingIOError:
            return []
        *lines, self._unanswered = (self._unanswered + data).split(b"\n")
        if len(self._unanswered) > _LONGEST_LINE:
            self._unanswered = b""  # of no child of ours
        from opendataflow.domain.runs.child_json import read_messages

        return read_messages(lines)

    def let_child_end(self, seconds: float) -> None:
        """Close the child's input and give it some time to end by itself; what it says then is nobody's."""
        os.close(self._tasks)
        self._tasks = -1
        give_up = time.monotonic() + seconds
        poll = select.poll()
        poll.register(self.events_fd, select.POLLIN)
        while self.child_stays and (left := give_up - time.monotonic()) > 0:
            poll.poll(left * 1000)
            if self.events() is None:
                return

    def extend(self, deadline: float) -> None:
        self._send(deadline=deadline)

    def signal(self, number: int) -> None:
        self._send(signal=number)

    def kill(self) -> None:
        self._send(kill=True)

    def events(self) -> list[Started | NotStarted | Ended] | None:
        """What the guard has said since the last call; None when the guard itself is gone."""
        try:
            data = os.read(self.events_fd, 65536)
        except BlockingIOError:
            return []
        if not data:
            self.is_gone = True
            return None
        *lines, self._unread = (self._unread + data).split(b"\n")
        found = [_event(json.loads(line)) for line in lines]
        if any(isinstance(event, NotStarted | Ended) for event in found):
            self.child_stays = False
        return found

    def close(self) -> None:
        """Let the guard go; whatever it still guards is killed."""
        os.close(self._control)
        self._wait_for_end()
        _close_all(fd for fd in (*self.fds, self._tasks) if fd >= 0)

    @property
    def fds(self) -> tuple[int, ...]:
        """What to read from."""
        return self.events_fd, self.out_fd, self.err_fd, self.answers_fd

    def exit_status(self) -> int | None:
        """As waitpid gives it, once the guard has ended; None when it is the child of another process."""
        if self.can_fork:
            return None
        try:
            return os.waitpid(self.pid, 0)[1]
        except ChildProcessError:
            return None

    def _wait_for_end(self) -> None:
        if not self.can_fork:
            self.exit_status()
            return
        os.set_blocking(self.events_fd, True)
        while os.read(self.events_fd, 65536):  # its end of the pipe closes with it
            pass

    def _send(self, **message: Any) -> None:
        data = json.dumps(message, ensure_ascii=True).encode() + b"\n"
        try:
            while data:
                data = data[os.write(self._control, data) :]
        except BrokenPipeError:
            pass  # the guard is gone; events() says so


def _close_all(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)


def _forked(fds: tuple[int, ...]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            GuardProcess(*fds).serve()
        finally:
            os._exit(70)
    return pid


def _spawned(fds: tuple[int, ...]) -> int:
    for fd in fds:
        os.set_inheritable(fd, True)
    argv = [sys.executable, "-I", "-S", __file__, *map(str, fds)]
    return os.posix_spawn(sys.executable, argv, without_platform_variables(os.environ))


def _event(message: dict[str, Any]) -> Started | NotStarted | Ended:
    if "started" in message:
        return Started(message["started"])
    if "failed" in message:
        return NotStarted(message["failed"])
    return Ended(message["exit_code"], message["signal"], message["expired"])


class GuardProcess:
    """The guard's own side; it never returns."""

    def __init__(
        self, control: int, report: int, out: int, err: int, tasks: int, answers: int, *, apart: bool = False,
        program: Callable[[list[str]], int] | None = None,
    ) -> None:  # fmt: skip
        """`program` is what a child that is a fork of this process calls."""
        self._apart, self._program = apart or program is not None, program
        self._control, self._report, self._out, self._err = control, report, out, err
        self._tasks, self._answers = tasks, answers
        self._child: int | None = None
        self._pidfd = -1
        self._deadline = float("inf")
        self._expired = False
        self._unread = b""
        self._cwd = ""
        self._common: dict[str, str] = {}

    def serve(self) -> NoReturn:
        os.setsid()
        for number in _IGNORED:
            signal.signal(number, signal.SIG_IGN)
        signal.set_wakeup_fd(-1)
        keep = sorted({0, 1, 2, self._control, self._report, self._out, self._err, self._tasks, self._answers})
        for low, high in zip(keep, [*keep[1:], os.sysconf("SC_OPEN_MAX")], strict=True):
            os.closerange(low + 1, high)  # another guard's pipe held open here would outlive its runner
        if not prctl(_PR_SET_CHILD_SUBREAPER, 1):
            sys.stderr.write("dataflow: the kernel refused to make the guard a subreaper\n")
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        while True:
            wait = None
            if self._child is not None and self._deadline != float("inf"):
                wait = max(0.0, self._deadline - time.monotonic()) * 1000
            ready = dict(poll.poll(wait))
            if self._control in ready and not self._obey(poll):
                if self._child is not None:
                    kill_tree(os.getpid())
                os._exit(0)
            if self._child is not None and self._pidfd in ready:
                poll.unregister(self._pidfd)
                self._reap(self._child)
            elif self._child is not None and time.monotonic() >= self._deadline:
                self._expired = True
                self._deadline = float("inf")
                kill_tree(os.getpid())

    def _obey(self, poll: select.poll) -> bool:
        data = os.read(self._control, 1 << 20)
        if not data:
            return False
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "deadline" in message:
                self._deadline = message["deadline"]
            if "start" in message:
                self._start(message["start"], poll)
            if "signal" in message and self._child is not None:
                try:
                    os.killpg(self._child, message["signal"])
                except ProcessLookupError:
                    pass
            if "kill" in message:
                kill_tree(os.getpid())
        return True

    def _start(self, what: dict[str, Any], poll: select.poll) -> None:
        self._expired = False
        self._common = what.get("common", self._common)
        if time.monotonic() >= self._deadline:
            # The runner was held up between claim and start: by now another owner may have the work.
            self._deadline = float("inf")
            self._say(exit_code=None, signal=None, expired=True)
            return
        try:
            child = self._spawn(what) if self._apart and not what["forks"] else self._fork(what)
        except OSError as error:
            self._say(failed=str(error))
            return
        self._child = child
        self._pidfd = os.pidfd_open(child)
        poll.register(self._pidfd, select.POLLIN)
        if what["tell"]:
            self._say(started=child)

    def _spawn(self, what: dict[str, Any]) -> int:
        """A child that is not a copy of this process first; OSError when it cannot be started."""
        if what["cwd"] != self._cwd:
            os.chdir(what["cwd"])
            self._cwd = what["cwd"]
        actions = [(os.POSIX_SPAWN_DUP2, self._out, 1), (os.POSIX_SPAWN_DUP2, self._err, 2)]
        if what["stays"]:
            actions += [(os.POSIX_SPAWN_DUP2, self._tasks, 0), (os.POSIX_SPAWN_DUP2, self._answers, 3)]
        return os.posix_spawn(
            what["argv"][0],
            what["argv"],
            {**self._common, **what["env"]},
            file_actions=actions,
            setsid=True,
            setsigdef=_IGNORED,
        )

    def _fork(self, what: dict[str, Any]) -> int:
        """A child that dies with this process; OSError when it cannot be started."""
        status_r, status_w = os.pipe()
        me = os.getpid()
        child = os.fork()
        if child == 0:
            try:
                prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
                if os.getppid() != me:
                    os._exit(70)
                if what["forks"]:
                    os.setpgid(0, 0)  # in the guard's session, by which its remains are known
                else:
                    os.setsid()
                for number in _IGNORED:
                    signal.signal(number, signal.SIG_DFL)
                os.dup2(self._out, 1)
                os.dup2(self._err, 2)
                if what["stays"]:
                    os.dup2(self._tasks, 0)
                if what["stays"] or what["forks"]:
                    os.dup2(self._answers, 3)
                os.chdir(what["cwd"])
                env = {**self._common, **what["env"]}
                if what["forks"]:
                    os.close(status_w)
                    self._run_program(what["argv"], env, has_input=what["stays"])
                os.execve(what["argv"][0], what["argv"], env)
            except BaseException as error:  # noqa: BLE001  whatever it was, the runner must hear of it
                os.write(status_w, str(error).encode())
            finally:
                os._exit(127)
        os.close(status_w)
        reason = b""
        while part := os.read(status_r, 4096):
            reason += part
        os.close(status_r)
        if reason:
            os.waitpid(child, 0)
            raise OSError(reason.decode(errors="replace"))
        return child

    def _run_program(self, argv: list[str], env: dict[str, str], *, has_input: bool) -> NoReturn:
        """Be the child: nothing of the guard is left, and nothing of the child outlives this call."""
        code = 70
        try:
            os.closerange(4, os.sysconf("SC_OPEN_MAX"))
            if not has_input:
                nothing = os.open(os.devnull, os.O_RDONLY)
                os.dup2(nothing, 0)
                os.close(nothing)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.environ.clear()
            os.environ.update(env)
            if self._program is None:
                raise TypeError("this guard is no fork of a zygote")
            code = self._program(argv)
        finally:
            os._exit(code)

    def _reap(self, child: int) -> None:
        os.close(self._pidfd)
        _, status = os.waitpid(child, 0)
        self._end_leftovers()
        code = os.waitstatus_to_exitcode(status)
        self._child = None
        self._deadline = float("inf")
        self._say(exit_code=code if code >= 0 else None, signal=-code if code < 0 else None, expired=self._expired)

    def _end_leftovers(self) -> None:
        give_up = time.monotonic() + LEFTOVER_SECONDS
        pause = 0.001
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid:
                continue
            if time.monotonic() >= give_up or self._expired:
                kill_tree(os.getpid())
            time.sleep(pause)
            pause = min(pause * 2, 0.05)

    def _say(self, **message: Any) -> None:
        try:
            os.write(self._report, json.dumps(message).encode() + b"\n")
        except OSError:
            pass  # the runner is gone: the control pipe says so too


if __name__ == "__main__":
    protect()
    try:
        for inherited in map(int, sys.argv[1:]):
            os.set_inheritable(inherited, False)
        GuardProcess(*map(int, sys.argv[1:]), apart=True).serve()
    finally:
        os._exit(70)

"""What the demo needs to tell a story on a terminal: commands that are shown and run, and progress while one waits."""

import contextlib
import ctypes
import fcntl
import os
import pty
import re
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import termios
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

BIN = Path(sys.executable).parent
MOST_LINES = 16  # of a command's output; what is in the middle of more is left out, and counted
EVERY_SECONDS = 5.0  # between two lines of progress where there is no terminal
GIVE_UP_SECONDS = 600.0
STUCK_SECONDS = 15.0  # without anything new, after which it is looked why
_PR_SET_PDEATHSIG = 1
_BARS = re.compile(r"\033\[\?25l.*?\033\[\?25h\s*|\033\[\d*[AK]", re.DOTALL)  # progress that its end wiped out
_STYLES = re.compile(r"\033\[[\d;]*m")
_libc = ctypes.CDLL(None)


class Stage:
    """The folder in which the story takes place, and what runs there in the background."""

    def __init__(self, work: Path, **env: str) -> None:
        self.work, self.is_terminal = work, sys.stdout.isatty()
        self._columns = max(shutil.get_terminal_size((110, 40)).columns - 4, 60)
        self._env = {
            **os.environ, **env, "PATH": f"{BIN}:{os.environ['PATH']}",
            "TERM": os.environ.get("TERM", "xterm"), **({} if self._has_colour else {"NO_COLOR": "1"}),
        }  # fmt: skip
        for name in ("DATAFLOW_STORE", "DATAFLOW_ENV", "DATAFLOW_PROJECT"):
            self._env.pop(name, None)  # the store of the demo is its own
        self._background: list[subprocess.Popen[bytes]] = []

    # Words ----------------------------------------------------------------------------------------------------------
    def title(self, text: str) -> None:
        text = textwrap.fill(text, self._columns, subsequent_indent="   ", break_on_hyphens=False)
        print(f"\n\033[1;36m{text}\033[0m" if self._has_colour else f"\n{text}", flush=True)

    def say(self, text: str) -> None:
        print(f"  {text}", flush=True)

    def _show(self, command: str) -> None:
        print(f"  \033[1m$ {command}\033[0m" if self._has_colour else f"  $ {command}", flush=True)

    @property
    def _has_colour(self) -> bool:
        return self.is_terminal and "NO_COLOR" not in os.environ

    def fail(self, text: str) -> NoReturn:
        sys.exit(f"\nThe demo stops here: {text}")

    # Commands -------------------------------------------------------------------------------------------------------
    def export(self, name: str, command: str) -> None:
        """Show `export NAME=$(command)`; what is run later has it."""
        self._show(f"export {name}=$({command})")
        self._env[name] = subprocess.run(
            ["bash", "-c", command], cwd=self.work, env=self._env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, check=True,
        ).stdout.strip()  # fmt: skip

    def run(self, command: str, *, expect: int = 0, most_lines: int = MOST_LINES) -> str:
        """Show a command, run it as typed, show what it says; end the demo if it ends otherwise than the story says."""
        self._show(command)
        code, said = self._on_terminal(command)
        said = (_BARS if self._has_colour else _STYLES).sub("", _BARS.sub("", said))
        lines = [line.rstrip() for line in said.splitlines() if line.strip()]
        if len(lines) > most_lines:
            lines = [*lines[: most_lines - 4], f"… {len(lines) - most_lines + 1} more lines …", *lines[-3:]]
        wrapped = [part for line in lines for part in self._wrap(line)]
        print("".join(f"    {line}\n" for line in wrapped), end="", flush=True)
        if code != expect:
            self.fail(f"exit code {code}, where the story has {expect}")
        return said

    def _wrap(self, line: str) -> list[str]:
        if len(line) <= self._columns or "\033" in line:
            return [line]
        return textwrap.wrap(line, self._columns, subsequent_indent="  ", break_on_hyphens=False)

    def _on_terminal(self, command: str) -> tuple[int, str]:
        """Run it where it finds a terminal as wide as ours: so it says what the reader's own would."""
        ours, its = pty.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, self._columns, 0, 0))
        process = subprocess.Popen(
            ["bash", "-c", command], cwd=self.work, env=self._env, stdin=subprocess.DEVNULL, stdout=its, stderr=its,
        )  # fmt: skip
        os.close(its)
        said = b""
        try:
            while data := os.read(ours, 65536):
                said += data
        except OSError:
            pass  # how a terminal ends whose last process has gone
        finally:
            os.close(ours)
            code = process.wait()
        return code, said.decode(errors="replace")

    def start(self, command: str, log: str) -> subprocess.Popen[bytes]:
        """Show a command with its `&`, and have it run in the background; it dies with the demo, whatever ends that."""
        self._show(f"{command} >{log} 2>&1 &")
        with open(self.work / log, "wb") as file:
            started = subprocess.Popen(
                ["bash", "-c", f"exec {command}"], cwd=self.work, env=self._env, stdin=subprocess.DEVNULL, stdout=file,
                stderr=subprocess.STDOUT, start_new_session=True,
                preexec_fn=lambda: _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0),  # noqa: PLW1509
            )  # fmt: skip
        self._background.append(started)
        return started

    def kill(self, victim: subprocess.Popen[bytes], *others: int) -> None:
        """SIGKILL, as a power cut would."""
        self._show(f"kill -9 {' '.join(str(pid) for pid in (victim.pid, *others))}")
        for pid in (victim.pid, *others):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        victim.wait()
        self._background.remove(victim)

    def stop(self) -> None:
        """End what runs in the background: asked at first, told after that."""
        for process in self._background:
            for signal_, seconds in ((signal.SIGTERM, 1.0), (signal.SIGTERM, 15.0), (signal.SIGKILL, 15.0)):
                if process.poll() is None:
                    process.send_signal(signal_)
                    try:
                        process.wait(seconds)
                    except subprocess.TimeoutExpired:
                        continue
        self._background.clear()

    # Waiting --------------------------------------------------------------------------------------------------------
    def follow(self, what: str, count: Callable[[], int], total: int) -> None:
        """Wait until so many are done, and show how far it is; a background process that ends ends the demo."""
        started, told_at = time.monotonic(), 0.0
        done, shown = -1, ""
        last, changed_at = -1, 0.0
        while done < total:
            done = count()
            passed = time.monotonic() - started
            bar = "█" * (30 * min(done, total) // max(total, 1))
            line = f"{bar:░<30} {done} of {total} {what}, {passed:.0f} s"
            if self.is_terminal:
                print(f"\r    {line}  ", end="", flush=True)
            elif done >= total or passed - told_at >= EVERY_SECONDS:
                print(f"    {line}", flush=True)
                told_at, shown = passed, line
            self._check_background()
            if done != last:
                last, changed_at = done, passed
            elif passed - changed_at > STUCK_SECONDS:
                self._check_runs()
                changed_at = passed
            if passed > GIVE_UP_SECONDS:
                self.fail(f"no end after {passed:.0f} s: {shown or line}")
            time.sleep(0.05)
        if self.is_terminal:
            print(flush=True)

    def _check_runs(self) -> None:
        """Nothing goes on: where several failed, it stays so."""
        sql = (
            "SELECT jobid, dataid, message FROM run JOIN job_status USING (project, jobid, dataid, runid) "
            "WHERE job_status.status = 'FAILED' ORDER BY runid DESC LIMIT 3"
        )
        failed = self.query(sql)
        if len(failed) == 3:
            jobid, dataid, message = failed[0]
            self.fail(f"{jobid}/{dataid} failed: {message}; see `dataflow doctor`, `dataflow why {jobid} {dataid}`")

    def _check_background(self) -> None:
        for process in self._background:
            if process.poll() is not None:
                for log in sorted(self.work.glob("*.log")):
                    text = log.read_text(errors="replace").splitlines()[-8:]
                    print("".join(f"\n    {log.name}: {line}" for line in text))
                self.fail(f"{process.args[-1]!r} ended with {process.returncode}, see above")  # type: ignore[index]

    def wait_for_text(self, log: str, pattern: str) -> str:
        """What the pattern's group found in the log of something that was started."""
        until = time.monotonic() + 60
        while not (found := re.search(pattern, (self.work / log).read_text(errors="replace"))):
            self._check_background()
            if time.monotonic() > until:
                self.fail(f"{log} does not say {pattern!r}")
            time.sleep(0.05)
        return found[1]

    # The store ------------------------------------------------------------------------------------------------------
    def query(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Plain SQL on the state store, read only."""
        path = self.work / ".dataflow" / "state.db"
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=60)
        try:
            return connection.execute(sql, values).fetchall()
        finally:
            connection.close()

    def count(self, jobid: str, status: str) -> int:
        sql = "SELECT count(*) FROM job_status WHERE jobid = ? AND status = ?"
        return int(self.query(sql, jobid, status)[0][0])

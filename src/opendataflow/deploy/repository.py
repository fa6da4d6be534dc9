"""A bare copy of somebody's repository, kept beside the versions that come from it; worked on with the git command.

Git gets an argv list, never a shell's line, and neither the address nor the arguments hold a secret: a password goes
through a file that only we can read and a program that git asks for it; a key through such a file. No hook of anybody's
runs, no submodule is fetched, no protocol but the address's own is allowed.
"""

import contextlib
import os
import select
import shlex
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from opendataflow.deploy.git_address import Remote, masked
from opendataflow.domain.checks.check import printable
from opendataflow.domain.variables import without_platform_variables
from opendataflow.errors import DataflowError
from opendataflow.private_files import FOLDER, OTHERS, make_folder

FETCH_SECONDS = 1800.0
LOCAL_SECONDS = 300.0
_HEAD = "refs/dataflow/head"
_KEPT = ("GIT_SSL_", "GIT_PROXY", "GIT_SSH")  # of the user's own settings
_SETTINGS = (
    "core.hooksPath=/dev/null", "core.fsmonitor=false", "core.untrackedCache=false", "submodule.recurse=false",
    "fetch.recurseSubmodules=false", "protocol.ext.allow=never", "gc.auto=0", "http.lowSpeedLimit=100",
    "http.lowSpeedTime=60", "advice.detachedHead=false",
)  # fmt: skip
# Only the host that the credential is for is ever told: a server may lead elsewhere.
_ASKPASS = """#!/bin/sh
case "$1" in
*"://$DATAFLOW_GIT_HOST'"*|*"@$DATAFLOW_GIT_HOST'"*) ;;
*) exit 1 ;;
esac
case "$1" in
[Uu]sername*) cat "$DATAFLOW_GIT_FILES/username" ;;
*) cat "$DATAFLOW_GIT_FILES/password" ;;
esac
"""

Beat = Callable[[str], None]


class GitFailed(DataflowError):
    """Git could not do it; the message is git's, without secrets."""

    exit_code = 1


class Plain(NamedTuple):
    """A credential that is decrypted for as long as git needs it."""

    username: str | None
    text: str
    kind: str  # token | key


class Commit(NamedTuple):
    commit: str
    author: str
    committed_at: float
    subject: str


class Entry(NamedTuple):
    """A file of a commit."""

    path: str
    mode: str


class Repository:
    """The bare repository in a folder; made when it is first fetched."""

    def __init__(self, folder: str, remote: Remote, credential: Plain | None = None) -> None:
        self.folder, self._remote, self._credential = folder, remote, credential

    # With the other side --------------------------------------------------------------------------------------------
    def find_default_branch(self, beat: Beat) -> str:
        """The branch that the other side shows first."""
        told = self._ask_remote(["ls-remote", "--symref", "--", self._remote.url, "HEAD"], beat)
        for line in told.splitlines():
            if line.startswith("ref: refs/heads/"):
                return line.removeprefix("ref: refs/heads/").partition("\t")[0]
        raise GitFailed(f"{self._remote.url} has no commit yet, or shows no branch; push one, or give --branch")

    def fetch(self, branch: str, beat: Beat) -> str:
        """Get the branch; returns its newest commit."""
        if not os.path.isfile(os.path.join(self.folder, "HEAD")):
            shutil.rmtree(self.folder, ignore_errors=True)  # one that was killed while it was made
            self._run(["init", "--quiet", "--bare", "--template=", "--", self.folder], beat, LOCAL_SECONDS)
        self._remove_locks()
        refspec = f"+refs/heads/{branch}:{_HEAD}"
        try:
            self._ask_remote(
                ["-C", self.folder, "fetch", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head",
                 "--progress", "--", self._remote.url, refspec], beat,
            )  # fmt: skip
        except GitFailed as error:
            if "couldn't find remote ref" in str(error):
                raise GitFailed(f"{self._remote.url} has no branch {branch!r}") from None
            raise
        return self.get_commit(_HEAD).commit

    def _remove_locks(self) -> None:
        """Those of a git that was killed: whoever comes here is alone with the repository."""
        for top, _, names in os.walk(self.folder):
            for name in names:
                if name.endswith(".lock"):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(os.path.join(top, name))

    # In what is here ------------------------------------------------------------------------------------------------
    def get_commit(self, name: str) -> Commit:
        """What a name or the beginning of a number stands for, if the branch has it; its texts can be stored."""
        done = self._local(
            "log", "-1", "--no-show-signature", "--format=%H%x00%an%x00%ct%x00%s", "--end-of-options", name
        )
        commit, author, seconds, subject = done.rstrip("\n").split("\0", 3)
        return Commit(commit, printable(author), float(seconds), printable(subject))

    def find_commit(self, name: str) -> Commit | None:
        try:
            self._local("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
            return self.get_commit(name)
        except (GitFailed, ValueError):
            return None

    def entries(self, commit: str) -> list[Entry]:
        """All files of the commit, links and submodules too."""
        told = self._local("ls-tree", "-r", "-z", "--full-tree", commit)
        found = []
        for line in told.split("\0"):
            if line:
                facts, _, path = line.partition("\t")
                found.append(Entry(path, facts.split(" ", 1)[0]))
        return found

    def export(self, commit: str, folder: str, beat: Beat) -> None:
        """The files of the commit into a new folder, without git's own."""
        make_folder(os.path.dirname(folder))
        os.mkdir(folder, FOLDER)
        with tempfile.TemporaryDirectory(prefix="index-", dir=self.folder) as beside:
            env = {"GIT_INDEX_FILE": os.path.join(beside, "index")}
            self._run(["-C", self.folder, "read-tree", commit], beat, LOCAL_SECONDS, env=env)
            here = [f"--git-dir={self.folder}", f"--work-tree={folder}"]
            self._run([*here, "checkout-index", "--all", "--force"], beat, LOCAL_SECONDS, env=env)

    def _local(self, *args: str) -> str:
        return self._run(["-C", self.folder, *args], lambda _: None, LOCAL_SECONDS)

    # The command ----------------------------------------------------------------------------------------------------
    def _ask_remote(self, args: list[str], beat: Beat) -> str:
        with self._access() as (env, settings):
            return self._run(args, beat, FETCH_SECONDS, env=env, settings=settings)

    @contextlib.contextmanager
    def _access(self) -> Iterator[tuple[dict[str, str], list[str]]]:
        """What git needs to get in, for as long as it takes."""
        credential, remote = self._credential, self._remote
        batch = "ssh -o BatchMode=yes -o ConnectTimeout=30"
        if credential is None:
            env = {} if "GIT_SSH_COMMAND" in os.environ else {"GIT_SSH_COMMAND": batch}
            yield env, []
            return
        files = tempfile.mkdtemp(prefix="dataflow-git-")  # only we may enter it
        try:
            if credential.kind == "key":
                key = _private(os.path.join(files, "key"), credential.text.rstrip("\n") + "\n")
                hosts = os.path.join(os.path.dirname(self.folder), "known_hosts")
                options = f"-i {shlex.quote(key)} -o IdentitiesOnly=yes -o StrictHostKeyChecking=accept-new"
                yield {"GIT_SSH_COMMAND": f"{batch} {options} -o UserKnownHostsFile={shlex.quote(hosts)}"}, []
                return
            _private(os.path.join(files, "username"), f"{credential.username or 'git'}\n")
            _private(os.path.join(files, "password"), f"{credential.text}\n")
            ask = _private(os.path.join(files, "askpass"), _ASKPASS, mode=0o700)
            # No helper of the user's keeps what it is told, in clear.
            env = {"GIT_ASKPASS": ask, "DATAFLOW_GIT_FILES": files, "DATAFLOW_GIT_HOST": remote.host}
            yield env, ["credential.helper=", f"credential.username={credential.username or 'git'}"]
        finally:
            shutil.rmtree(files, ignore_errors=True)

    def _environment(self) -> dict[str, str]:
        kept = without_platform_variables(os.environ)
        own = {name: value for name, value in kept.items() if not name.startswith("GIT_") or name.startswith(_KEPT)}
        allowed = {"https": "https", "http": "http", "ssh": "ssh", "file": "file"}[self._remote.protocol]
        return {
            **own, "GIT_ALLOW_PROTOCOL": allowed, "GIT_TERMINAL_PROMPT": "0", "GIT_LFS_SKIP_SMUDGE": "1",
            "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C.UTF-8",
        }  # fmt: skip

    def _run(
        self, args: list[str], beat: Beat, seconds: float, *, env: dict[str, str] | None = None,
        settings: list[str] | None = None,
    ) -> str:  # fmt: skip
        told = [part for one in (*_SETTINGS, *(settings or ())) for part in ("-c", one)]
        secrets = (self._credential.text,) if self._credential is not None else ()
        try:
            process = subprocess.Popen(
                ["git", *told, *args], env={**self._environment(), **(env or {})}, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, umask=OTHERS,
            )  # fmt: skip
        except FileNotFoundError:
            raise GitFailed("there is no git command on this machine; install git") from None
        out, err = _listen(process, beat, seconds, secrets)
        if process.returncode:
            raise GitFailed(f"git could not do it: {_reason(masked(err, *secrets))}")
        return out


def _listen(
    process: "subprocess.Popen[bytes]", beat: Beat, seconds: float, secrets: tuple[str, ...]
) -> tuple[str, str]:
    """What it writes, to its end; what it says of its progress goes on to `beat`."""
    give_up = time.monotonic() + seconds
    found: dict[int, list[bytes]] = {}
    streams = {stream.fileno(): stream for stream in (process.stdout, process.stderr) if stream is not None}
    errors = process.stderr.fileno() if process.stderr is not None else -1
    found = {fd: [] for fd in streams}
    waiting = set(streams)
    try:
        while waiting:
            for fd in select.select(list(waiting), [], [], 1.0)[0]:
                data = os.read(fd, 65536)
                found[fd].append(data)
                if not data:
                    waiting.discard(fd)
                elif fd == errors:
                    last = data.decode(errors="replace").replace("\r", "\n").strip().rpartition("\n")[2]
                    beat(masked(last, *secrets))
            beat("")
            if time.monotonic() > give_up:
                raise GitFailed(f"git was given {seconds:g} s, and has not ended")
        process.wait()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        for stream in streams.values():
            stream.close()
    out, err = (b"".join(found[fd]).decode("utf-8", "surrogateescape") for fd in streams)
    return out, err.encode("utf-8", "surrogateescape").decode(errors="replace")


def _reason(text: str) -> str:
    """The lines that say why, in one."""
    lines = [line.strip() for line in text.replace("\r", "\n").splitlines() if line.strip()]
    told = [line for line in lines if line.startswith(("fatal:", "error:", "remote:"))] or lines[-3:]
    return (
        "; ".join(dict.fromkeys(line.removeprefix("fatal: ").removeprefix("error: ") for line in told)) or "no reason"
    )


def _private(path: str, text: str, *, mode: int = stat.S_IRUSR | stat.S_IWUSR) -> str:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with open(handle, "w", encoding="utf-8") as file:
        file.write(text)
    return path

"""Real git repositories for tests, pushed to from a work tree; over file://, or over smart HTTP with a password."""

import base64
import http.server
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SCRIPTS = """
name: Shop
environments: {dev: {root: ./data}}
datasets:
  orders: {path: "orders/{dataid}.csv", format: csv, partitions: {shards: 1..3}}
  totals: {path: "totals/{dataid}.csv", format: csv}
jobs:
  sum_up: {script: jobs/sum_up.sh, inputs: [orders], outputs: [totals]}
"""
SUM_UP = "#!/bin/bash\nmkdir -p $(dirname $totals_location)\necho $dataid > $totals_location\n"
_ENV = {
    "GIT_AUTHOR_NAME": "Anna", "GIT_AUTHOR_EMAIL": "anna@example.com", "GIT_COMMITTER_NAME": "Anna",
    "GIT_COMMITTER_EMAIL": "anna@example.com", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null",
}  # fmt: skip


class Origin:
    """A bare repository, and a work tree from which commits are pushed to it."""

    def __init__(self, folder: Path) -> None:
        self.bare, self.tree = folder / "shop.git", folder / "tree"
        folder.mkdir(parents=True, exist_ok=True)
        _git(folder, "init", "-q", "--bare", "-b", "main", str(self.bare))
        _git(folder, "init", "-q", "-b", "main", str(self.tree))
        self.git("remote", "add", "origin", str(self.bare))

    @property
    def url(self) -> str:
        return f"file://{self.bare}"

    def git(self, *args: str) -> str:
        return _git(self.tree, *args)

    def write(self, path: str, text: str, *, executable: bool = False) -> None:
        file = self.tree / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755 if executable else 0o644)

    def remove(self, path: str) -> None:
        (self.tree / path).unlink()

    def push(self, subject: str = "a change", branch: str = "main") -> str:
        """Commit everything and push it; the commit."""
        self.git("add", "-A", "-f")
        self.git("commit", "-q", "--allow-empty", "-m", subject)
        self.git("push", "-q", "-f", "origin", f"HEAD:{branch}")
        return self.git("rev-parse", "HEAD").strip()

    def shop(self) -> str:
        """A small project of scripts, in place; the commit."""
        self.write("project.yml", SCRIPTS)
        self.write("jobs/sum_up.sh", SUM_UP, executable=True)
        for number in (1, 2, 3):
            self.write(f"data/orders/{number}.csv", f"a\n{number}\n")
        return self.push("the shop")


def _git(folder: Path, *args: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *args], env={**os.environ, **_ENV}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def served(folder: Path, *, username: str, password: str) -> Iterator[str]:
    """The repositories of a folder over smart HTTP, by git's own backend, for whoever knows the password."""
    wanted = "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()
    backend = Path(subprocess.run(["git", "--exec-path"], capture_output=True, text=True).stdout.strip())

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            if self.headers.get("authorization") != wanted:
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="tests"')
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            path, _, query = self.path.partition("?")
            env = {
                **os.environ, "GIT_PROJECT_ROOT": str(folder), "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path,
                "QUERY_STRING": query, "REQUEST_METHOD": self.command, "REMOTE_USER": username,
                "CONTENT_TYPE": self.headers.get("content-type") or "", "REMOTE_ADDR": "127.0.0.1",
                "HTTP_CONTENT_ENCODING": self.headers.get("content-encoding") or "",
                "GIT_PROTOCOL": self.headers.get("git-protocol") or "",
            }  # fmt: skip
            done = subprocess.run([str(backend / "git-http-backend")], input=body, env=env, capture_output=True)
            head, _, rest = done.stdout.partition(b"\r\n\r\n")
            headers = [line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line]
            status = next((int(value.split()[0]) for name, value in headers if name == "Status"), 200)
            self.send_response(status)
            for name, value in headers:
                if name != "Status":
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(rest)))
            self.end_headers()
            self.wfile.write(rest)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

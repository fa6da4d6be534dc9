"""Running the server until it is told to stop."""

import contextlib
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from opendataflow.errors import ConfigurationError
from opendataflow.server.http_protocol import Bounded, count_connections
from opendataflow.server.log import logging_to

GRACE_SECONDS = 10
IDLE_SECONDS = 75  # for a sender's connection between two requests


def listen(host: str, port: int) -> socket.socket:
    """A socket at this address; raises ConfigurationError when it cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        # Python's own text repeats the address; that of a name that means nothing has no number.
        number = getattr(error, "errno", None) or 0
        told = os.strerror(number) if number > 0 else str(error)
        raise ConfigurationError(f"cannot listen at {host} port {port}: {told}; choose another with --port") from None


class _Server(uvicorn.Server):
    """One that ends in peace: a signal is no failure."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        def stop(_number: int, _frame: FrameType | None) -> None:
            self.force_exit = self.should_exit  # the second one does not wait
            self.should_exit = True

        before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def serve(app: ASGIApp, at: socket.socket, ready: Callable[[], None], *, proxies: str = "") -> int:
    """Answer requests until SIGTERM or SIGINT; those that came may finish. Returns the exit code.

    `proxies` are the addresses whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed.
    """
    config = uvicorn.Config(
        app, http=Bounded, log_config=None, access_log=False, lifespan="on", ws="none", server_header=False,
        timeout_graceful_shutdown=GRACE_SECONDS, timeout_keep_alive=IDLE_SECONDS, limit_concurrency=count_connections(),
        proxy_headers=bool(proxies), forwarded_allow_ips=proxies,
    )  # fmt: skip
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)  # items come and go by the hundred, and none of them refers to another
    ready()  # the socket listens: who connects now is answered
    server = _Server(config)
    # A process may be started without a stderr.
    with logging_to(sys.stderr.fileno()) if sys.stderr else contextlib.nullcontext():
        server.run(sockets=[at])
    return 0 if server.started else 1

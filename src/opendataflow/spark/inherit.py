"""For streams and chunks that share a job: a thread that a chunk starts has its output, variables and session."""

import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

_start = threading.Thread.start
_submit = ThreadPoolExecutor.submit


def let_threads_inherit() -> None:
    """From now on, a thread begins with a copy of the context of the thread that starts it.

    A pool may outlive the chunk that made it: there, each piece of work has the context of whoever hands it in.
    """
    threading.Thread.start = _start_with_context  # type: ignore[method-assign, assignment]
    ThreadPoolExecutor.submit = _submit_with_context  # type: ignore[method-assign, assignment]


def _start_with_context(thread: threading.Thread) -> None:
    context, run = contextvars.copy_context(), thread.run

    def run_with_context() -> None:
        thread.run = run  # type: ignore[method-assign]
        context.run(run)

    thread.run = run_with_context  # type: ignore[method-assign]
    _start(thread)


def _submit_with_context(
    pool: ThreadPoolExecutor, work: Callable[..., Any], /, *args: Any, **kwargs: Any
) -> "Future[Any]":
    return _submit(pool, contextvars.copy_context().run, work, *args, **kwargs)

"""A thread that a chunk's code starts belongs to the chunk: its output, its variables, its Spark session."""

import contextvars
import threading

_start = threading.Thread.start


def let_threads_inherit() -> None:
    """From now on, a thread begins with a copy of the context of the thread that starts it."""
    threading.Thread.start = _start_with_context  # type: ignore[method-assign, assignment]


def _start_with_context(thread: threading.Thread) -> None:
    context, run = contextvars.copy_context(), thread.run

    def run_with_context() -> None:
        thread.run = run  # type: ignore[method-assign]
        context.run(run)

    thread.run = run_with_context  # type: ignore[method-assign]
    _start(thread)

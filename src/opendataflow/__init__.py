"""OpenDataFlow: state-driven orchestration of batch jobs over partitioned data."""

TYPE_CHECKING = False  # without importing typing for it
if TYPE_CHECKING:
    from opendataflow.api import Chunk, NotReady, Project

__version__ = "0.1.0"
__all__ = ["Chunk", "NotReady", "Project", "__version__"]


def __getattr__(name: str) -> object:
    """Only whoever asks for the Python interface loads it: every RunJob imports this module."""
    if name in ("Chunk", "NotReady", "Project"):
        from opendataflow import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

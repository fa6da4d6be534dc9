"""A storm over workers: kills, stops, restarts and changed limits while they work, and what must hold in the end.

`plan` draws what happens from a seed, `work` is what the workers do, `fleet` the workers themselves, `stores` the two
kinds of store and how they fail, `storm` lets it all happen, `invariants` judges from the journal and the history.
"""

from support.chaos.plan import FULL, SMALL, Size
from support.chaos.storm import Report, run_chaos

__all__ = ["FULL", "SMALL", "Report", "Size", "run_chaos"]

"""The credentials of a project's datasets, as one whole."""

from collections.abc import Callable

from opendataflow.errors import ConfigurationError, SecretError
from opendataflow.store.loop import LoopStore


def rotate_credentials(
    store: LoopStore, project: str, rotate: Callable[[str], str], *, dry_run: bool = False
) -> tuple[int, int]:
    """Replace every credential by what `rotate` makes of it, all or none: how many changed, how many stayed."""
    made = {}
    rows = store.read("credentials_of", {"project": project}, file="credentials")
    for datasetid, old in rows:
        try:
            new = rotate(old)
        except SecretError as error:
            raise SecretError(f"{store.url}: dataset {datasetid}: {error}; nothing was changed") from None
        if new != old:
            made[datasetid] = (old, new)
    if made and not dry_run:
        with store.transaction(file="credentials") as tx:
            for datasetid, (old, new) in made.items():
                key = {"project": project, "datasetid": datasetid, "old": old, "new": new, "now": store.time()}
                if tx.run("set_credential", key) != 1:
                    raise ConfigurationError(
                        f"{store.url}: dataset {datasetid} was registered anew meanwhile; nothing was changed"
                    )
    return len(made), len(rows) - len(made)

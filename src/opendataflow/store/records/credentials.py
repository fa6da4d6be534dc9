"""The credentials of a project's datasets, as one whole: those that are registered, and those that were bound."""

import json
from collections.abc import Callable

from opendataflow.errors import ConfigurationError, SecretError
from opendataflow.store.claims import LoopStore
from opendataflow.store.rows import Params

FILE = "credentials"


def rotate_credentials(
    store: LoopStore, project: str, rotate: Callable[[str], str], *, dry_run: bool = False
) -> tuple[int, int]:
    """Replace every credential by what `rotate` makes of it, all or none: how many changed, how many stayed.

    One that was bound and is registered, too, is one credential.
    """
    changes: list[tuple[str, Params]] = []
    seen: dict[tuple[str, str], bool] = {}  # dataset and old credential → whether it changes

    def look(datasetid: str, old: str) -> str:
        try:
            new = rotate(old)
        except SecretError as error:
            raise SecretError(f"{store.url}: dataset {datasetid}: {error}; nothing was changed") from None
        seen[datasetid, old] = new != old
        return new

    for datasetid, old in store.read("credentials_of", {"project": project}, file=FILE):
        if (new := look(datasetid, old)) != old:
            key = {"project": project, "datasetid": datasetid, "old": old, "new": new, "now": store.time()}
            changes.append(("set_credential", key))
    for datasetid, field, value in store.read("bound_credentials_of", {"project": project}, file=FILE):
        new = json.dumps(look(datasetid, json.loads(value)))
        if new != value:
            key = {"project": project, "datasetid": datasetid, "field": field, "old": value, "new": new}
            changes.append(("set_bound_credential", key))
    if changes and not dry_run:
        with store.transaction(file=FILE) as tx:
            for name, params in changes:
                if tx.run(name, params) != 1:
                    raise ConfigurationError(
                        f"{store.url}: dataset {params['datasetid']} was registered anew meanwhile; nothing was changed"
                    )
    return sum(seen.values()), len(seen) - sum(seen.values())

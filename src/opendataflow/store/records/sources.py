"""Sources: what people bound to datasets in this store, how each last answered, and who reads and writes them."""

import json
from collections import defaultdict
from typing import Any, NamedTuple

from opendataflow.domain.dataset import Dataset
from opendataflow.store.claims import LoopStore
from opendataflow.store.rows import Params

FILE = "sources"
Key = tuple[str, str]


class Binding(NamedTuple):
    """A value that somebody gave to a field of a dataset; a credential is encrypted."""

    field: str
    value: Any
    bound_by: str
    bound_at: str


class Tested(NamedTuple):
    """How a source answered when somebody last asked."""

    tested_at: str
    tested_by: str
    answered: bool
    said: str


class Source(NamedTuple):
    """A registered dataset as a place where data comes from or goes to."""

    dataset: Dataset
    root: str
    tested: Tested | None
    bound: tuple[str, ...]  # the fields that were bound
    makers: tuple[str, ...]  # jobs, as its project would name them
    readers: tuple[str, ...]


# What was bound -------------------------------------------------------------------------------------------------------
def bindings_of(store: LoopStore, project: str) -> dict[str, dict[str, Any]]:
    """dataset → field → value, as `load_registration` takes it."""
    found: dict[str, dict[str, Any]] = {}
    for datasetid, field, value, *_ in store.read("list_bindings", {"project": project, "datasetid": None}, file=FILE):
        found.setdefault(datasetid, {})[field] = json.loads(value)
    return found


def list_bindings(store: LoopStore, project: str, datasetid: str) -> list[Binding]:
    rows = store.read("list_bindings", {"project": project, "datasetid": datasetid}, file=FILE)
    return [Binding(field, json.loads(value), by, at) for _, field, value, by, at in rows]


def binding_statements(
    store: LoopStore, project: str, datasetid: str, changes: dict[str, Any]
) -> list[tuple[str, Params]]:
    """The registry's statements that bind these fields; None unbinds one."""
    key = {"project": project, "datasetid": datasetid}
    by = {"bound_by": store.actor, "now": store.time()}
    return [
        ("delete_binding", {**key, "field": field})
        if value is None
        else ("put_binding", {**key, "field": field, "value": json.dumps(value), **by})
        for field, value in changes.items()
    ]


def put_bindings(store: LoopStore, project: str, datasetid: str, changes: dict[str, Any]) -> None:
    """Keep these for the next apply; None unbinds a field."""
    with store.transaction(file="registry") as tx:
        for name, params in binding_statements(store, project, datasetid, changes):
            tx.run(name, params)


# Sources --------------------------------------------------------------------------------------------------------------
def find_home(store: LoopStore, project: str) -> str | None:
    """The folder of the project's project.yml, on the machine that applied it last; None: no such project."""
    places = store.list_places(project)
    return places[0].home if places else None


def project_names(store: LoopStore) -> list[str]:
    return [str(row[0]) for row in store.read("project_names", {}, file=FILE)]


def count_sources(store: LoopStore, project: str | None) -> int:
    return int(store.read("count_sources", {"project": project}, file=FILE)[0][0])


def list_sources(
    store: LoopStore, *, project: str | None = None, datasetid: str | None = None, limit: int = 100, offset: int = 0
) -> list[Source]:
    """Datasets with what is known of them as sources, in the order of their names; clocks have no data."""
    wanted = {"project": project, "datasetid": datasetid, "limit": limit, "offset": offset}
    rows = store.read("list_sources", wanted, file=FILE)
    if not rows:
        return []
    between = {
        "first_project": rows[0][0], "first_datasetid": rows[0][1],
        "last_project": rows[-1][0], "last_datasetid": rows[-1][1],
    }  # fmt: skip
    links: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
    for owner, name, itemtype, theirs, jobid in store.read("links_between", between, file=FILE):
        links[owner, name, itemtype].append(jobid if theirs == owner else f"{theirs}.{jobid}")
    bound: defaultdict[Key, list[str]] = defaultdict(list)
    for owner, name, field, *_ in store.read("bindings_between", between, file=FILE):
        bound[owner, name].append(field)
    found = []
    roots = {place.project: place.root for place in store.list_places()}
    for row in rows:
        dataset, test = Dataset(*row[:13]), row[13:]
        key = dataset[:2]
        tested = Tested(test[0], test[1], bool(test[2]), test[3]) if test[0] is not None else None
        found.append(
            Source(
                dataset, roots[key[0]], tested, tuple(bound[key]), tuple(links[*key, "OUT"]), tuple(links[*key, "IN"])
            )
        )
    return found


def find_source(store: LoopStore, project: str, datasetid: str) -> Source | None:
    found = list_sources(store, project=project, datasetid=datasetid, limit=1)
    return found[0] if found else None


def record_test(store: LoopStore, project: str, datasetid: str, *, answered: bool, said: str) -> None:
    """Remember how it answered, under the actor's name."""
    row = {"project": project, "datasetid": datasetid, "answered": int(answered), "said": said}

    def write() -> None:
        with store.transaction(file=FILE) as tx:
            tx.run("put_test", {**row, "tested_by": store.actor, "now": store.time()})

    store.again(write)

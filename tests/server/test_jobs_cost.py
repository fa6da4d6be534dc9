"""How often the store counts all dataids: once for everybody who looks at jobs, whatever each of them asks for."""

import asyncio
from typing import Any

import pytest

from opendataflow.server.jobs import api, facts
from opendataflow.server.stores import Stores
from opendataflow.store import open_store
from support.projects import Project
from support.servers import LEADS


class _Context:
    def __init__(self, stores: Stores) -> None:
        self.stores = stores


def test_many_who_ask_differently_at_once_cost_one_count(
    sqlite_project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    sqlite_project.apply(LEADS)
    counted: list[int] = []
    count = facts._counts

    def counting(store: Any) -> Any:
        counted.append(1)
        return count(store)

    monkeypatch.setattr(facts, "_counts", counting)
    stores = Stores(lambda: open_store(sqlite_project.store, actor="tests"))
    context: Any = _Context(stores)

    async def ask() -> list[Any]:
        asked = [api.list_jobs(None, context, name=f"{number}", project=f"p{number}") for number in range(16)]
        asked += [api.list_jobs(None, context), api.get_job("crm", "leads", None, context)]
        return await asyncio.gather(*asked)

    try:
        *_, every, one = asyncio.run(ask())
    finally:
        stores.close()
    assert ({"few", "leads", "sent"} <= {job.job for job in every.items}, one.job) == (True, "leads")
    assert len(counted) == 1

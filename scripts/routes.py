"""Write the tables of docs/reference/http-api.md: every address and action of the server with the role it needs."""

import sys
from pathlib import Path

from opendataflow.project.address import Address
from opendataflow.server.access import owners
from opendataflow.server.actions.registry import ACTIONS
from opendataflow.server.app import make_pages
from opendataflow.server.context import Context
from opendataflow.server.open_streams import Streams
from opendataflow.server.stores import Stores
from opendataflow.server.streams.intake import Intake
from opendataflow.store.claims import LoopStore

PAGE = Path(__file__).resolve().parents[1] / "docs/reference/http-api.md"
HEAD = "| method | address | needs |\n|---|---|---|\n"
MIDDLE = "## Actions\n\n| action | says | needs |\n|---|---|---|\n"


def _no_store() -> LoopStore:
    raise AssertionError("nobody asks")


def routes() -> list[tuple[str, str, str]]:
    """Method, address and role of everything that is served, by address."""
    streams = Streams(_no_store, lambda _project, _slug: "")
    nowhere = Address("", None, None, None, "")
    pages = make_pages(Context(nowhere, Stores(_no_store), streams), Intake(streams, None))
    return sorted(owners(pages), key=lambda one: (one[1], one[0]))


def actions() -> list[tuple[str, str, str]]:
    """Name, title and role of every action, by name."""
    return sorted((one.name, one.title, one.role.word) for one in ACTIONS.values())


def tables() -> str:
    addresses = "".join(f"| {method} | `{path}` | {role} |\n" for method, path, role in routes())
    named = "".join(f"| `{name}` | {text} | {role} |\n" for name, text, role in actions())
    return f"{HEAD}{addresses}\n{MIDDLE}{named}"


if __name__ == "__main__":
    before = PAGE.read_text()
    start = before.index(HEAD)
    PAGE.write_text(before[:start] + tables())
    sys.stdout.write(f"{len(routes())} routes\n")

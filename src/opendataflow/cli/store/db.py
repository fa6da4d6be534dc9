"""`dataflow db`: the store itself."""

from typing import Annotated

import typer

from opendataflow.cli.opened import address, opened
from opendataflow.cli.render import put, put_json, say

app = typer.Typer(help="The state store: upgrade, address, health.", no_args_is_help=True)


@app.command()
def upgrade() -> None:
    """Bring the store to the newest schema; makes it if it is not there.

    Example: dataflow db upgrade
    """
    from opendataflow.execution.session import own_name
    from opendataflow.store import open_store
    from opendataflow.store.migrate import upgrade as upgrade_store

    store = open_store(address().store, actor=own_name(), must_exist=False, check=False)
    done = upgrade_store(store)
    say("\n".join(f"applied {name}" for name in done) or "the schema is up to date")


@app.command()
def url() -> None:
    """Print the store's address, without its password.

    Example: dataflow db url
    """
    from opendataflow.store.base import without_password

    put(without_password(address().store))


@app.command()
def check(
    repair: Annotated[bool, typer.Option("--repair", help="Set wrong counters and stray locks right.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For scripts.")] = False,
) -> int:
    """Compare the counters that claims go by with the chunks; exit 1 if anything is wrong and not repaired.

    Examples: dataflow db check;  dataflow db check --repair
    """
    from opendataflow.store.registry import check as check_store

    found = check_store(opened(), repair=repair)
    if as_json:
        put_json({"problems": found, "repaired": repair and bool(found)})
    else:
        say("\n".join(found) or "the store is sound")
        if found:
            say("repaired" if repair else "run `dataflow db check --repair` to set this right")
    return 1 if found and not repair else 0

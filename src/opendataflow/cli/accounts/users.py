"""`dataflow user` and `dataflow token`: accounts of the server, for whoever has the store; no server is needed."""

from typing import TYPE_CHECKING, Annotated

import typer

from opendataflow.cli.opened import opened
from opendataflow.cli.options import Json
from opendataflow.cli.render import put, put_json, put_table, say
from opendataflow.errors import UsageError

if TYPE_CHECKING:
    from opendataflow.store.claims import LoopStore

user_app = typer.Typer(help="Who may look and act over HTTP.", no_args_is_help=True)
token_app = typer.Typer(help="Tokens with which scripts use the API.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="NAME", help="The user name.")]
RoleWord = Annotated[str, typer.Option("--role", help="viewer, operator or admin.")]


def add_to(app: typer.Typer) -> None:
    app.add_typer(user_app, name="user")
    app.add_typer(token_app, name="token")


# Accounts -------------------------------------------------------------------------------------------------------------
@user_app.command("list")
def list_users(as_json: Json = False) -> None:
    """Every account with its role, when it was last seen, and links that can still be used.

    Examples: dataflow user list;  dataflow user list --json
    """
    from opendataflow.store.records.accounts import list_accounts
    from opendataflow.store.records.login_links import list_links

    store = opened()
    found, links = list_accounts(store), list_links(store)
    if as_json:
        put_json([{**one._asdict(), "role": one.role.word} for one in found])
        return
    if found:
        columns = ("user", "role", "state", "since", "last seen", "browsers", "tokens")
        put_table("", columns, [
            (one.username, one.role.word, "disabled" if one.disabled_at else "", one.created_at, one.seen_at,
             one.sessions, one.tokens)
            for one in found
        ])  # fmt: skip
    else:
        say("there is no account; `dataflow serve` prints a link for the first admin, `dataflow user link` makes one")
    for link in links:
        say(f"a link for {link.username or 'the first admin'} ({link.role.word}) works until {link.expires_at}")


@user_app.command("link")
def make_link(
    name: Name,
    role: RoleWord = "viewer",
    url: Annotated[str, typer.Option(help="Where people reach the server.")] = "http://127.0.0.1:8321",
) -> None:
    """Print a link with which NAME chooses a password, once, within a day: a new account, or a lost password.

    An account that is there keeps its role. Links made before for the same name are void.

    Examples: dataflow user link anna --role admin;  dataflow user link bob --url https://flow.example.org
    """
    from opendataflow.store.records.accounts import read_role
    from opendataflow.store.records.login_links import Kind
    from opendataflow.store.records.login_links import make_link as make

    store = opened()
    secret, link = make(store, name, read_role(role), by=store.actor)
    put(f"{url.rstrip('/')}/welcome/{secret}")
    what = "a new password" if link.kind is Kind.RESET else f"a new account with the role {link.role.word}"
    say(f"{link.username}: {what}; the link works once, within a day")
    _record(store, "user-link", link.username, role=link.role.word)


@user_app.command("role")
def change_role(name: Name, role: Annotated[str, typer.Argument(help="viewer, operator or admin.")]) -> None:
    """Give an account another role; it holds at once. The last admin stays one.

    Example: dataflow user role anna operator
    """
    from opendataflow.store.records.accounts import get_username, read_role, set_role

    store, wanted = opened(), read_role(role)
    set_role(store, get_username(name), wanted)
    say(f"{name} is {wanted.word} now")
    _record(store, "user-role", get_username(name), role=wanted.word)


@user_app.command()
def disable(name: Name) -> None:
    """Sign somebody out everywhere and let them in no more; their tokens and links do nothing.

    Example: dataflow user disable anna
    """
    from opendataflow.store.records.accounts import disable as disable_in
    from opendataflow.store.records.accounts import get_username

    store = opened()
    done = disable_in(store, get_username(name))
    say(f"{name} is disabled" if done else f"{name} was disabled already")
    _record(store, "user-disable", get_username(name))


@user_app.command()
def enable(name: Name) -> None:
    """Let somebody in again, with the password and the tokens they had.

    Example: dataflow user enable anna
    """
    from opendataflow.store.records.accounts import enable as enable_in
    from opendataflow.store.records.accounts import get_username

    store = opened()
    done = enable_in(store, get_username(name))
    say(f"{name} is enabled" if done else f"{name} was not disabled")
    _record(store, "user-enable", get_username(name))


# Tokens ---------------------------------------------------------------------------------------------------------------
@token_app.command("new")
def new_token(
    user: Annotated[str, typer.Option("--user", help="Whose token it is; what it does is done in their name.")],
    name: Annotated[str, typer.Option("--name", help="What it is for.")] = "",
    scope: Annotated[str, typer.Option(help="viewer, operator or admin; at most the account's role.")] = "viewer",
    days: Annotated[float | None, typer.Option(min=0.001, max=36500, help="Valid for so many days.")] = None,
) -> None:
    """Make a token for the API and print it: this once, the store keeps its hash only.

    Examples: dataflow token new --user anna --name nightly;  dataflow token new --user anna --scope operator --days 90
    """
    from opendataflow.store.records.accounts import add_token, get_username, read_role

    store, owner = opened(), get_username(user)
    allowed = read_role(scope)
    token = add_token(store, owner, name or "made by hand", allowed, seconds=None if days is None else days * 86_400)
    put(token)
    say("scripts give it as `Authorization: Bearer TOKEN`; it is not shown again")
    _record(store, "token-new", f"token {name or 'made by hand'} of {owner}", scope=allowed.word)


@token_app.command("list")
def list_all(
    user: Annotated[str | None, typer.Option("--user", help="Only those of this account.")] = None,
    revoked: Annotated[bool, typer.Option("--all", help="Also those that were revoked.")] = False,
    as_json: Json = False,
) -> None:
    """Tokens with what they may do and when they were last used; never the tokens themselves.

    Examples: dataflow token list;  dataflow token list --user anna --json
    """
    from opendataflow.store.records.accounts import get_username, list_tokens

    found = list_tokens(opened(), username=None if user is None else get_username(user), revoked=revoked)
    if as_json:
        put_json([{**one._asdict(), "scope": one.scope.word} for one in found])
        return
    if not found:
        say("there is no token; `dataflow token new --user NAME` makes one")
        return
    columns = ("token", "user", "name", "scope", "made", "valid until", "last used", "state")
    put_table("", columns, [
        (one.tokenid, one.username, one.name, one.scope.word, one.created_at, one.expires_at, one.last_used_at,
         "revoked" if one.revoked_at else "expired" if one.is_expired else "")
        for one in found
    ])  # fmt: skip


@token_app.command()
def revoke(token: Annotated[int, typer.Argument(help="Its number, from `dataflow token list`.")]) -> None:
    """Let a token do nothing any more, within a second and for good.

    Example: dataflow token revoke 3
    """
    from opendataflow.store.records.accounts import find_token_of, revoke_token

    store = opened()
    found = find_token_of(store, token)
    if found is None or not revoke_token(store, token):
        raise UsageError(f"there is no token {token} that could be revoked; see `dataflow token list`")
    say(f"the token {found[1]!r} of {found[0]} is revoked")
    _record(store, "token-revoke", f"token {found[1]} of {found[0]}")


def _record(store: "LoopStore", action: str, target: str, **detail: object) -> None:
    from opendataflow.store.records.accounts import record_action

    record_action(store, store.actor, action, target, dict(detail))

"""What admins do to accounts, and everybody to their own tokens and sessions."""

from typing import Literal

from pydantic import Field as Limited
from starlette.exceptions import HTTPException

from opendataflow.server.action import Acting, Action, Asked, Done, Field, Plan
from opendataflow.server.problems import NotThere
from opendataflow.store.records import accounts
from opendataflow.store.records.accounts import Account, Role, find_account, get_username, read_role
from opendataflow.store.records.login_links import make_link

Word = Literal["viewer", "operator", "admin"]
ROLES = tuple(role.word for role in Role)
DAY = 86_400.0


# Accounts -------------------------------------------------------------------------------------------------------------
class LinkAsked(Asked):
    username: str = ""
    role: Word = "viewer"


class UserAsked(Asked):
    username: str


class RoleAsked(UserAsked):
    role: Word | None = None


def describe_link(acting: Acting, asked: LinkAsked) -> Plan:
    _check_person(acting)
    account = find_account(acting.store, get_username(asked.username)) if asked.username else None
    if account is None:
        says = "A link for a new account: whoever opens it chooses a password, once, within a day."
        role = Field("role", "Role", value=asked.role, choices=ROLES)
        name = Field("username", "User name", value=asked.username, required=True)
        return Plan(says, fields=(name, role))
    if account.disabled_at is not None:
        return Plan(f"{account.username} is disabled; enable the account first.", possible=False)
    says = f"A link with which {account.username} chooses a new password, once, within a day."
    return Plan(f"{says} Until it is used the old one works; then all sessions of the account end.")


def perform_link(acting: Acting, asked: LinkAsked) -> Done:
    _check_person(acting)
    if not asked.username:
        raise HTTPException(422, "username: whom is the link for?")
    secret, link = make_link(acting.store, asked.username, read_role(asked.role), by=acting.user.name)
    says = f"A link for {link.username} ({link.role.word}), which works once, within a day:"
    told = {"username": link.username, "role": link.role.word, "kind": link.kind.value}
    return Done(says, link.username, told, then="/users", once=f"/welcome/{secret}")


def describe_role(acting: Acting, asked: RoleAsked) -> Plan:
    _check_person(acting)
    account = _get(acting, asked.username)
    field = Field("role", "Role", value=asked.role or account.role.word, choices=ROLES)
    return Plan(f"{account.username} is {account.role.word}. Another role holds at once.", fields=(field,))


def perform_role(acting: Acting, asked: RoleAsked) -> Done:
    _check_person(acting)
    account = _get(acting, asked.username)
    if asked.role is None:
        raise HTTPException(422, "role: viewer, operator or admin")
    accounts.set_role(acting.store, account.username, read_role(asked.role))
    return Done(f"{account.username} is {asked.role} now", account.username, {"role": asked.role}, then="/users")


def describe_disable(acting: Acting, asked: UserAsked) -> Plan:
    account = _get(acting, asked.username)
    if account.disabled_at is not None:
        return Plan(f"{account.username} is disabled already.", possible=False)
    return Plan(f"{account.username} is signed out at once and may not sign in; their tokens and links do nothing.")


def perform_disable(acting: Acting, asked: UserAsked) -> Done:
    account = _get(acting, asked.username)
    accounts.disable(acting.store, account.username)
    return Done(f"{account.username} is disabled", account.username, then="/users")


def describe_enable(acting: Acting, asked: UserAsked) -> Plan:
    _check_person(acting)
    account = _get(acting, asked.username)
    if account.disabled_at is None:
        return Plan(f"{account.username} is not disabled.", possible=False)
    return Plan(f"{account.username} may sign in again, with the same password, and their tokens work again.")


def perform_enable(acting: Acting, asked: UserAsked) -> Done:
    _check_person(acting)
    account = _get(acting, asked.username)
    accounts.enable(acting.store, account.username)
    return Done(f"{account.username} is enabled", account.username, then="/users")


def _get(acting: Acting, username: str) -> Account:
    account = find_account(acting.store, get_username(username))
    if account is None:
        raise NotThere(f"there is no account {username!r}")
    return account


# One's own tokens and sessions ----------------------------------------------------------------------------------------
class TokenAsked(Asked):
    name: str = Limited("", max_length=100)
    scope: Word = "viewer"
    days: int | None = Limited(None, ge=1, le=3650)


class RevokeAsked(Asked):
    tokenid: int = Limited(ge=1, le=1 << 62)


class SessionAsked(Asked):
    session: str = Limited(pattern="^[0-9a-f]{16}$")


def describe_token(acting: Acting, asked: TokenAsked) -> Plan:
    _check_person(acting)
    allowed = [role.word for role in Role if role <= acting.user.role]
    fields = (
        Field("name", "What is it for?", value=asked.name, hint="nightly report", required=True),
        Field("scope", "It may do what this role may", value=asked.scope, choices=allowed),
        Field("days", "Valid for days; empty: until revoked", "number", value=str(asked.days or "")),
    )
    return Plan("A token with which a script acts in your name over the API.", fields=fields)


def perform_token(acting: Acting, asked: TokenAsked) -> Done:
    _check_person(acting)
    if not asked.name:
        raise HTTPException(422, "name: what is the token for?")
    seconds = None if asked.days is None else asked.days * DAY
    token = accounts.add_token(acting.store, acting.user.name, asked.name, read_role(asked.scope), seconds=seconds)
    says = f"The token {asked.name!r} ({asked.scope}); scripts give it as `Authorization: Bearer TOKEN`:"
    return Done(says, f"token {asked.name}", {"name": asked.name, "scope": asked.scope}, then="/account", once=token)


def describe_revoke(acting: Acting, asked: RevokeAsked) -> Plan:
    owner, name = _get_token(acting, asked.tokenid)
    return Plan(f"The token {name!r} of {owner} does nothing any more, for good.")


def perform_revoke(acting: Acting, asked: RevokeAsked) -> Done:
    owner, name = _get_token(acting, asked.tokenid)
    accounts.revoke_token(acting.store, asked.tokenid)
    return Done(f"the token {name!r} is revoked", f"token {name} of {owner}")


def _get_token(acting: Acting, tokenid: int) -> tuple[str, str]:
    """A token that the user may revoke: their own, or anybody's for an admin. A token revokes no other than itself."""
    found, user = accounts.find_token_of(acting.store, tokenid), acting.user
    is_own = found is not None and found[0] == user.name and user.tokenid in (None, tokenid)
    if found is None or not (is_own or user.may(Role.ADMIN)):
        raise NotThere(f"you have no token {tokenid} that could be revoked")
    return found


def describe_session(_acting: Acting, _asked: SessionAsked) -> Plan:
    return Plan("That browser is signed out.")


def perform_session(acting: Acting, asked: SessionAsked) -> Done:
    _check_person(acting)
    if not accounts.end_session(acting.store, acting.user.name, asked.session):
        raise NotThere("you have no such session; it has ended")
    return Done("that browser is signed out", f"session {asked.session}", then="/account")


def _check_person(acting: Acting) -> None:
    # Whoever got hold of a token must not get another one, or an account, that outlives it.
    if not acting.user.csrf:
        raise HTTPException(403, "a token cannot do this: sign in, or use `dataflow token new`")


ACTIONS = (
    Action("user-link", "Make a link", Role.ADMIN, LinkAsked, describe_link, perform_link),
    Action("user-role", "Change the role", Role.ADMIN, RoleAsked, describe_role, perform_role),
    Action("user-disable", "Disable", Role.ADMIN, UserAsked, describe_disable, perform_disable, is_grave=True),
    Action("user-enable", "Enable", Role.ADMIN, UserAsked, describe_enable, perform_enable),
    Action("token-new", "Make a token", Role.VIEWER, TokenAsked, describe_token, perform_token),
    Action("token-revoke", "Revoke", Role.VIEWER, RevokeAsked, describe_revoke, perform_revoke, is_grave=True),
    Action("session-end", "Sign out", Role.VIEWER, SessionAsked, describe_session, perform_session),
)

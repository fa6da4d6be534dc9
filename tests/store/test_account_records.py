"""Accounts in the store: links work once, the last admin stays, sessions and tokens end when they should."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from world import World

from opendataflow.errors import DataflowError, UsageError
from opendataflow.store.claims import LoopStore
from opendataflow.store.records import accounts, login_links, logins
from opendataflow.store.records.accounts import Role
from opendataflow.store.records.login_links import Kind, LinkGone
from opendataflow.store.records.logins import OF_ACCOUNT, OF_ADDRESS, OF_DEVICE, OF_PAIR, TooManyAttempts, network_of

DAY = 86_400.0
HASH = "$argon2id$of-a-password"
TIMES = {
    "web_session": ("created_at", "seen_at", "expires_at", "ends_at"), "login_link": ("created_at", "expires_at"),
    "login_failure": ("expires_at",), "login_device": ("expires_at",), "api_token": ("expires_at", "last_used_at"),
}  # fmt: skip


def later(world: World, seconds: float) -> None:
    """So much time passes: on PostgreSQL, whose clock is its own, what is written down gets older."""
    if world.is_sqlite:
        world.clock.now += seconds
        return
    for table, columns in TIMES.items():
        changes = ", ".join(f"{one} = {one} - interval '{seconds} seconds'" for one in columns)
        world.sql(f"UPDATE {table} SET {changes}")


def at_once(world: World, *actions: Callable[[LoopStore], Any]) -> list[Any]:
    """What each came to, a result or an error of ours; all of them at the same time, each with its own connection."""
    ready, found = threading.Barrier(len(actions)), {}

    def run(number: int, action: Callable[[LoopStore], Any]) -> None:
        store = world.open()
        ready.wait(30)
        try:
            found[number] = action(store)
        except DataflowError as error:
            found[number] = error
        finally:
            store.close()

    threads = [threading.Thread(target=run, args=(number, one)) for number, one in enumerate(actions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return [found[number] for number in range(len(actions))]


def names(world: World) -> dict[str, str]:
    return {one.username: one.role.word for one in accounts.list_accounts(world.store)}


@pytest.fixture
def anna(world: World) -> str:
    accounts.add_account(world.store, "anna", Role.ADMIN, password_hash=HASH)
    return "anna"


# Links ----------------------------------------------------------------------------------------------------------------
def test_the_first_link_makes_an_admin_once(world: World) -> None:
    secret, other = login_links.make_first_link(world.store), login_links.make_first_link(world.store)
    assert secret is not None
    assert other is not None
    assert login_links.find_link(world.store, secret) == (Kind.FIRST, "", Role.ADMIN)
    login_links.use_link(world.store, secret, username="Anna", password_hash=HASH)
    assert names(world) == {"anna": "admin"}
    assert login_links.find_link(world.store, secret) is None
    assert login_links.find_link(world.store, other) is None
    with pytest.raises(LinkGone, match="has been used"):
        login_links.use_link(world.store, secret, username="bob", password_hash=HASH)
    assert login_links.make_first_link(world.store) is None
    assert names(world) == {"anna": "admin"}


def test_of_two_servers_links_one_makes_the_admin(world: World) -> None:
    for _ in range(5):
        secrets = [login_links.make_first_link(world.store) for _ in range(2)]
        assert None not in secrets
        uses = [
            lambda store, secret=secret, name=name: login_links.use_link(
                store, secret, username=name, password_hash=HASH
            )
            for secret in secrets
            for name in ("anna", "bob")
        ]
        ends = at_once(world, *uses)
        assert sum(isinstance(end, LinkGone) for end in ends) == 3, ends
        assert len(names(world)) == 1
        world.sql("DELETE FROM account")


def test_a_link_ends_after_a_day(world: World, anna: str) -> None:
    secret, _ = login_links.make_link(world.store, "bob", Role.VIEWER, by=anna)
    later(world, DAY - 60)
    assert login_links.find_link(world.store, secret) is not None
    later(world, 120)
    assert login_links.find_link(world.store, secret) is None
    with pytest.raises(LinkGone):
        login_links.use_link(world.store, secret, username="bob", password_hash=HASH)
    assert names(world) == {"anna": "admin"}


def test_a_link_for_an_account_is_a_new_password_and_ends_its_sessions_and_tokens(world: World, anna: str) -> None:
    session = accounts.open_session(world.store, anna)
    token = accounts.add_token(world.store, anna, "nightly", Role.VIEWER)
    secret, link = login_links.make_link(world.store, "ANNA", Role.VIEWER, by="cli")
    assert accounts.find_token(world.store, token) is not None, "a link that nobody has used changes nothing"
    assert link == (Kind.RESET, "anna", Role.ADMIN), "the role stays"
    assert accounts.find_session(world.store, session) is not None
    login_links.use_link(world.store, secret, username="mallory", password_hash="$another")
    assert names(world) == {"anna": "admin"}
    assert accounts.get_account(world.store, anna).password_hash == "$another"
    assert accounts.find_session(world.store, session) is None
    assert accounts.find_token(world.store, token) is None


def test_a_newer_link_makes_the_older_one_void(world: World, anna: str) -> None:
    older, _ = login_links.make_link(world.store, "bob", Role.ADMIN, by=anna)
    newer, _ = login_links.make_link(world.store, "bob", Role.VIEWER, by=anna)
    assert login_links.find_link(world.store, older) is None
    login_links.use_link(world.store, newer, username="bob", password_hash=HASH)
    assert names(world) == {"anna": "admin", "bob": "viewer"}


def test_a_link_for_a_new_account_never_takes_over_one_of_that_name(world: World) -> None:
    first = login_links.make_first_link(world.store)
    assert first is not None
    bobs, _ = login_links.make_link(world.store, "bob", Role.VIEWER, by="cli")
    login_links.use_link(world.store, first, username="bob", password_hash=HASH)
    with pytest.raises(LinkGone):
        login_links.use_link(world.store, bobs, username="bob", password_hash="$another")
    assert accounts.get_account(world.store, "bob")[:3] == ("bob", Role.ADMIN, HASH)


def test_a_name_that_is_taken_leaves_the_first_link_as_it_is(world: World) -> None:
    first = login_links.make_first_link(world.store)
    assert first is not None
    accounts.add_account(world.store, "bob", Role.VIEWER)
    with pytest.raises(UsageError, match="the name bob is taken"):
        login_links.use_link(world.store, first, username="bob", password_hash=HASH)
    login_links.use_link(world.store, first, username="anna", password_hash=HASH)
    assert names(world) == {"anna": "admin", "bob": "viewer"}


@pytest.mark.parametrize(
    "name", ["", " ", "-anna", "an na", "anna\0", "ännä", "a" * 65, "../anna", "anna\n"[:-1] + "\u202e"]
)
def test_what_is_no_user_name_gets_no_link(world: World, name: str) -> None:
    with pytest.raises(UsageError, match="is no user name"):
        login_links.make_link(world.store, name, Role.VIEWER, by="cli")


# Accounts -------------------------------------------------------------------------------------------------------------
def test_the_last_admin_stays_one(world: World, anna: str) -> None:
    for change in (
        lambda: accounts.disable(world.store, anna), lambda: accounts.set_role(world.store, anna, Role.OPERATOR)
    ):  # fmt: skip
        with pytest.raises(UsageError, match="anna is the only admin"):
            change()
    accounts.add_account(world.store, "bob", Role.ADMIN)
    accounts.disable(world.store, "bob")
    with pytest.raises(UsageError, match="anna is the only admin"):
        accounts.set_role(world.store, anna, Role.VIEWER)
    accounts.enable(world.store, "bob")
    accounts.set_role(world.store, anna, Role.VIEWER)
    assert names(world) == {"anna": "viewer", "bob": "admin"}


def test_two_admins_who_disable_each_other_leave_one(world: World, anna: str) -> None:
    accounts.add_account(world.store, "bob", Role.ADMIN)
    for _ in range(5):
        ends = at_once(world, lambda store: accounts.disable(store, "bob"), lambda store: accounts.disable(store, anna))
        assert sum(isinstance(end, UsageError) for end in ends) == 1, ends
        world.sql("UPDATE account SET disabled_at = NULL")


def test_a_disabled_account_ends_at_once(world: World, anna: str) -> None:
    accounts.add_account(world.store, "bob", Role.OPERATOR, password_hash=HASH)
    session = accounts.open_session(world.store, "bob")
    token = accounts.add_token(world.store, "bob", "nightly", Role.VIEWER)
    link, _ = login_links.make_link(world.store, "bob", Role.VIEWER, by=anna)
    assert accounts.disable(world.store, "bob") is True
    assert accounts.find_session(world.store, session) is None
    assert accounts.find_token(world.store, token) is None
    assert login_links.find_link(world.store, link) is None
    for refused in (
        lambda: accounts.open_session(world.store, "bob"),
        lambda: login_links.make_link(world.store, "bob", Role.ADMIN, by=anna),
        lambda: accounts.add_token(world.store, "bob", "x", Role.VIEWER),
    ):  # fmt: skip
        with pytest.raises(UsageError):
            refused()
    assert accounts.enable(world.store, "bob") is True
    assert accounts.find_session(world.store, session) is None
    assert accounts.find_token(world.store, token) is not None


# Sessions -------------------------------------------------------------------------------------------------------------
def test_a_session_lives_while_it_is_used_and_never_longer_than_its_limit(world: World, anna: str) -> None:
    secret, idle = accounts.open_session(world.store, anna), accounts.open_session(world.store, anna)
    for _ in range(5):
        later(world, accounts.IDLE_SECONDS - 3600)
        found = accounts.find_session(world.store, secret)
        if found is None:
            break
        accounts.touch_session(world.store, secret)
    else:
        pytest.fail("used every week, it went on for ever")
    assert accounts.find_session(world.store, idle) is None
    fresh = accounts.open_session(world.store, anna)
    later(world, accounts.IDLE_SECONDS - 60)
    assert accounts.find_session(world.store, fresh) is not None
    later(world, 120)
    assert accounts.find_session(world.store, fresh) is None


def test_a_use_is_written_down_every_five_minutes_at_most(world: World, anna: str) -> None:
    secret = accounts.open_session(world.store, anna)
    token = accounts.add_token(world.store, anna, "nightly", Role.VIEWER)
    found = accounts.find_token(world.store, token)
    assert found is not None
    assert found.is_stale, "never used"
    accounts.touch_token(world.store, found.tokenid)

    def is_stale() -> list[bool]:
        both = accounts.find_session(world.store, secret), accounts.find_token(world.store, token)
        return [one is not None and one.is_stale for one in both]

    later(world, accounts.TOUCH_SECONDS - 30)
    assert is_stale() == [False, False]
    before = world.sql("SELECT expires_at FROM web_session")
    accounts.touch_session(world.store, secret)
    assert world.sql("SELECT expires_at FROM web_session") == before
    later(world, 60)
    assert is_stale() == [True, True]
    accounts.touch_session(world.store, secret)
    assert is_stale()[0] is False


def test_a_new_password_ends_the_other_sessions(world: World, anna: str) -> None:
    mine, other = accounts.open_session(world.store, anna), accounts.open_session(world.store, anna)
    assert accounts.replace_password(world.store, anna, was="$wrong", password_hash="$new", keep=mine) is False
    assert accounts.find_session(world.store, other) is not None
    assert accounts.replace_password(world.store, anna, was=HASH, password_hash="$new", keep=mine) is True
    assert accounts.find_session(world.store, mine) is not None
    assert accounts.find_session(world.store, other) is None


def test_a_password_that_was_changed_meanwhile_opens_no_session(world: World, anna: str) -> None:
    accounts.replace_password(world.store, anna, was=HASH, password_hash="$new", keep="")
    with pytest.raises(UsageError, match="anna may not sign in"):
        accounts.open_session(world.store, anna, password_hash=HASH)
    assert accounts.list_sessions(world.store, anna) == []


def test_one_ends_only_own_sessions(world: World, anna: str) -> None:
    accounts.add_account(world.store, "bob", Role.VIEWER)
    accounts.open_session(world.store, anna, address="192.0.2.1", agent="Firefox")
    [one] = accounts.list_sessions(world.store, anna)
    assert one[1:3] == ("192.0.2.1", "Firefox")
    assert accounts.end_session(world.store, "bob", one.id) is False
    assert accounts.end_session(world.store, anna, one.id) is True
    assert accounts.list_sessions(world.store, anna) == []


# Tokens ---------------------------------------------------------------------------------------------------------------
def test_a_token_may_do_at_most_what_its_account_may(world: World, anna: str) -> None:
    accounts.add_account(world.store, "bob", Role.OPERATOR)
    with pytest.raises(UsageError, match="bob is operator: a token of theirs cannot be admin"):
        accounts.add_token(world.store, "bob", "x", Role.ADMIN)
    token = accounts.add_token(world.store, "bob", "x", Role.OPERATOR)
    accounts.set_role(world.store, "bob", Role.VIEWER)
    found = accounts.find_token(world.store, token)
    assert found is not None
    assert found[:2] == ("bob", Role.VIEWER)


def test_a_token_ends_when_it_is_revoked_or_too_old(world: World, anna: str) -> None:
    day = accounts.add_token(world.store, anna, "day", Role.ADMIN, seconds=DAY)
    ever = accounts.add_token(world.store, anna, "ever", Role.VIEWER)
    later(world, DAY + 1)
    assert accounts.find_token(world.store, day) is None
    assert [(one.name, one.is_expired) for one in accounts.list_tokens(world.store, username=anna)] == [
        ("day", True), ("ever", False),
    ]  # fmt: skip
    found = accounts.find_token(world.store, ever)
    assert found is not None
    assert accounts.revoke_token(world.store, found.tokenid) is True
    assert accounts.revoke_token(world.store, found.tokenid) is False
    assert accounts.find_token(world.store, ever) is None
    assert len(accounts.list_tokens(world.store, username=None)) == 1
    assert len(accounts.list_tokens(world.store, username=None, revoked=True)) == 2


# Throttling -----------------------------------------------------------------------------------------------------------
def fails(store: LoopStore, times: int, username: str = "anna", address: str = "192.0.2.1", device: str = "") -> int:
    """So many attempts with a wrong password; how many were let through."""
    for done in range(times):
        try:
            logins.begin_attempt(store, username, address, device)
        except TooManyAttempts:
            return done
    return times


def test_an_address_that_fails_waits_and_the_others_do_not(world: World) -> None:
    assert fails(world.store, 100) == OF_PAIR
    with pytest.raises(TooManyAttempts, match=r"try again in 15 minutes") as refused:
        logins.begin_attempt(world.store, "anna", "192.0.2.1", "")
    assert 890 <= refused.value.seconds <= 900
    assert fails(world.store, 3, address="192.0.2.2") == 3
    assert fails(world.store, 3, username="bob") == 3


def test_a_lock_ends_however_long_somebody_goes_on(world: World) -> None:
    fails(world.store, OF_PAIR)
    for _ in range(9):
        later(world, 90)
        assert fails(world.store, 5) == 0
    later(world, 91)
    assert fails(world.store, 100) == OF_PAIR


def test_an_address_that_tries_many_names_waits(world: World) -> None:
    assert sum(fails(world.store, 1, username=f"user{number}") for number in range(OF_ADDRESS + 20)) == OF_ADDRESS
    assert fails(world.store, 1, username="another", address="192.0.2.2") == 1


def test_an_attack_from_everywhere_locks_nobody_out_whose_browser_is_known(world: World, anna: str) -> None:
    known = logins.succeed(world.store, logins.begin_attempt(world.store, anna, "192.0.2.99", ""), anna)
    passed = sum(fails(world.store, 9, address=f"198.51.100.{number}") for number in range(40))
    assert passed == OF_ACCOUNT
    assert fails(world.store, 1, address="192.0.2.50") == 0, "a new browser waits"
    attempt = logins.begin_attempt(world.store, anna, "192.0.2.50", known)
    renewed = logins.succeed(world.store, attempt, anna)
    assert fails(world.store, 100, device=renewed) == OF_DEVICE, "a known one may not try for ever either"
    assert fails(world.store, 1, username="bob", address="192.0.2.51", device=renewed) == 1, (
        "it is known to one account"
    )
    assert fails(world.store, 1, address="192.0.2.52", device=known) == 0, "what was replaced is not known"


def test_the_right_password_takes_back_what_was_counted(world: World, anna: str) -> None:
    for _ in range(OF_ADDRESS + 1):  # a person who signs in often has not failed
        logins.succeed(world.store, logins.begin_attempt(world.store, anna, "192.0.2.1", ""), anna)
    assert fails(world.store, OF_PAIR - 1) == OF_PAIR - 1
    logins.succeed(world.store, logins.begin_attempt(world.store, anna, "192.0.2.1", ""), anna)
    assert fails(world.store, 100) == OF_PAIR


def test_many_attempts_at_once_are_no_more_than_one_after_the_other(world: World) -> None:
    ends = at_once(world, *[lambda store: fails(store, 6)] * 4)
    assert sum(ends) == OF_PAIR


def test_what_people_type_is_not_kept(world: World) -> None:
    fails(world.store, 3, username="correct horse battery")
    assert "horse" not in repr(world.sql("SELECT * FROM login_failure"))


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.1", "192.0.2.1"), ("::ffff:192.0.2.1", "192.0.2.1"), ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"), ("testclient", "testclient"), ("", ""),
    ],
)  # fmt: skip
def test_an_address_stands_for_what_one_person_can_have(address: str, network: str) -> None:
    assert network_of(address) == network


# What was done --------------------------------------------------------------------------------------------------------
def test_what_was_done_is_read_newest_first_page_by_page(world: World) -> None:
    for number in range(7):
        accounts.record_action(world.store, "anna" if number % 2 else "bob", "hold", f"job {number}", {"n": number})
    first = accounts.list_actions(world.store, limit=4)
    assert [one.target for one in first] == ["job 6", "job 5", "job 4", "job 3"]
    rest = accounts.list_actions(world.store, before=first[-1].id, limit=4)
    assert [one.detail for one in rest] == [{"n": 2}, {"n": 1}, {"n": 0}]
    assert [one.target for one in accounts.list_actions(world.store, username="anna")] == ["job 5", "job 3", "job 1"]

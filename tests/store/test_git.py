"""Git projects in both stores: versions, work that takes turns, secrets, removal."""

import pytest
from world import NOW, World, job, registration

from opendataflow.errors import UsageError
from opendataflow.store import registry
from opendataflow.store.records import git
from opendataflow.store.records.git import Credential, Switch


@pytest.fixture
def shop(world: World) -> World:
    added = git.add_git_project(
        world.store, "p", url="https://x/shop.git", branch="main", folder="/f", by="anna",
        credential=Credential("u", "enc", "token"),
    )  # fmt: skip
    assert added
    return world


def put(world: World, commit: str, how: str = "pull", home: str = "/f/1") -> None:
    wanted = registration(job("load", ["orders"], ["totals"]))._replace(home=home)
    switch = Switch(commit, "Anna", "a subject", 1_700_000_000.0, how)
    registry.apply(
        world.store, wanted, now=NOW,
        then=lambda tx: git.record_switch(world.store, tx, "p", switch, by="anna"),
    )  # fmt: skip


def test_a_version_is_registered_and_recorded_together_or_not_at_all(shop: World) -> None:
    put(shop, "a" * 40, "add", "/f/a")
    put(shop, "b" * 40, "pull", "/f/b")
    newest, first = git.list_versions(shop.store, "p")
    assert (newest.commit, newest.how, newest.left_at, newest.switched_by) == ("b" * 40, "pull", None, "anna")
    assert first.left_at is not None
    assert newest.committed_at.startswith("2023-11-14T22:13")
    assert git.get_git_project(shop.store, "p").commit == "b" * 40
    assert git.list_registered(shop.store)[0].home == "/f/b"
    registry.forget_project(shop.store, registration()._replace(home=""))
    with pytest.raises(UsageError, match="removed meanwhile"):
        put(shop, "c" * 40)
    assert git.list_registered(shop.store) == [], "what the transaction had registered is gone with it"


def test_what_was_refused_is_kept_until_a_version_is_put_in_place(shop: World) -> None:
    problem = {"severity": "error", "file": "project.yml", "line": 3, "message": "wrong", "next_step": "mend it"}
    git.note_refused(shop.store, "p", "d" * 40, "bad", [problem])
    found = git.get_git_project(shop.store, "p")
    assert (found.refused_commit, found.problems) == ("d" * 40, (problem,))
    put(shop, "e" * 40)
    assert git.get_git_project(shop.store, "p").refused_commit is None


def test_one_piece_of_work_at_a_time_on_a_project(shop: World) -> None:
    store = shop.store
    first, _ = git.new_task(store, "pull", project="p", by="anna")
    second, _ = git.new_task(store, "pull", project="p", by="ben")
    other, _ = git.new_task(store, "pull", project="q", by="cleo")
    for task in (first, second, other):
        assert git.take_up(store, task, host="h", pid=task, started=1)
    assert git.start_task(store, first, "p", lost=()) is None
    assert git.start_task(store, other, "q", lost=()) is None, "another project's work is none of its business"
    ahead = git.start_task(store, second, "p", lost=())
    assert ahead is not None
    assert ahead.taskid == first
    git.end_task(store, first, git.DONE, "done", commit="a" * 40)
    assert git.start_task(store, second, "p", lost=()) is None
    assert not git.take_up(store, second, host="h", pid=9, started=1), "it has somebody"
    third, _ = git.new_task(store, "pull", project="p", by="dora")
    assert git.take_up(store, third, host="h", pid=3, started=1)
    assert git.start_task(store, third, "p", lost=[second]) is None, "its process is gone"
    assert [one.state for one in git.list_tasks(store, project="p")] == ["RUNNING", "LOST", "DONE"]


def test_pushes_join_the_pull_that_waits(shop: World) -> None:
    store = shop.store
    first, is_new = git.new_task(store, "hook", project="p", by="webhook", join=True)
    assert is_new
    assert git.new_task(store, "hook", project="p", by="webhook", join=True) == (first, False)
    assert git.start_task(store, first, "p", lost=()) is None
    second, is_new = git.new_task(store, "hook", project="p", by="webhook", join=True)
    assert (second != first, is_new) == (True, True), "what runs may have fetched before the push"
    third, is_new = git.new_task(store, "hook", project="p", by="webhook", join=True, lost=[second])
    assert (third != second, is_new) == (True, True), "nobody came for the one that waited"


def test_a_task_forgets_its_credential_when_it_ends(shop: World) -> None:
    store = shop.store
    task, _ = git.new_task(store, "add", project=None, by="anna", url="u", credential=Credential("u", "enc:x", "token"))
    assert git.task_credential(store, task) == Credential("u", "enc:x", "token")
    git.start_task(store, task, None, lost=())
    git.end_task(store, task, git.FAILED, "no")
    assert git.task_credential(store, task).text is None


def test_secrets_change_all_or_none(shop: World) -> None:
    git.set_hook_secret(shop.store, "p", "hook")
    assert git.rotate_git_secrets(shop.store, str.upper, dry_run=True) == (2, 0)
    assert git.find_secrets(shop.store, "p") == ("enc", "hook")
    assert git.rotate_git_secrets(shop.store, str.upper) == (2, 0)
    assert git.find_secrets(shop.store, "p") == ("ENC", "HOOK")
    assert git.rotate_git_secrets(shop.store, str.upper) == (0, 2)


def test_runs_and_their_commits(shop: World) -> None:
    git.record_commit(shop.store, 7, "a" * 40)
    git.record_commit(shop.store, 7, "b" * 40)
    git.record_commit(shop.store, 1_000_000, "c" * 40)
    assert git.commits_of(shop.store, [6, 7]) == {7: "a" * 40}
    assert git.commits_of(shop.store, [7, 1_000_000]) == {7: "a" * 40, 1_000_000: "c" * 40}
    assert git.commits_of(shop.store, []) == {}

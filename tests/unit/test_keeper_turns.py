"""Who may use a driver: in order, and a suspect alone."""

from opendataflow.spark.keeper_turns import Turns


def test_runs_that_nobody_suspects_are_attached_at_once() -> None:
    turns = Turns()
    for run in (1, 2, 3):
        turns.ask(run, f"job/{run}")
    assert turns.grant() == [1, 2, 3]
    assert turns.identities == ["job/1", "job/2", "job/3"]


def test_a_suspect_waits_until_the_driver_is_free_and_holds_back_who_came_after_it() -> None:
    turns = Turns(["bad"])
    turns.ask(1, "good")
    assert turns.grant() == [1]
    turns.ask(2, "bad")
    turns.ask(3, "good too")
    assert turns.grant() == []
    assert (turns.ahead_of(2), turns.ahead_of(3), turns.ahead_of(1)) == (1, 2, 0)
    assert not turns.leave(1)
    assert turns.grant() == [2]
    assert turns.grant() == []
    assert turns.leave(2)  # it ended without harm
    assert turns.grant() == [3]
    assert turns.suspects == set()


def test_two_suspects_are_attached_one_after_the_other() -> None:
    turns = Turns(["one", "two"])
    turns.ask(1, "one")
    turns.ask(2, "two")
    assert turns.grant() == [1]
    turns.leave(1)
    assert turns.grant() == [2]


def test_a_suspect_that_gives_up_waiting_stays_a_suspect_and_lets_the_others_go_on() -> None:
    turns = Turns(["bad"])
    turns.ask(1, "good")
    turns.grant()
    turns.ask(2, "bad")
    turns.ask(3, "good")
    turns.grant()
    assert not turns.leave(2)
    assert turns.grant() == [3]
    assert turns.suspects == {"bad"}

"""Self-braking: what is seen of the recent runs decides how many may run at once."""

from opendataflow.scheduling.adaptive_concurrency import Brake, BrakeSettings, Change, brake_settings


def brake(**settings: object) -> Brake:
    return Brake(BrakeSettings(**{"failures": 0.5, "window": 4, **settings}))  # type: ignore[arg-type]


def after(one: Brake, runs: str, *, seconds: float = 1.0, limit: int | None, braked_to: int | None) -> Change | None:
    """The decision after these runs: + well, - failed."""
    enough = [one.note(failed=run == "-", seconds=seconds) for run in runs]
    assert enough[-1], "a decision needs a whole window"
    return one.decide(limit=limit, braked_to=braked_to, live=6)


def test_only_a_job_that_asks_for_it_is_braked() -> None:
    assert brake_settings({}) is None
    assert brake_settings({"brake": {}}) == BrakeSettings()
    assert brake_settings({"brake": {"slower": 3}}) == BrakeSettings(failures=None, slower=3.0)
    assert brake_settings({"brake": {"failures": 0.1, "window": 50}}) == BrakeSettings(failures=0.1, window=50)


def test_no_decision_before_a_whole_window() -> None:
    one = brake()
    assert [one.note(failed=True, seconds=1) for _ in range(4)] == [False, False, False, True]


def test_failures_halve_the_limit_down_to_one() -> None:
    one = brake()
    changes = []
    braked_to: int | None = None
    for _ in range(5):
        change = after(one, "+--+", limit=10, braked_to=braked_to)
        if change is not None:
            braked_to = change.becomes
            changes.append(braked_to)
    assert changes == [5, 2, 1], "and it stays at one"


def test_fewer_failures_than_asked_for_change_nothing() -> None:
    assert after(brake(), "+-++", limit=10, braked_to=None) is None


def test_it_recovers_step_by_step_and_is_released_at_the_end() -> None:
    one = brake()
    braked_to: int | None = 1
    steps = []
    while braked_to is not None:
        change = after(one, "++++", limit=10, braked_to=braked_to)
        assert change is not None
        braked_to = change.becomes
        steps.append(braked_to)
    assert steps == [2, 3, 4, 6, 9, None]


def test_without_a_limit_it_is_braked_from_what_was_live_and_goes_back_there() -> None:
    one = brake()
    change = after(one, "----", limit=None, braked_to=None)
    assert change is not None
    assert change.becomes == 3
    calm = "0 of the last 4 runs failed, and they took no longer than usual"
    assert after(one, "++++", limit=None, braked_to=4) == Change(None, calm)


def test_run_times_that_rise_past_the_factor_brake_and_do_not_become_usual() -> None:
    one = brake(failures=None, slower=3.0)
    assert after(one, "++++", seconds=1.0, limit=8, braked_to=None) is None, "now it knows what is usual"
    assert after(one, "++++", seconds=2.9, limit=8, braked_to=None) is None
    for braked_to, becomes in ((None, 4), (4, 2)):
        change = after(one, "++++", seconds=9.0, limit=8, braked_to=braked_to)
        assert change is not None
        assert change.becomes == becomes
        assert "more than 3 times the usual" in change.reason
    recovered = after(one, "++++", seconds=1.1, limit=8, braked_to=2)
    assert recovered is not None
    assert recovered.becomes == 3

"""What child processes do for pages: who died in the midst of it leaves no request that runs for ever."""

from world import World

from opendataflow.store.records.requests import (
    LOST_SECONDS,
    add_request,
    beat_request,
    end_request,
    find_request,
    list_requests,
)


def pass_time(world: World, seconds: float) -> None:
    if world.is_sqlite:
        world.clock.now += seconds
        return
    moved = f"- interval '{seconds} seconds'"
    world.sql(f"UPDATE request SET asked_at = asked_at {moved}, beat_at = beat_at {moved}")


def statuses(world: World, number: int) -> tuple[str, str]:
    """As the page of it says, and as the list of them does."""
    found = find_request(world.store, number)
    assert found is not None
    return found["status"], list_requests(world.store)[0]["status"]


def test_a_request_runs_for_as_long_as_its_server_is_heard_of(world: World) -> None:
    number = add_request(world.store, "validate", "p")
    for _ in range(3):
        pass_time(world, LOST_SECONDS * 0.9)
        assert statuses(world, number) == ("RUNNING", "RUNNING")
        beat_request(world.store, number)
    pass_time(world, LOST_SECONDS * 1.1)
    assert statuses(world, number) == ("FAILED", "FAILED")
    found = find_request(world.store, number)
    assert found is not None
    assert found["output"] == "the server that did it is gone; ask for it again"


def test_a_server_that_was_only_held_up_still_tells_how_it_ended(world: World) -> None:
    number = add_request(world.store, "validate", "p")
    pass_time(world, LOST_SECONDS * 2)
    assert statuses(world, number) == ("FAILED", "FAILED")
    end_request(world.store, number, exit_code=0, output="all is well")
    assert statuses(world, number) == ("COMPLETE", "COMPLETE")
    pass_time(world, LOST_SECONDS * 2)
    assert statuses(world, number) == ("COMPLETE", "COMPLETE")

from opendataflow.scheduling.maintenance import EACH, _summed_up


def test_what_arrives_by_the_hundred_is_told_in_a_line_and_the_rest_one_by_one() -> None:
    many = [f"source/{number:03d} READY" for number in range(1, 301)]
    others = ["rates/full READY", "source/400 REJECTED: it is empty"]
    assert _summed_up([*many, *others]) == [*others, "source: 300 have arrived, 001 … 300"]
    assert _summed_up(many[:EACH]) == many[:EACH]

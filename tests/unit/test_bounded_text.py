"""Text of a bounded size."""

from opendataflow.spark.kept import Kept


def test_a_long_output_keeps_its_beginning_and_end_and_says_what_it_left_out() -> None:
    short, long = Kept(head=10, tail=20), Kept(head=10, tail=20)
    short.add("0123456789" * 3)
    assert short.text == "0123456789" * 3
    for number in range(1000):
        long.add(f"{number:04}\n")
    assert long.text == "0000\n0001\n\n… 4,970 characters left out …\n0996\n0997\n0998\n0999\n"

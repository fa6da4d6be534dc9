"""What a body that is refused costs: not a hundred times its size."""

import subprocess
import sys

import pytest

PARSE = """
import resource, sys
from opendataflow.domain.streams import Field
from opendataflow.intake.refusals import ItemsRefused
from opendataflow.intake.schema import StreamSchema

schema = StreamSchema([Field("email", "string", True), Field("at", sys.argv[1], True)])
item, count = sys.argv[2], int(sys.argv[3])
body = ("[" + ",".join([item] * count) + "]").encode()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    schema.parse(body)
except ItemsRefused as error:
    taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(len(error.problems), taken * 1024 // len(body))
"""


@pytest.mark.parametrize(
    ("type_", "item", "count"),
    [
        ("string", "{}", 500_000),
        ("date", '{"email": 1, "x": 2}', 100_000),
        ("decimal(9,2)", "{}", 500_000),
        ("array<int>", '{"email": "a", "at": [' + '"b",' * 1000 + "1]}", 500),
        ("struct<a:int>", '{"email": "a", "at": {' + ",".join(f'"{n}": 1' for n in range(5000)) + "}}", 40),
        ("string", "7", 500_000),
    ],
)
def test_a_refused_body_costs_a_small_multiple_of_its_size(type_: str, item: str, count: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PARSE, type_, item, str(count)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    problems, factor = map(int, done.stdout.split())
    assert 1 <= problems <= 100
    assert factor < 100, "bytes for each byte of the body"

"""What the examples must come to, by plain loops, and the ways in which they are run."""

import pytest

pytest.register_assert_rewrite("oracle.published", "oracle.ways")

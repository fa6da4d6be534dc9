"""How a case ended, as people read it: a sentence, the differences, the traceback, and what the code printed."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from opendataflow.spark.compare import Difference

OK, FAILED = "ok", "failed"
MOST_SHOWN = 20  # differences


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    id: str  # slug.name
    file: str  # from the project's folder
    status: str
    message: str = ""  # a sentence, when it failed
    differences: tuple[Difference, ...] = ()
    difference_count: int = 0  # more than are kept one by one, if there are very many
    traceback: str = ""  # of the user's code only
    output: str = ""  # what the code printed
    seconds: float = 0.0

    @property
    def is_ok(self) -> bool:
        return self.status == OK

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def details(self) -> list[str]:
        """Why it failed, line by line: at most so many differences, and how many more there are."""
        lines = [*self.traceback.rstrip().splitlines(), self.message]
        lines += [f"  {one}" for one in self.differences[:MOST_SHOWN]]
        more = self.difference_count - min(len(self.differences), MOST_SHOWN)
        return [*lines, f"  … {more:,} more"] if more > 0 else lines


def outcome_from(fields: Mapping[str, Any]) -> Outcome:
    """What `as_json` gave."""
    differences = tuple(Difference(**one) for one in fields["differences"])
    return Outcome(**{**fields, "differences": differences})

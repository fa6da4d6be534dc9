"""What is wrong in parts that do not depend on each other: kept, and told at once."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from opendataflow.errors import ConfigurationError


class Problems:
    """The errors of a project.yml, in the order of its lines."""

    def __init__(self, file: str) -> None:
        self._line_of = re.compile(re.escape(file) + r":([0-9]+): ")
        self._found: dict[str, None] = {}

    def __bool__(self) -> bool:
        return bool(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def add(self, text: str) -> None:
        self._found[text] = None

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep the error of this part, and go on after it."""
        try:
            yield
        except ConfigurationError as error:
            self.add(str(error))

    def lines(self) -> list[tuple[int, str]]:
        """Each with its line in the file, without the file's name."""
        places = ((self._line_of.match(text), text) for text in self._found)
        found = [(int(place[1]), text[place.end() :]) if place else (1, text) for place, text in places]
        return sorted(found, key=lambda one: one[0])

    def text(self) -> str:
        """All of them, one after the other, as an error shows them."""
        places = {text: self._line_of.match(text) for text in self._found}
        return "\n".join(sorted(self._found, key=lambda text: int(place[1]) if (place := places[text]) else 1))

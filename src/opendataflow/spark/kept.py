"""Text of a bounded size: its beginning, its end, and how much between them was left out."""

HEAD, TAIL = 16 * 1024, 48 * 1024  # characters: the first lines tell what began, the last ones how it ended


class Kept:
    """Takes any amount of text and keeps at most `HEAD + TAIL` characters of it, and a note about the rest."""

    def __init__(self, head: int = HEAD, tail: int = TAIL) -> None:
        self._room, self._most = head, tail
        self._head: list[str] = []
        self._tail: list[str] = []
        self._tail_size = 0
        self._left_out = 0

    def add(self, text: str) -> None:
        if self._room:
            self._head.append(text[: self._room])
            text = text[self._room :]
            self._room -= len(self._head[-1])
        if text:
            self._tail.append(text)
            self._tail_size += len(text)
            if self._tail_size > 2 * self._most:  # not at every line: that would copy the tail each time
                self._shorten()

    @property
    def text(self) -> str:
        if self._tail_size > self._most:
            self._shorten()
        note = f"\n… {self._left_out:,} characters left out …\n" if self._left_out else ""
        return "".join(self._head) + note + "".join(self._tail)

    def _shorten(self) -> None:
        end = "".join(self._tail)[-self._most :]
        self._left_out += self._tail_size - len(end)
        self._tail, self._tail_size = [end], len(end)

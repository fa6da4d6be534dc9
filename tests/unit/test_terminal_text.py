"""What scripts and committers wrote is shown on a terminal, and not obeyed by it."""

import os
import pty
import subprocess
import sys

import pytest

from opendataflow.cli.render import as_text

TITLE, CLIPBOARD, HIDDEN = "\x1b]0;owned\x07", "\x1b]52;c;cm0gLXJmIH4=\x07", "\x1b[8mhidden\x1b[1A\x9b2K"


@pytest.mark.parametrize("nasty", [TITLE, CLIPBOARD, HIDDEN, "\x9d0;x\x9c", "\x1bc", "\x08" * 5, "\x0e", "\x1b[6n"])
def test_no_control_sequence_reaches_the_terminal(nasty: str) -> None:
    for command in ("put", "say", "table"):
        code = f"from opendataflow.cli.render import *; text = {nasty!r}; "
        code += {"put": "put(text)", "say": "say(text)", "table": "put_table('', ['a'], [[text]])"}[command]
        said = said_on_a_terminal(code)
        assert not {"\x07", "\x08", "\x0e", "\x9b", "\x9d"} & set(said)
        for sequence in ("\x1b]", "\x1bc", "\x1b[6n", "\x1b[1A"):
            assert sequence not in said


def said_on_a_terminal(code: str) -> str:
    main, end = pty.openpty()
    try:
        environ = {**os.environ, "NO_COLOR": "1", "TERM": "dumb"}
        subprocess.run([sys.executable, "-c", code], stdout=end, stderr=end, env=environ, check=True, timeout=60)
    finally:
        os.close(end)
    said = b""
    try:
        while piece := os.read(main, 4096):
            said += piece
    except OSError:  # the other end is closed, and all was read
        pass
    os.close(main)
    return said.decode(errors="replace")


def test_colours_tabs_and_lines_stay() -> None:
    assert as_text("\x1b[31mred\x1b[0m\ta\r\nb") == "\x1b[31mred\x1b[0m\ta\r\nb"

"""A run's log: any bytes in the output, any bytes in what is masked."""

import os
from pathlib import Path

from opendataflow.execution.log import RunLog, Shown


def test_a_password_that_is_no_utf8_is_masked(tmp_path: Path) -> None:
    """Credentials are bytes: what is not UTF-8 is decrypted as Python reads it from a terminal or a file."""
    log = RunLog(str(tmp_path / "1.log"), Shown(out_fd=-1, err_fd=-1), secrets=(os.fsdecode(b"pass\xe9word"),))
    log.write(1, b"before \xff\x00 pass\xe9")
    log.write(1, b"word after\n")
    log.end()
    log.close()
    assert (tmp_path / "1.log").read_bytes() == b"before \xff\x00 *** after\n"
    assert log.tail() == "before \N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER} *** after\n"

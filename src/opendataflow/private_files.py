"""Files and folders for their owner alone: the state, logs, intake and clones, whatever the umask is."""

import os
import stat

OWN_FOLDER = ".dataflow"  # of this name, a folder is OpenDataFlow's, whoever made it
FOLDER, FILE = 0o700, 0o600
OTHERS = 0o077


def make_folder(path: str) -> None:
    """Make the folder, and what is missing above it, for the owner alone; what is there already stays as it is."""
    missing = []
    while path and not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for one in reversed(missing):
        try:
            os.mkdir(one, FOLDER)
        except FileExistsError:
            if not os.path.isdir(one):
                raise


def opener(path: str, flags: int) -> int:
    """For `open(…, opener=opener)`: a file that this makes is for the owner alone."""
    return os.open(path, flags, FILE)


def close_to_others(path: str) -> int | None:
    """Take every right from group and others: returns the mode before, or None if they had none. Raises OSError."""
    mode = stat.S_IMODE(os.stat(path).st_mode)
    if not mode & OTHERS:
        return None
    os.chmod(path, mode & ~OTHERS)
    return mode

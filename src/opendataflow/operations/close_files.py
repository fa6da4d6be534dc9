"""What OpenDataFlow keeps on this machine is for its owner alone: files of earlier releases are closed to others."""

import os
import shlex
from collections.abc import Iterator

from opendataflow.operations.host_checks import OK, SHOWN, WARNING, Finding, some
from opendataflow.private_files import OTHERS, OWN_FOLDER, close_to_others
from opendataflow.project.address import Address

CHECK = "private files"
_IN_WORK = ("logs", "openlineage", "projects", "runs", "streams", "unreported")
_OF_SPARK = ("checkpoint", "kafka")  # in a stream's folder: Spark makes what is in them, and they are closed themselves


def close_files(address: Address) -> Iterator[Finding]:
    """Take from group and others what they may do with the store's file, logs, streams and clones; report each."""
    closed: list[str] = []
    failed: list[str] = []
    for path in _paths(address):
        shown = os.path.relpath(path, address.home) if address.home and _is_below(path, address.home) else path
        try:
            before = close_to_others(path)
            if before is not None:
                closed.append(f"{shown} was readable by others ({before:04o}): now {before & ~OTHERS:04o}")
        except FileNotFoundError:
            continue  # removed meanwhile, or never made
        except OSError:  # somebody else's
            failed.append(path)
    for told in closed[:SHOWN]:
        yield Finding(CHECK, WARNING, told)
    if len(closed) > SHOWN:
        yield Finding(CHECK, WARNING, f"{len(closed) - SHOWN:,} more were readable by others, and are not now")
    if failed:
        fix = f"as their owner: chmod go-rwx {shlex.join(failed[:SHOWN])}"
        yield Finding(CHECK, WARNING, f"readable by others, and owned by another user: {some(failed)}", fix)
    if not closed and not failed:
        yield Finding(CHECK, OK, "only their owner can read the state, logs and streams")


def _paths(address: Address) -> Iterator[str]:
    if address.store.startswith("sqlite:///"):
        file = address.store.removeprefix("sqlite:///")
        yield from (file, f"{file}-wal", f"{file}-shm")
    # A work folder of another name may hold what is not ours.
    is_ours = os.path.basename(address.work) == OWN_FOLDER
    tops = [address.work] if is_ours else [os.path.join(address.work, name) for name in _IN_WORK]
    if address.streams and address.project:
        tops.append(os.path.join(address.streams, address.project))
    for top in tops:
        yield from _below(top, os.path.join(address.work, "projects"))


def _below(top: str, projects: str) -> Iterator[str]:
    for folder, folders, files in os.walk(top):
        yield folder
        entries = (os.path.join(folder, name) for name in files)
        yield from (path for path in entries if not os.path.islink(path))
        if os.path.dirname(folder) == projects and "shared" in folders:
            folders.remove("shared")  # the data of a git project
        for name in _OF_SPARK:
            if name in folders and os.path.isdir(os.path.join(folder, "log")):
                folders.remove(name)
                yield os.path.join(folder, name)


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip(os.sep) + os.sep)

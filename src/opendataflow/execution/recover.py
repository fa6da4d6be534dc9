"""What earlier runs left behind: claims whose owner is gone, and endings that could not be recorded."""

import contextlib
import json
import os
import time
from collections.abc import Callable
from typing import Any

from opendataflow.domain.chunk import ChunkKey, Manifest
from opendataflow.domain.runs.run import Claim, Ending, Owner, Result
from opendataflow.errors import LeaseLost
from opendataflow.execution.environment import guard_mark
from opendataflow.execution.processes import ZYGOTE, is_alive, kill_forks, kill_marked, kill_tree
from opendataflow.private_files import make_folder
from opendataflow.store.claims import LoopStore

Say = Callable[[str], None]


def recover_lost_runs(
    store: LoopStore, *, host: str, say: Say, own_host_too: bool = True, work: str | None = None
) -> int:
    """Return the work of dead owners to RESUBMIT and end what they left on this host; how many there were."""
    recovered = 0
    for lost, expired, owner in store.suspects(host if own_host_too else ""):
        dead = owner.host == host and not is_alive(owner.pid, owner.pid_started)
        if not expired and not dead:
            continue
        how = "its process is gone" if dead else "its lease ran out"
        if dead:
            kill_remains(owner)  # before anybody else can start it
        if not store.recover(lost, host=host if dead else "", note=f"lost: {how} ({owner.name})"):
            continue
        if owner.host == host:
            kill_remains(owner)
            if work is not None:
                remove_task_files(work, lost.runid)
        recovered += 1
        say(f"run {lost.runid} of {lost.jobid}/{lost.dataid} was lost ({how}); it will be done again")
    return recovered


def kill_remains(owner: Owner) -> None:
    """Kill the lost owner's child and its descendants, if any still live on this host."""
    if is_alive(owner.guard_pid, owner.guard_started):
        kill_tree(owner.guard_pid)
    kill_marked(guard_mark(owner), spare=os.getpid())
    kill_forks(owner.guard_pid, ZYGOTE.encode())


def remove_task_files(work: str, runid: int) -> None:
    """Remove what went between a run and its Spark child, or would have, had the child not died before it read it."""
    for name in (f"{runid}.json", f"{runid}.result.json", f"{runid}.result.json.new"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(work, "runs", name))


# Endings that could not be recorded --------------------------------------------------------------------------------
def _folder(work: str) -> str:
    return os.path.join(work, "unreported")


def keep_for_later(work: str, claim: Claim, result: Result, store_url: str) -> str:
    """Write the end of a run to a local record, durably; the next run on this host reports it."""
    make_folder(_folder(work))
    path = os.path.join(_folder(work), f"{claim.runid}.json")
    record = {
        "store": store_url.rpartition("@")[2],
        "claim": claim._asdict(),
        "result": {**result._asdict(), "manifests": [[p, d, m._asdict()] for p, d, m in result.manifests]},
        "at": time.time(),
    }
    handle = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(handle, "w", encoding="utf-8") as file:
        json.dump(record, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)
    return path


def report_kept(work: str, store: LoopStore, *, say: Say) -> None:
    """Record the endings that earlier runs on this host could not; those that came too late are said and put aside."""
    try:
        names = sorted(name for name in os.listdir(_folder(work)) if name.endswith(".json"))
    except FileNotFoundError:
        return
    for name in names:
        path = os.path.join(_folder(work), name)
        try:
            with open(path, encoding="utf-8") as file:
                record = json.load(file)
        except FileNotFoundError:
            continue  # another run on this host was faster
        except ValueError:
            record = {}  # cut off, or not ours
        try:
            if record["store"] != store.url.rpartition("@")[2]:
                continue
            claim, result = _claim(record["claim"]), _result(record["result"])
        except (KeyError, TypeError, ValueError, AttributeError):
            say(f"{path} is no record of a run that this version can read; put aside, and the run's work is done again")
            with contextlib.suppress(FileNotFoundError):
                os.rename(path, path.removesuffix(".json") + ".unreadable")
            continue
        what = f"run {claim.runid} of {claim.jobid}/{claim.dataid} ended {result.ending} while the store was away"
        try:
            finished = store.finish(claim, result)
            say(f"{what}; recorded now: {finished.status}")
        except LeaseLost:
            say(f"{what}; its lease was lost since, so the work was given to another run")
        try:
            os.rename(path, path.removesuffix(".json") + ".reported")
        except FileNotFoundError:
            pass


def _claim(fields: dict[str, Any]) -> Claim:
    return Claim(**{**fields, "inputs": tuple(ChunkKey(*key) for key in fields["inputs"])})


def _result(fields: dict[str, Any]) -> Result:
    manifests = tuple((p, d, Manifest(**m)) for p, d, m in fields["manifests"])
    return Result(**{**fields, "ending": Ending(fields["ending"]), "manifests": manifests})

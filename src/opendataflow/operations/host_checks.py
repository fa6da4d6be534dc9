"""This machine as a run needs it: Python, packages, Java, Spark, disks. Looks, changes nothing."""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib import metadata
from importlib.util import find_spec
from typing import NamedTuple

from opendataflow import __version__
from opendataflow.extras import EXTRAS, pip_command

OK, WARNING, PROBLEM = "ok", "warning", "problem"
NEEDED = ("cronsim", "cryptography", "pydantic", "pyyaml", "rich", "typer")
PYTHON, JAVA = (3, 11), 17
FREE_BYTES = 1 << 30
ON_A_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "fuse.s3fs", "lustre", "ceph", "glusterfs")
SHOWN = 5


class Finding(NamedTuple):
    check: str
    state: str  # ok | warning | problem
    told: str
    fix: str = ""


def some(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def python() -> Finding:
    version = ".".join(str(part) for part in sys.version_info[:3])
    state = OK if sys.version_info >= PYTHON else PROBLEM
    return Finding("python", state, f"Python {version}", "" if state == OK else "install Python 3.11 or newer")


def packages(modules: Sequence[str]) -> Finding:
    """What every installation has, and the modules of extras that this project needs."""
    found, missing = [f"opendataflow {__version__}"], []
    for name in NEEDED:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        return Finding("packages", PROBLEM, f"missing: {', '.join(missing)}", f"pip install {' '.join(missing)}")
    lacking = [name for name in modules if find_spec(name) is None]
    if lacking:
        extras = ",".join(dict.fromkeys(EXTRAS[name][0] for name in lacking))
        return Finding("packages", PROBLEM, f"this project needs {', '.join(lacking)}", pip_command(extras))
    found += [f"{name} {_version(name)}" for name in modules]
    return Finding("packages", OK, ", ".join(found))


def _version(module: str) -> str:
    try:
        return metadata.version(module.replace("_", "-"))
    except metadata.PackageNotFoundError:
        return "(of unknown version)"


def java(*, needed: bool) -> Finding:
    home = os.environ.get("JAVA_HOME")
    path = os.path.join(home, "bin", "java") if home else shutil.which("java")
    fix = "`apt install openjdk-17-jre-headless`, or set JAVA_HOME to Java 17 or newer"
    state, why = (PROBLEM, "pipelines need it") if needed else (OK, "only pipelines need it")
    if path is None or not os.access(path, os.X_OK):
        where = f"JAVA_HOME is {home}, but has no bin/java" if home else "there is no Java"
        return Finding("java", state, f"{where}; {why}", fix if needed else "")
    try:
        said = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    except (OSError, subprocess.SubprocessError) as error:
        return Finding("java", state, f"{path} does not run: {error}; {why}", fix if needed else "")
    version = re.search(r'version "(?:1\.)?(\d+)[^"]*"', said)
    if version is None or int(version.group(1)) < JAVA:
        shown = version.group() if version else said.strip().splitlines()[:1]
        return Finding("java", state, f"{path}: {shown}, older than {JAVA}; {why}", fix if needed else "")
    return Finding("java", OK, f"{path}: {version.group()}")


def spark() -> Iterator[Finding]:
    """For a project with pipelines. Spark itself is not started: that takes seconds."""
    found = find_spec("pyspark")
    own = os.path.dirname(found.origin) if found is not None and found.origin else None
    if own is None:
        yield Finding("spark", PROBLEM, "pyspark is not installed; pipelines need it", pip_command("spark"))
        return
    home = os.environ.get("SPARK_HOME")
    if home and not os.path.isfile(os.path.join(home, "bin", "spark-submit")):
        yield Finding("spark", PROBLEM, f"SPARK_HOME is {home}, but has no bin/spark-submit", "unset SPARK_HOME")
    elif home and os.path.realpath(home) != os.path.realpath(own):
        told = f"SPARK_HOME is {home}, so its Spark runs and not the one of pyspark {_version('pyspark')}"
        yield Finding("spark", WARNING, told, "unset SPARK_HOME, unless both are of the same version")
    else:
        yield Finding("spark", OK, f"pyspark {_version('pyspark')} in {own}")
    try:
        socket.getaddrinfo("localhost", None)
    except OSError:
        told = "localhost means nothing on this machine, and Spark's two halves speak over it"
        yield Finding("localhost", PROBLEM, told, "add the line `127.0.0.1 localhost` to /etc/hosts")
    try:
        socket.getaddrinfo(socket.gethostname(), None)
    except OSError:
        name = socket.gethostname()
        told = f"this machine's own name, {name}, means nothing to it: Spark on a cluster or in buckets asks for it"
        yield Finding("host name", WARNING, told, f"add the line `127.0.1.1 {name}` to /etc/hosts")
    # Spark takes the first of these that is set; shuffles and spills go there.
    scratch = (os.environ.get("SPARK_LOCAL_DIRS") or tempfile.gettempdir()).split(",")[0]
    yield from writable("spark's scratch", scratch)


def writable(check: str, folder: str) -> Iterator[Finding]:
    """Whether this user can write there, or make it, and how much room is left."""
    nearest = os.path.abspath(folder)
    while not os.path.exists(nearest) and nearest != os.path.dirname(nearest):
        nearest = os.path.dirname(nearest)
    if not os.path.isdir(nearest) or not os.access(nearest, os.W_OK | os.X_OK):
        yield Finding(check, PROBLEM, f"{nearest} cannot be written by this user", f"chown or chmod {nearest}")
        return
    usage = shutil.disk_usage(nearest)
    free = f"{folder}: {usage.free / 2**30:.1f} GiB of {usage.total / 2**30:.1f} free"
    if usage.free < FREE_BYTES:
        yield Finding(check, WARNING, free, "make room before a run fails half-way")
    else:
        yield Finding(check, OK, free)


def file_system(path: str, mounts: str = "/proc/mounts") -> str | None:
    """The kind of file system that the path is on, such as ext4 or nfs4; None where nobody tells."""
    whole = os.path.realpath(path)
    try:
        with open(mounts, encoding="utf-8", errors="replace") as file:
            lines = [line.split() for line in file]
    except OSError:
        return None
    best, kind = "", None
    for _, point, found, *_rest in (line for line in lines if len(line) > 2):
        place = point.replace("\\040", " ")
        if (whole == place or whole.startswith(place.rstrip("/") + "/")) and len(place) >= len(best):
            best, kind = place, found
    return kind

"""What this host lacks for a job, found before anything is claimed: no attempt is used up in vain.

Cheap: only whether a file or a module is there. `dataflow doctor` looks closer.
"""

import os
from typing import Any

from opendataflow.domain.job import Job
from opendataflow.domain.tables import find_table
from opendataflow.errors import ConfigurationError
from opendataflow.extras import require

_MODULES = {
    "postgresql": "adbc_driver_postgresql", "postgres": "adbc_driver_postgresql", "sqlite": "adbc_driver_sqlite",
    "bigquery": "adbc_driver_bigquery",
}  # fmt: skip
_HEAD_BYTES = 256


def check_pipeline_host(job: Job) -> None:
    """Raise ConfigurationError when Java, a package or a driver that the pipeline needs is missing."""
    require("pyspark", "pyarrow", "pandas")
    for link in job.links:
        table = find_table(link.dataset)
        if table is not None and (module := _MODULES.get(table.scheme)) is not None and table.driver is None:
            require("adbc_driver_manager", module)
    settings: Any = job.definition.get("spark") or {}
    if not str(settings.get("master") or "").startswith("sc://"):  # there, Java is on the server's host
        _check_java(job)


def _check_java(job: Job) -> None:
    home = os.environ.get("JAVA_HOME")
    step = "`apt install openjdk-17-jre-headless` installs Java, or set JAVA_HOME to Java 17 or newer"
    if home and not os.access(os.path.join(home, "bin", "java"), os.X_OK):
        raise ConfigurationError(
            f"pipeline {job.jobid} needs Java, and JAVA_HOME is {home}, but there is no bin/java in it; {step}"
        )
    if not home and not _is_on("java", None):
        raise ConfigurationError(f"pipeline {job.jobid} needs Java, and this host has none; {step}")


def check_interpreter(job: Job, script: str) -> None:
    """Raise ConfigurationError when the script names an interpreter in its first line that this host does not have."""
    try:
        with open(script, "rb") as file:
            head = file.readline(_HEAD_BYTES)
    except OSError:
        return  # it can be run without being read; how it starts is seen then
    if not head.startswith(b"#!"):
        return
    words = head[2:].decode(errors="replace").split()
    if not words:
        return
    if not os.access(words[0], os.X_OK):
        raise ConfigurationError(
            f"{script} is to be run by {words[0]}, which this host does not have; install it, or name another in the "
            "script's first line"
        )
    named = next((word for word in words[1:] if not word.startswith("-") and "=" not in word), None)
    own: Any = job.definition.get("env") or {}
    path = own.get("PATH")
    if os.path.basename(words[0]) == "env" and named is not None and not _is_on(named, path):
        raise ConfigurationError(
            f"{script} is to be run by {named}, which is not on the PATH of this host; install it, or set PATH"
        )


def _is_on(program: str, path: str | None) -> bool:
    """True when the program is on this PATH, or on our own. (shutil.which, without what importing shutil costs.)"""
    if os.sep in program:
        return os.access(program, os.X_OK)
    folders = str(os.environ.get("PATH", os.defpath) if path is None else path).split(os.pathsep)
    found = (os.path.join(folder, program) for folder in folders)
    return any(os.path.isfile(one) and os.access(one, os.X_OK) for one in found)

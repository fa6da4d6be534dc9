"""Which keeper a run uses: the settings, environment and folder of one warm Spark driver.

Settings that only a starting driver can take (static ones) belong to the keeper, and so does the environment of its
JVM; both are part of its key. The other settings are set on the session of each run. This module does not import
pyspark.
"""

import hashlib
import json
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from opendataflow import __version__
from opendataflow.domain.variables import is_platform_variable
from opendataflow.errors import ConfigurationError
from opendataflow.spark.static_settings import is_session_setting

DEFAULT_MASTER = "local[*]"
IDLE_SECONDS = 900.0
MOST_RUNS = 1000  # Spark keeps a socket for each run that used Python, until its driver ends
MEMORY_SHARE = 0.6
HANG_SECONDS = 60.0
RUNTIME_VARIABLE = "DATAFLOW_RUNTIME_DIR"
SETTINGS_FILE = "settings.json"
_OTHERS = 0o077

_PASSED = re.compile(
    r"\A(PATH|HOME|USER|LOGNAME|SHELL|LANG|LC_\w+|TZ|TMPDIR|LD_LIBRARY_PATH|JAVA_\w+|JDK_JAVA_OPTIONS|SPARK_\w+|HADOOP_\w+"
    r"|YARN_\w+|KUBECONFIG|KRB5\w*|AWS_\w+|GOOGLE_\w+|AZURE_\w+|\w+_PROXY|\w+_proxy|SSL_CERT_\w+|PYSPARK_PYTHON"
    r"|PYSPARK_DRIVER_PYTHON|PYSPARK_SUBMIT_ARGS|PYTHONPATH|XDG_\w+)\Z"
)
# What differs between a shell, cron and a service of the same user, and decides nothing but which Java there is.
_COMFORT = re.compile(r"\A(PATH|SHELL|USER|LOGNAME|LANG|LC_\w+|XDG_\w+)\Z")
# PySpark itself sets these in a process that uses Spark; the others choose Spark Connect, which has no keeper.
_NEVER_PASSED = (
    "SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_LOCAL_REMOTE",
    "SPARK_REMOTE", "SPARK_API_MODE", "SPARK_CONNECT_AUTHENTICATE_TOKEN",
)  # fmt: skip
_LOOPBACK = {"SPARK_LOCAL_HOSTNAME": "127.0.0.1", "SPARK_LOCAL_IP": "127.0.0.1"}


@dataclass(frozen=True, kw_only=True, slots=True)
class KeeperSettings:
    """Everything that a keeper is started with, and what each of its sessions gets."""

    master: str
    conf: Mapping[str, str]
    session_conf: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str]
    umask: int = 0o077  # of the JVM and its workers: files that runs write are to have it
    base: str = ""  # the folder of all keepers; empty: as this process's environment says
    idle_seconds: float = IDLE_SECONDS
    most_runs: int = MOST_RUNS
    memory_share: float = MEMORY_SHARE
    hang_seconds: float = HANG_SECONDS  # a JVM that does not answer for so long is killed

    @classmethod
    def from_project(cls, settings: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> "KeeperSettings":
        """The settings for a project's `spark:` mapping, with `idle` in seconds."""
        master = str(settings.get("master") or DEFAULT_MASTER)
        conf = {str(key): _text(value) for key, value in (settings.get("conf") or {}).items()}
        idle = settings.get("idle")
        return cls(
            master=master,
            conf={key: value for key, value in conf.items() if not is_session_setting(key)},
            session_conf={key: value for key, value in conf.items() if is_session_setting(key)},
            environment=build_environment(os.environ if environ is None else environ, master=master, conf=conf),
            umask=own_umask(),
            base="" if environ is None else runtime_folder(environ),
            idle_seconds=IDLE_SECONDS if idle is None else float(idle),
        )

    @property
    def key(self) -> str:
        """The same for all who can share one driver, and for nobody else."""
        path, version = installed_pyspark()
        about = {
            "uid": os.getuid(), "python": [sys.executable, sys.prefix], "pyspark": [path, version],
            "opendataflow": __version__, "master": self.master, "conf": dict(self.conf),
            "environment": {name: text for name, text in self.environment.items() if not _COMFORT.match(name)},
            "java": shutil.which("java", path=self.environment.get("PATH")), "umask": self.umask,
        }  # fmt: skip
        return hashlib.sha256(json.dumps(about, sort_keys=True).encode("utf-8", "surrogateescape")).hexdigest()[:20]

    @property
    def folder(self) -> str:
        """The keeper's folder, whether or not it exists. Raises ConfigurationError as `runtime_folder` does."""
        return os.path.join(self.base or runtime_folder(), f"spark-{self.key}")

    def to_json(self) -> str:
        """What the keeper reads; its environment is not in it."""
        return json.dumps({
            "master": self.master, "conf": dict(self.conf), "idle_seconds": self.idle_seconds,
            "most_runs": self.most_runs, "memory_share": self.memory_share, "umask": self.umask,
            "hang_seconds": self.hang_seconds,
        })  # fmt: skip

    @classmethod
    def read(cls, folder: str) -> "KeeperSettings":
        with open(os.path.join(folder, SETTINGS_FILE), encoding="utf-8") as file:
            return cls(environment=dict(os.environ), **json.load(file))


def own_umask() -> int:
    """The umask of this process, without changing it for a moment as `os.umask` would."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        return next((int(line.split()[1], 8) for line in file if line.startswith("Umask:")), 0o077)


def build_environment(environ: Mapping[str, str], *, master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """The environment of a keeper, its JVM and its Python workers: nothing of a run, no secret of ours."""
    built = {
        name: value
        for name, value in environ.items()
        if _PASSED.match(name) and name not in _NEVER_PASSED and not is_platform_variable(name)
    }
    if "PYTHONPATH" in built:  # relative entries are relative to the caller's folder, which is not the keeper's
        entries = [entry for entry in built.pop("PYTHONPATH").split(os.pathsep) if os.path.isabs(entry)]
        if entries:
            built["PYTHONPATH"] = os.pathsep.join(entries)
    built.setdefault("PYSPARK_PYTHON", conf.get("spark.pyspark.python", sys.executable))
    built["PYTHONSAFEPATH"] = "1"
    return built if not master.startswith("local") else _LOOPBACK | built


def runtime_folder(environ: Mapping[str, str] | None = None) -> str:
    """The folder of all keepers of this user, made if missing; it must be for this user alone.

    Raises ConfigurationError when somebody else owns it or can enter it.
    """
    base = runtime_path(environ)
    try:
        os.makedirs(os.path.dirname(base), exist_ok=True)
        try:
            os.mkdir(base, 0o700)
        except FileExistsError:
            pass
        seen = os.lstat(base)
    except OSError as error:
        raise ConfigurationError(
            f"{base} cannot be used for Spark's keeper: {error.strerror}; set {RUNTIME_VARIABLE} to another folder"
        ) from error
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.getuid():
        raise ConfigurationError(
            f"{base} is not a folder of this user, so Spark's keeper cannot use it; "
            f"remove it, or set {RUNTIME_VARIABLE} to another folder"
        )
    if seen.st_mode & _OTHERS:
        raise ConfigurationError(
            f"other users can enter {base} (mode {stat.S_IMODE(seen.st_mode):04o}), so Spark's keeper does not use it; "
            f"`chmod 700 {base}`"
        )
    return base


def runtime_path(environ: Mapping[str, str] | None = None) -> str:
    """Where the folder of all keepers is, or would be, as this environment says (without one: this process's)."""
    environ = os.environ if environ is None else environ
    chosen, session = environ.get(RUNTIME_VARIABLE), environ.get("XDG_RUNTIME_DIR")
    if chosen:
        return os.path.abspath(chosen)
    if session and os.path.isdir(session):
        return os.path.join(session, "opendataflow")
    return os.path.join(environ.get("TMPDIR") or tempfile.gettempdir(), f"opendataflow-{os.getuid()}")


def installed_pyspark() -> tuple[str, str]:
    """Where pyspark is and which version, without importing it. Raises ConfigurationError when it is missing."""
    found = find_spec("pyspark")
    if found is None or not found.origin:
        raise ConfigurationError("pyspark is not installed; `pip install 'opendataflow[spark]'` installs it")
    folder = os.path.dirname(found.origin)
    try:
        with open(os.path.join(folder, "version.py"), encoding="utf-8") as file:
            version = re.search(r'__version__[^"\']*["\']([^"\']+)', file.read())
    except OSError:
        version = None
    return os.path.realpath(folder), version[1] if version else ""


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

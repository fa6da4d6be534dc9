"""What `pip install opendataflow` leaves out, and the extra of the package that brings it.

The wrapper (RunJob and the commands over a SQLite store) needs nothing of this.
"""

from opendataflow.errors import ConfigurationError

EXTRAS: dict[str, tuple[str, str]] = {  # module: the extra, and what needs it
    "pyspark": ("spark", "pipelines need it"),
    "pandas": ("spark", "pipelines need it"),
    "numpy": ("spark", "pipelines need it"),
    "pyarrow": ("files", "checks of rows, previews and buckets need it"),
    "psycopg": ("postgres", "a store in PostgreSQL needs it"),
    "adbc_driver_manager": ("spark", "SQL sources and destinations need it"),
    "adbc_driver_sqlite": ("spark", "tables of SQLite need it"),
    "sqlglot": ("spark", "SQL of other databases needs it"),
    "adbc_driver_postgresql": ("postgres", "tables of PostgreSQL need it"),
    "adbc_driver_bigquery": ("bigquery", "tables of BigQuery need it"),
    "grpc": ("connect", "Spark Connect needs it"),
    "grpc_status": ("connect", "Spark Connect needs it"),
    "google.protobuf": ("connect", "Spark Connect needs it"),
    "apprise": ("alerts", "alerts need it"),
    "confluent_kafka": ("kafka", "streams of Kafka topics need it"),
    **dict.fromkeys(
        ("argon2", "fastapi", "httptools", "jinja2", "msgspec", "multipart", "prometheus_client", "python_multipart",
         "starlette", "uvicorn", "uvloop"),
        ("server", "`dataflow serve` needs it"),
    ),
}  # fmt: skip


def pip_command(extra: str) -> str:
    return f"pip install 'opendataflow[{extra}]'"


def find_missing(error: ModuleNotFoundError) -> ConfigurationError | None:
    """What to tell somebody whose installation has no such module; None when no extra brings it."""
    name = error.name or ""
    found = EXTRAS.get(name) or EXTRAS.get(name.partition(".")[0])
    if found is None:
        return None
    extra, why = found
    return ConfigurationError(f"{name.partition('.')[0]} is not installed; {why}: {pip_command(extra)}")


def require(*modules: str) -> None:
    """Raise ConfigurationError when one of the modules is not installed. None of them is loaded."""
    from importlib.util import find_spec

    for name in modules:
        if find_spec(name) is None:
            raise find_missing(ModuleNotFoundError(name=name)) or ConfigurationError(f"{name} is not installed")

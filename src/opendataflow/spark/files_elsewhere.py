"""Files of file systems that Spark reaches and the runner may not: `hdfs://`, `abfss://`, and others with a scheme.

Asked of Hadoop's own file system in the driver, which has read and written them; through a Spark Connect server, of
Arrow's, where this machine has what that needs.
"""

from urllib.parse import quote

from pyspark.sql import SparkSession

from opendataflow.spark.connect import is_connect
from opendataflow.spark.jvm import list_files
from opendataflow.storage.files import Found, quick_fingerprint


def find(spark: SparkSession, location: str) -> Found | None:
    """The data files there; None when they cannot be listed from here."""
    files = _by_arrow(location) if is_connect(spark) else list_files(spark, location)
    if files is None:
        return None
    return Found(tuple(sorted(one for one in files if not any(part[0] in "_." for part in one[0].split("/") if part))))


def _by_arrow(location: str) -> list[tuple[str, int, int]] | None:
    import pyarrow as pa
    from pyarrow import fs

    try:
        system, path = fs.FileSystem.from_uri(quote(location, safe=":/@="))
        listed = system.get_file_info(fs.FileSelector(path, recursive=True))
    except (OSError, pa.ArrowException):  # no libhdfs, no credentials: the files are there, but not for this machine
        return None
    return [
        (one.path.removeprefix(path).lstrip("/"), one.size, one.mtime_ns)
        for one in listed
        if one.type == fs.FileType.File
    ]


def fingerprint(found: Found) -> str:
    """As files have everywhere: `<names, sizes and times>/<content>`. The content is not read."""
    return f"{quick_fingerprint(found)}/-"

"""Spark's classes, kept ready for its next start.

Most of the time until a new Spark works goes into finding, checking and linking some fifteen thousand classes. Java
can keep them in a file that it maps into memory instead (class data sharing). The file is made once for a machine, by
`dataflow prepare-spark`; where there is none, or Java or Spark was replaced since, Spark starts as it always does.
"""

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile

import pyspark

from opendataflow.errors import ConfigurationError

_MOST_SAID = 2000
_ONCE = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")  # it runs but once: compile less


def archive_path() -> str:
    """Where the classes of this Java and this Spark are kept, whether or not they are yet."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    about = f"{_java_release()}\n{pyspark.__version__}\n{os.path.dirname(pyspark.__file__)}"
    key = hashlib.sha256(about.encode()).hexdigest()[:16]
    return os.path.join(base, "opendataflow", f"spark-{pyspark.__version__}-{key}.jsa")


def java_options() -> str:
    """What to tell Java so that it takes the classes from the file; nothing when there is no file."""
    path = archive_path()
    # Owned by us alone: Java trusts what is in it. With `auto`, a file that does not fit is passed over.
    with contextlib.suppress(OSError):
        seen = os.stat(path)
        if seen.st_uid == os.getuid() and not seen.st_mode & 0o022:
            return f'"-XX:SharedArchiveFile={path}" -Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off'
    return ""


def make_archive() -> str:
    """Make the file anew, in a Spark of its own, and give its path; raise ConfigurationError if that does not work."""
    path = archive_path()
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="prepare-", dir=os.path.dirname(path)) as folder:
        made = os.path.join(folder, "classes.jsa")
        done = subprocess.run(
            [sys.executable, "-m", "opendataflow.spark.archive", made, folder],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0 or not os.path.exists(made):
            said = done.stdout.strip()[-_MOST_SAID:] or f"it ended with {done.returncode}"
            raise ConfigurationError(f"Spark could not be prepared, and starts as before: {said}")
        os.chmod(made, 0o600)
        os.replace(made, path)
    return path


def _java_release() -> str:
    """Which Java it is: the text of the `release` file that every one carries, or its path."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java") or ""
    java = os.path.realpath(java)
    try:
        with open(os.path.join(os.path.dirname(java), "..", "release"), encoding="utf-8") as file:
            return f"{java}\n{file.read()}"
    except OSError:
        return java


def _exercise(archive: str, folder: str) -> None:
    """Use what pipelines use, so that its classes are known; Java writes the file when it ends."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    from opendataflow.spark.jvm import find_process
    from opendataflow.spark.session import start_session

    options = f"{' '.join(_ONCE)} -XX:ArchiveClassesAtExit={archive}"
    settings = {"conf": {"spark.driver.extraJavaOptions": options}}
    spark = start_session(settings, name="prepare", scratch=folder, prepared=False)
    process = find_process()
    rows = spark.range(100).select(
        F.col("id").cast("string").alias("key"), (F.col("id") % 7).alias("group"),
        F.col("id").cast("decimal(10,2)").alias("amount"), F.current_timestamp().alias("at"),
        F.current_date().alias("day"),
    )  # fmt: skip
    for kind in ("csv", "json", "parquet", "orc"):
        place = os.path.join(folder, kind)
        seen = Observation()
        observed = rows.observe(
            seen, F.count("*").alias("rows"), F.count_if(F.col("key").rlike("^[0-9]+$")).alias("ok")
        )
        observed.coalesce(1).write.option("header", True).format(kind).save(place)
        _ = seen.get
        read = spark.read.schema(rows.schema).option("header", True).format(kind).load(place)
        totals = read.groupBy("group").agg(F.sum("amount").alias("total"), F.max("day").alias("last"))
        joined = read.join(totals, "group").withColumn("named", F.upper(F.concat("key", F.lit("-"))))
        joined.filter("amount > 3").orderBy("key").write.option("header", True).csv(
            os.path.join(folder, f"{kind}-total")
        )
    spark.read.option("header", True).option("inferSchema", True).csv(os.path.join(folder, "csv")).schema  # noqa: B018
    spark.read.text(os.path.join(folder, "csv")).mapInPandas(lambda pages: pages, "value string").write.text(
        os.path.join(folder, "text")
    )
    spark.createDataFrame([("1", 2)], "key string, n int").dropDuplicates().write.csv(os.path.join(folder, "rows"))
    spark.stop()
    if process is not None and process.stdin is not None:
        process.stdin.close()
        process.wait()


if __name__ == "__main__":
    _exercise(sys.argv[1], sys.argv[2])

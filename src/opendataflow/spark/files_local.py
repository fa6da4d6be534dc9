"""Files on this machine, without Spark: which ones a chunk has, how large they are, and that they stay."""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from opendataflow.errors import JobFailed
from opendataflow.spark.spec import Place

OWN_OPTIONS = ("files",)  # of a dataset's `options`, those that are ours, not Spark's
_GLOB = str.maketrans({char: f"\\{char}" for char in "{}[]*?\\"})


def data_files(location: str) -> Iterator[str]:
    """Data files of a chunk, as Spark sees them: hidden ones (`_SUCCESS`, checksums, `_runs`) are not."""
    if not os.path.isdir(location):
        yield location
        return
    for folder, subfolders, names in os.walk(location):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith(("_", ".")))
        yield from (os.path.join(folder, name) for name in sorted(names) if not name.startswith(("_", ".")))


def require_files(place: Place) -> list[str]:
    """The data files of a local place; raise JobFailed with the path of what is missing or cannot be read."""
    found: list[str] = []
    for location in place.locations:
        try:
            os.stat(location)
        except OSError as error:
            raise JobFailed(f"{place.datasetid}: {location} cannot be read: {error.strerror}") from error
        files = list(data_files(location))
        unreadable = next((path for path in files if not os.access(path, os.R_OK)), None)
        if unreadable is not None:
            raise JobFailed(f"{place.datasetid}: {unreadable} cannot be read: {os.strerror(13)}")
        found += files
    return found


def is_within(path: str, location: str) -> bool:
    """True for the location itself and what is below it."""
    return path == location or path.startswith(location.rstrip("/") + "/")


def escaped(paths: Sequence[str]) -> str | list[str]:
    """Paths for Spark's readers: a dataid may hold characters that a path pattern gives a meaning."""
    plain = [path.translate(_GLOB) for path in paths]
    return plain[0] if len(plain) == 1 else plain


def total_bytes(places: Sequence[Place], *, most: int | None = None) -> int | None:
    """Bytes of all files, counted until there are more than `most`; None when some are not on this machine."""
    total = 0
    for place in places:
        if not place.is_local:
            return None
        for location in place.locations:
            for path in data_files(location):
                total += os.path.getsize(path)
                if most is not None and total > most:
                    return total
    return total


def sync(location: str) -> None:
    """Spark leaves what it wrote in the page cache; a chunk that is READY must survive a power cut."""
    folders = {location, os.path.dirname(location)}
    for path in data_files(location):
        fsync(path)
        folders.add(os.path.dirname(path))
    for folder in folders:
        fsync(folder)


def fsync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# Options ----------------------------------------------------------------------------------------------------------
def merged(defaults: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Spark's options: ours, and the dataset's over them; `multiline` is `multiLine` to Spark, so it is here."""
    given = {name.lower() for name in options}
    kept = {name: value for name, value in defaults.items() if name.lower() not in given}
    if "quote" in given and "escape" in kept:
        kept["escape"] = option(options, "quote")  # a quote in quotes is doubled, whatever the quote is
    return kept | {name: value for name, value in options.items() if name.lower() not in OWN_OPTIONS}


def option(options: Mapping[str, Any], *names: str) -> Any:
    """The value of an option under the first of its names that is there; None when none is."""
    values = {name.lower(): value for name, value in options.items()}
    return next((values[name.lower()] for name in names if values.get(name.lower()) is not None), None)


def is_true(value: object) -> bool:
    return str(value).lower() == "true"

"""What a project has published, as its readers find it, compared with what an oracle told."""

import csv
import os
from collections import Counter
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from oracle.told import Live, Sheet, Table, Text, Told
from support.projects import Project

READY = "SELECT datasetid, dataid FROM datastatus WHERE locktype = 'OUT' AND status = 'READY'"
PUBLISHED = "SELECT name, dataid FROM history WHERE kind = 'chunk' AND new_status = 'READY' AND old_status = 'RUNNING'"
JOBS = "SELECT jobid, dataid, status FROM job_status WHERE status <> 'PENDING'"
LIVE = "SELECT location FROM chunk_location WHERE status = 'READY' AND datasetid = '{}'"


def asked(project: Project, query: str) -> list[tuple[str, ...]]:
    return [tuple(row.values()) for row in project.json("sql", query)]


# Files ----------------------------------------------------------------------------------------------------------------
def visible(folder: Path) -> set[str]:
    """What somebody sees who looks into the folder: files, and links to folders; hidden names apart."""
    found = set()
    for place, folders, files in os.walk(folder):
        here = Path(place).relative_to(folder)
        links = [name for name in folders if (Path(place) / name).is_symlink()]
        found |= {str(here / name) for name in (*files, *links) if not name.startswith(("_", "."))}
        folders[:] = [name for name in folders if not name.startswith(("_", "."))]
    return found


def read_sheet(path: Path) -> list[tuple[str, ...]]:
    with open(path, encoding="utf-8", newline="") as file:
        return [tuple(row) for row in csv.reader(file)]


def read_tables(folders: list[Path]) -> tuple[set[tuple[tuple[str, str], ...]], Counter[tuple[object, ...]]]:
    """The columns with their types, as each file has them, and how often each row is there."""
    columns, rows = set(), Counter[tuple[object, ...]]()
    for folder in folders:
        for file in sorted(folder.glob("[!_.]*")):
            table: pa.Table = parquet.ParquetFile(file).read()
            columns.add(tuple((one.name, str(one.type)) for one in table.schema))
            rows.update(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return columns, rows


def assert_rows(folders: list[Path], wanted: Table | Live) -> None:
    columns, rows = read_tables(folders)
    assert columns == {tuple(wanted.columns.items())}
    expected = Counter(wanted.rows)
    wrong, missing = rows - expected, expected - rows
    few = f"{wrong.total()} rows too many: {list(wrong)[:3]}; {missing.total()} missing: {list(missing)[:3]}"
    assert rows == expected, f"{folders[0]}: {few}"


# Against the oracle ---------------------------------------------------------------------------------------------------
def assert_chunks(project: Project, told: Told, ready: set[tuple[str, ...]]) -> set[str]:
    """Every chunk that is READY is what the loop made, value by value; returns the paths at which they lie."""
    by_path: dict[str, list[Text | Sheet | Table]] = {}
    for key, chunk in told.made.items():
        if key in ready:
            by_path.setdefault(chunk.path, []).append(chunk)
    for path, chunks in by_path.items():
        place = project.folder / path
        match chunks:
            case [Table() as table]:
                assert_rows([place], table)
            case [Text(text=text)]:
                assert place.read_text(encoding="utf-8") == text
            case [Sheet(columns=columns), *_]:
                rows = [row for chunk in chunks for row in chunk.rows]
                assert read_sheet(place) == [columns, *rows], place
    return set(by_path)


def assert_as_told(project: Project, told: Told, before: set[str]) -> None:
    """All of it is there exactly once, right to the last value, and nothing else is."""
    jobs = {(job, dataid): "COMPLETE" for job, dataids in told.jobs.items() for dataid in dataids}
    found = {(job, dataid): status for job, dataid, status in asked(project, JOBS) if job in told.jobs}
    assert found == jobs
    live = {stream.dataset for stream in told.streams.values()}
    published = Counter(key for key in asked(project, PUBLISHED) if key[0] not in live)
    assert published == dict.fromkeys(told.made, 1)
    ready = set(asked(project, READY))
    made_here = {key for key in ready if key[0] in {dataset for dataset, _ in told.made}}
    assert made_here == set(told.made)
    paths = assert_chunks(project, told, ready)
    assert {path for path in visible(project.folder) - before if not _is_of_a_stream(path, told)} == paths
    for stream in told.streams.values():
        places = [Path(location) for (location,) in asked(project, LIVE.format(stream.dataset))]
        assert_rows(places, stream)


def _is_of_a_stream(path: str, told: Told) -> bool:
    """True in the folder of its batches, and in that of the slots which they are sealed into."""
    folders = {name for live in told.streams.values() for name in (live.dataset, live.dataset.removesuffix("_live"))}
    return not folders.isdisjoint(Path(path).parts)

"""The fingerprint of a chunk: what stays the same when the same data is made again."""

from pathlib import Path

from opendataflow.storage.files import find_files, fingerprint, is_same

FIRST, SECOND = "6f1b2c3d-0a1b-4c2d-8e3f-0123456789ab", "00000000-1111-4222-8333-444444444444"


def content(folder: Path) -> str:
    return fingerprint(str(folder), find_files(str(folder))).partition("/")[2]


def written(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def test_the_names_that_spark_gives_its_files_do_not_count(tmp_path: Path) -> None:
    one = written(
        tmp_path / "1", {f"part-00000-{FIRST}-c000.csv": "a", f"part-00001-{FIRST}-c000.csv": "b", "_SUCCESS": ""}
    )
    other = written(tmp_path / "2", {f"part-00003-{SECOND}-c000.csv": "b", f"part-00007-{SECOND}-c000.csv": "a"})
    assert content(one) == content(other)
    (other / f"part-00007-{SECOND}-c000.csv").write_text("A")
    assert content(one) != content(other)
    third = written(tmp_path / "3", {f"part-00000-{FIRST}-c000.csv": "ab"})
    assert content(one) != content(third)


def test_names_that_somebody_chose_count(tmp_path: Path) -> None:
    one = written(tmp_path / "1", {"part-1.csv": "a", "part-2.csv": "b"})
    other = written(tmp_path / "2", {"part-1.csv": "b", "part-2.csv": "a"})
    assert content(one) != content(other)
    assert content(one) == content(written(tmp_path / "3", {"part-1.csv": "a", "part-2.csv": "b"}))


def test_what_spark_wrote_is_still_the_same_after_a_copy(tmp_path: Path) -> None:
    one = written(tmp_path / "1", {f"part-00000-{FIRST}-c000.csv": "a"})
    known = fingerprint(str(one), find_files(str(one)))
    copy = written(tmp_path / "2", {f"part-00000-{FIRST}-c000.csv": "a"})
    assert is_same(str(copy), find_files(str(copy)), known)
    (copy / "more.csv").write_text("x")
    assert not is_same(str(copy), find_files(str(copy)), known)

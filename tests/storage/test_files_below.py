"""What leaves through the server or a command is below the root when it is opened, not only when it was looked at."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest
from pyarrow import orc, parquet

from opendataflow.checks.chunk_reader import ChunkFiles, Unreadable
from opendataflow.domain.dataset import Dataset
from opendataflow.errors import Refused
from opendataflow.operations import preview
from opendataflow.operations.preview import Shown, open_files, read_rows
from opendataflow.server.downloads import download, files_of
from opendataflow.storage.files import find_inside

SECRET = "a-secret-of-somebody-else"


def _csv(file: Path, text: str) -> None:
    file.write_text(f"name\n{text}\n")


def _packed(file: Path, text: str) -> None:
    file.write_bytes(gzip.compress(f"name\n{text}\n".encode()))


def _json(file: Path, text: str) -> None:
    file.write_text(f'{{"name": "{text}"}}\n')


def _text(file: Path, text: str) -> None:
    file.write_text(f"{text}\n")


def _parquet(file: Path, text: str) -> None:
    parquet.write_table(pyarrow.table({"name": [text]}), file)


def _orc(file: Path, text: str) -> None:
    orc.write_table(pyarrow.table({"name": [text]}), file)


WRITERS = {"csv": _csv, "csv.gz": _packed, "json": _json, "txt": _text, "parquet": _parquet, "orc": _orc}
Swap = Callable[[], None]


@pytest.fixture(params=WRITERS)
def chunk(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Swap]:
    """A chunk of two files, and what replaces the second by a link to a secret that is no worse than they are."""
    suffix, write = request.param, WRITERS[request.param]
    place, secret = tmp_path / "root/orders", tmp_path / f"key.{suffix}"
    place.mkdir(parents=True)
    one, two = place / f"1.{suffix}", place / f"2.{suffix}"
    for file, text in ((one, "good"), (two, "better"), (secret, SECRET)):
        write(file, text)

    def swap() -> None:
        two.unlink()
        two.symlink_to(secret)

    return place, swap


def test_a_download_is_broken_off(chunk: tuple[Path, Swap]) -> None:
    place, swap = chunk
    parts = download("orders", files_of(str(place), root=str(place.parent), told="orders")).parts
    sent = next(parts)
    swap()
    with pytest.raises(OSError, match="it is not below"):
        sent += b"".join(parts)
    assert SECRET.encode() not in sent


def test_a_download_of_one_file_sends_nothing(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "key").write_text(SECRET)
    (tmp_path / "root/one").write_text("good")
    found = download("one", files_of(str(tmp_path / "root/one"), root=str(tmp_path / "root"), told="one"))
    (tmp_path / "root/one").unlink()
    (tmp_path / "root/one").symlink_to(tmp_path / "key")
    with pytest.raises(OSError, match="it is not below"):
        next(found.parts)


def test_rows_are_read_up_to_such_a_file(chunk: tuple[Path, Swap]) -> None:
    place, swap = chunk
    root = str(place.parent)
    found = find_inside(str(place), root=root, told="orders")
    files = ChunkFiles(str(place), format_=None, options={}, schema=None, found=found, root=root)
    batches, openings = files.batches({"name", "value"}), files.openings()
    read = [next(batches), next(openings)]
    swap()
    with pytest.raises(Unreadable, match="it is not below"):
        read += list(batches)
    if files.format not in ("json", "text"):  # of these nothing is opened before the rows
        with pytest.raises(Unreadable, match="it is not below"):
            read += list(openings)
    assert "good" in str(read)
    assert SECRET not in str(read)


def test_a_preview_shows_nothing_of_it(chunk: tuple[Path, Swap], monkeypatch: pytest.MonkeyPatch) -> None:
    place, swap = chunk

    def open_and_swap(*args: object, **kwargs: object) -> ChunkFiles:
        files = open_files(*args, **kwargs)  # type: ignore[arg-type]
        swap()
        return files

    monkeypatch.setattr(preview, "open_files", open_and_swap)
    shown = Shown("a", "READY", None, str(place), None, None, None, None)
    with pytest.raises(Refused, match="it is not below") as refused:
        read_rows(Dataset("shop", "orders"), shown, root=str(place.parent), rows=20, columns=None)
    assert SECRET not in str(refused.value)

"""Prepared classes are used only when they are ours alone, and nobody misses them where there are none."""

from pathlib import Path

import pytest

from opendataflow.spark.archive import archive_path, java_options


def test_classes_that_others_could_have_written_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert java_options() == ""
    path = Path(archive_path())
    path.parent.mkdir()
    path.touch(mode=0o600)
    assert f"-XX:SharedArchiveFile={path}" in java_options()
    path.chmod(0o622)
    assert java_options() == ""

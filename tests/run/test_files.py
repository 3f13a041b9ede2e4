"""Files that are read while they are written."""

from pathlib import Path

import pytest

from batonbus.run.files import write_whole


def test_a_file_is_replaced_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    for content in (b"one", b"two"):
        write_whole(tmp_path / "file", content)
        assert (tmp_path / "file").read_bytes() == content
    assert [it.name for it in tmp_path.iterdir()] == ["file"]


def test_what_cannot_be_put_in_place_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(OSError, match="file"):
        write_whole(tmp_path / "file", b"one")
    assert [it.name for it in tmp_path.iterdir()] == ["file"]

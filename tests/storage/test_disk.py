"""The one write-then-rename: whole or not at all, and nothing left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from primavista.errors import FileError, InputError, file_errors
from primavista.storage.disk import replacing, write_atomically


def test_the_parts_are_written_one_after_the_other_and_replace_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"before")
    write_atomically(path, b"one ", memoryview(b"two"))
    assert path.read_bytes() == b"one two"
    assert list(tmp_path.iterdir()) == [path]


def _fail_half_way(path: Path, error: BaseException, folder: bool) -> None:
    with replacing(path) as part:
        if folder:
            part.mkdir()
            (part / "1").write_bytes(b"half")
        else:
            part.write_bytes(b"half")
        raise error


@pytest.mark.parametrize("error", [OSError("full"), KeyboardInterrupt(), ValueError("bad")])
@pytest.mark.parametrize("folder", [False, True])
def test_a_block_that_fails_leaves_what_was_there(
    tmp_path: Path, error: BaseException, folder: bool
) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"before")
    with pytest.raises(type(error)):
        _fail_half_way(path, error, folder)
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_folders_and_suffixes(tmp_path: Path) -> None:
    with replacing(tmp_path / "set") as part:
        part.mkdir()
        (part / "1.png").write_bytes(b"1")
    assert (tmp_path / "set" / "1.png").read_bytes() == b"1"
    with replacing(tmp_path / "a.mp4", keep_suffix=True) as part:
        assert part.suffix == ".mp4"
        assert part.name.startswith(".a.")
        part.write_bytes(b"video")
    assert (tmp_path / "a.mp4").read_bytes() == b"video"


def test_an_error_of_the_system_names_the_file_and_keeps_its_cause() -> None:
    said = r"^cannot read mug\.pv: No such file\. Check it$"
    advised = file_errors("read", "mug.pv", "Check it")
    with pytest.raises(FileError, match=said) as found, advised:
        raise FileNotFoundError(2, "No such file")
    assert isinstance(found.value.__cause__, FileNotFoundError)
    with pytest.raises(InputError, match="ours"), file_errors("read", "mug.pv"):
        raise InputError("ours")

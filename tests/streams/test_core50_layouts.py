"""CORe50's other shapes on disk.

Small folders of our own, lists that do not fit, damage.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image

from primavista.errors import FileError, InputError
from primavista.streams.core50 import CORe50, is_core50
from primavista.streams.open import stream as open_stream

Key = tuple[int, int]


def name(key: Key, number: int, ending: str = "png") -> str:
    return f"s{key[0]}/o{key[1]}/C_{key[0]:02d}_{key[1]:02d}_{number:03d}.{ending}"


def picture(key: Key, size: int = 4) -> Image.Image:
    return Image.new("RGB", (size, size), (key[0], key[1], 7))


def small(
    root: Path, ending: str = "png", objects: int = 10, frames: int = 3, sessions: int = 11
) -> Path:
    for session in range(1, sessions + 1):
        for thing in range(1, objects + 1):
            (root / f"s{session}" / f"o{thing}").mkdir(parents=True)
            for number in range(frames):
                picture((session, thing), 16).save(root / name((session, thing), number, ending))
    return root


def test_other_layouts_of_ours(tmp_path: Path) -> None:
    data = CORe50(small(tmp_path, "jpg", objects=12, frames=2), size=8)
    assert data.name == "core50 (264 of 164,866 frames)"
    assert data.frames[torch.tensor([0, 5])].shape == (2, 8, 8, 3)
    assert len(data.train) == 96
    assert sum(map(len, data.test)) == 4  # 72 test frames, every 20th
    assert open_stream(data, "nicv2-94", 0).source == "generated"


def test_lists_that_do_not_fit_are_named(tmp_path: Path) -> None:
    data = CORe50(small(tmp_path / "images"))
    home = tmp_path / "NI_inc" / "run0"
    home.mkdir(parents=True)
    whole = {o: "".join(f"{name((1, o), n)} {o - 1}\n" for n in range(3)) for o in range(1, 11)}
    for number in range(8):
        (home / f"train_batch_{number:02d}_filelist.txt").write_text(whole[number + 1])
    assert len(open_stream(data, "ni", 0)) == 8
    cases = {
        "s1/o1/C_01_01_000.png 0\n": "lists 1 frames of s1/o1.*set has 3",
        whole[1] + name((1, 1), 0) + " 0\n": "lists 4 frames of s1/o1, some twice",
        whole[2]: "twice on s1/o2",
        whole[1].replace("s1/o1", "s2/o1"): "is not the name",
        "../../etc/passwd 0\n": "is not the name",
        "": "names no frame",
        whole[1].replace("s1/o1/C_01_01", "s1/o44/C_01_44"): "s1/o44",
        "".join(
            f"{name((3, 1), n)} 0\n" for n in range(3)
        ): "s3/o1, which is not among the training",
    }
    for text, word in cases.items():
        (home / "train_batch_00_filelist.txt").write_text(text)
        with pytest.raises(FileError, match=word):
            open_stream(data, "ni", 0)
    (home / "train_batch_00_filelist.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(FileError, match="is not a text"):
        open_stream(data, "ni", 0)
    (home / "train_batch_00_filelist.txt").unlink()
    with pytest.raises(FileError, match="no train_batch_00"):
        open_stream(data, "ni", 0)
    with pytest.raises(FileError, match="run3 is missing"):
        open_stream(data, "ni", 3)


def test_folders_that_are_not_core50(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="how to get CORe50"):
        CORe50(tmp_path)
    with pytest.raises(FileError, match="no folder"):
        CORe50(tmp_path / "nothing")
    with pytest.raises(InputError, match="test must be"):
        CORe50(tmp_path, test="names")  # type: ignore[arg-type]
    small(tmp_path, sessions=1, objects=1)
    (tmp_path / "s1" / "o1" / "Thumbs.db").write_bytes(b"x")
    assert CORe50(tmp_path).test == ()
    (tmp_path / "s1" / "o1" / "C_01_02_000.png").write_bytes(b"x")
    with pytest.raises(FileError, match="wrong folder"):
        CORe50(tmp_path)


def test_damaged_images_are_named(tmp_path: Path) -> None:
    data = CORe50(small(tmp_path, objects=1))
    target = tmp_path / name((1, 1), 2)
    target.write_bytes(target.read_bytes()[:40])
    with pytest.raises(FileError, match=r"C_01_01_002\.png"):
        data.frames[torch.tensor([2])]
    target.unlink()
    with pytest.raises(FileError, match=r"C_01_01_002\.png"):
        data.frames[torch.tensor([2])]
    (tmp_path / "s1" / "o1" / "C_01_01_1.jpg").write_bytes(b"")
    with pytest.raises(FileError, match="twice"):
        CORe50(tmp_path)


def test_the_detector_knows_what_the_loader_knows(tmp_path: Path) -> None:
    for place in ("plain", "a/core50_128x128", "b/core50_350x350", "c/core50_32x32"):
        small(tmp_path / place, "jpg", objects=1, frames=1, sessions=3)
    for place in ("plain", "a", "b", "c"):
        assert is_core50(tmp_path / place)
        assert len(CORe50(tmp_path / place).train) == 2
    (tmp_path / "own" / "s1" / "o1").mkdir(parents=True)
    (tmp_path / "own" / "s1" / "o1" / "C_photo.png").write_bytes(b"x")
    assert not is_core50(tmp_path / "own")
    assert not is_core50(tmp_path / "nowhere")

"""CORe50's other shapes on disk.

Small folders of our own, the array of images, lists that do not fit, damage.
"""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from primavista.errors import FileError, InputError
from primavista.streams.core50.dataset import CORe50
from primavista.streams.core50.image_array import map_npz
from primavista.streams.core50.layout import is_core50
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
    (tmp_path / "nicv2_official_orders.json").write_text(
        json.dumps({"orders": {"79": [[[[1, 13]]] * 79]}})
    )
    with pytest.raises(FileError, match="not among the training sessions"):
        open_stream(data, "nicv2-79", 0)


def test_lists_that_do_not_fit_are_named(tmp_path: Path) -> None:
    data = CORe50(small(tmp_path / "images"))
    home = tmp_path / "NI_inc" / "run0"
    home.mkdir(parents=True)
    whole = {o: "".join(f"{name((1, o), n)} {o - 1}\n" for n in range(3)) for o in range(1, 11)}
    for number in range(8):
        (home / f"train_batch_{number:02d}_filelist.txt").write_text(whole[number + 1])
    assert len(open_stream(data, "ni", 0)) == 8
    cases = {
        "s1/o1/C_01_01_000.png 0\n": "lists 1 frames of s1/o1",
        whole[1] + name((1, 1), 0) + " 0\n": "lists 4 frames",
        whole[2]: "twice on s1/o2",
        whole[1].replace(" 0\n", " x\n"): "label",
        whole[1].replace("C_01_01_001.png 0", "C_01_01_001.png 4"): "label",
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


def packed(root: Path, compressed: bool) -> np.ndarray[Any, Any]:
    names = [name((s, o), n) for s in (2, 1, 3) for o in (1, 2) for n in (1, 0)]
    images = np.random.default_rng(0).integers(0, 255, (len(names), 6, 6, 3), np.uint8)
    (np.savez_compressed if compressed else np.savez)(root / "core50_imgs.npz", x=images)
    (root / "paths.pkl").write_bytes(pickle.dumps(names, 2))
    return images


@pytest.mark.parametrize("compressed", [False, True])
def test_the_array_is_mapped_in_place(tmp_path: Path, compressed: bool) -> None:
    images = packed(tmp_path, compressed)
    data = CORe50(tmp_path, test="full")
    assert isinstance(map_npz(tmp_path / "core50_imgs.npz"), np.memmap)
    assert (tmp_path / "core50_imgs.npy").exists() == compressed
    assert [(s.label, s.number) for s in data.train] == [(0, 1), (0, 2), (1, 1), (1, 2)]
    # s1/o1 frames 0 and 1 are rows 5 and 4; s2/o2 rows 3 and 2; s3/o2 rows 11 and 10
    assert torch.equal(data.frames[torch.tensor([0, 1])], torch.from_numpy(images[[5, 4]]))
    assert torch.equal(data.frames[torch.tensor([6, 7])], torch.from_numpy(images[[3, 2]]))
    assert torch.equal(data.frames[torch.tensor([10, 11])], torch.from_numpy(images[[11, 10]]))
    assert CORe50(tmp_path / "core50_imgs.npz", size=3).frames[torch.tensor([0])].shape == (
        1,
        3,
        3,
        3,
    )


def test_the_raw_array_of_the_authors_loader(tmp_path: Path) -> None:
    names = [name((s, 1), 0) for s in (1, 3)]
    images = np.random.default_rng(0).integers(0, 255, (2, 128, 128, 3), np.uint8)
    (tmp_path / "paths.pkl").write_bytes(pickle.dumps(names))
    images.tofile(tmp_path / "core50_imgs.bin")
    assert torch.equal(CORe50(tmp_path).frames[torch.tensor([1])][0], torch.from_numpy(images[1]))


def test_damaged_arrays_are_named(tmp_path: Path) -> None:
    packed(tmp_path, False)
    whole = (tmp_path / "core50_imgs.npz").read_bytes()
    (tmp_path / "core50_imgs.npz").write_bytes(whole[:-200])
    with pytest.raises(FileError, match="damaged"):
        CORe50(tmp_path)
    np.savez(tmp_path / "core50_imgs.npz", x=np.zeros((3, 6, 6, 3), np.uint8))
    with pytest.raises(FileError, match="12 x H x W x 3"):
        CORe50(tmp_path)
    np.savez(tmp_path / "core50_imgs.npz", x=np.array([{"a": 1}], object))
    with pytest.raises(FileError, match="object"):
        CORe50(tmp_path)
    np.savez(tmp_path / "core50_imgs.npz", y=np.zeros(3))
    with pytest.raises(FileError, match="no array"):
        CORe50(tmp_path)
    (tmp_path / "paths.pkl").unlink()
    with pytest.raises(FileError, match=r"paths\.pkl is missing"):
        CORe50(tmp_path)


def test_an_npz_whose_header_lies_about_its_size(tmp_path: Path) -> None:
    packed(tmp_path, False)
    sink = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        sink, {"descr": "|u1", "fortran_order": False, "shape": (12, 10**5, 10**5, 3)}
    )
    with zipfile.ZipFile(tmp_path / "core50_imgs.npz", "w") as archive:
        archive.writestr("x.npy", sink.getvalue())
    with pytest.raises(FileError, match="should have"):
        CORe50(tmp_path)


def test_folders_that_are_not_core50(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="primavista data core50"):
        CORe50(tmp_path)
    with pytest.raises(FileError, match="no folder"):
        CORe50(tmp_path / "nothing")
    with pytest.raises(InputError, match="labels"):
        CORe50(tmp_path, labels="names")  # type: ignore[arg-type]
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
    for ending in ("npz", "npy", "bin"):
        (tmp_path / ending).mkdir()
        (tmp_path / ending / f"core50_imgs.{ending}").write_bytes(b"")
        assert is_core50(tmp_path / ending)
    (tmp_path / "own" / "s1" / "o1").mkdir(parents=True)
    (tmp_path / "own" / "s1" / "o1" / "C_photo.png").write_bytes(b"x")
    assert not is_core50(tmp_path / "own")
    assert not is_core50(tmp_path / "nowhere")

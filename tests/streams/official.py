"""Writes small files in the official layouts of other data sets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "data-sets.md"


def write_list(home: Path, data: str, sessions: int = 1) -> None:
    """Write the list of a data set with the program of the guide."""
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text("utf-8"), re.S | re.M)
    (program,) = [block for block in blocks if f'Path("{data}")' in block]
    program = program.replace(f'Path("{data}"), 1', f'Path("{data}"), {sessions}')
    exec(program.replace(f'Path("{data}")', f"Path({str(home)!r})"), {})


# Four classes in two superclasses, numbered across as the official ones are.
COARSE = [1, 0, 1, 0]
FINE_NAMES = ["apple", "bear", "chair", "dolphin"]
COARSE_NAMES = ["animals", "things"]
EACH = {"train": 6, "test": 2}


def _cifar(name: str) -> dict[str, Any]:
    """One file: pictures of every class in turn, so that the classes are mixed."""
    fine = [i % 4 for i in range(4 * EACH[name])]
    draw = np.random.default_rng(len(name))
    return {
        "coarse_labels": [COARSE[label] for label in fine],
        "data": draw.integers(0, 256, (len(fine), 3072), np.uint8),
        "fine_labels": fine,
    }


CIFAR = {"train": _cifar("train"), "test": _cifar("test")}


def cifar_bytes(table: Mapping[str, Any]) -> bytes:
    """The binary version of one file: superclass, class and values of each picture."""
    rows = zip(table["coarse_labels"], table["fine_labels"], table["data"], strict=True)
    return b"".join(bytes([coarse, fine]) + data.tobytes() for coarse, fine, data in rows)


CIFAR_FILES = {
    "train.bin": cifar_bytes(CIFAR["train"]),
    "test.bin": cifar_bytes(CIFAR["test"]),
    "fine_label_names.txt": "\n".join(FINE_NAMES).encode() + b"\n",
    "coarse_label_names.txt": "\n".join(COARSE_NAMES).encode() + b"\n",
}


def write_cifar(root: Path, changed: Mapping[str, bytes] | None = None, sessions: int = 1) -> Path:
    """Write the folder that the official archive of CIFAR-100 unpacks to, and its list."""
    home = root / "cifar-100-binary"
    home.mkdir(parents=True, exist_ok=True)
    for name, content in (CIFAR_FILES | dict(changed or {})).items():
        (home / name).write_bytes(content)
    write_list(home, "cifar-100-binary", sessions)
    return home


def picture(path: Path, red: int, green: int = 0, blue: int = 0) -> None:
    """Write a plain picture, by whose colour it is recognised again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (16, 16), (red, green, blue)).save(path, "JPEG", quality=95)


CLEAR_CLASSES = ["baseball", "bus", "BACKGROUND"]


def write_clear(root: Path, train: str = "train") -> Path:
    """Write CLEAR: three classes in periods 1 to 3, two training and one test picture each.

    The colours of a picture are its period, its class, and whether it is for testing.
    """
    for part, count in ((train, 2), ("test", 1)):
        for period in (1, 2, 3):
            for label, name in enumerate(CLEAR_CLASSES):
                home = root / part / "labeled_images" / str(period) / name
                for i in range(count):
                    blue = 200 * (part == "test")
                    picture(home / f"{i}77.jpg", period * 20, label * 20, blue)
        (root / part / "class_names.txt").write_text("\n".join(CLEAR_CLASSES))
    return root


TINY_IDS = ["n02124075", "n01443537", "n04067472"]  # not sorted, as in the official file
TINY_WORDS = "n00001740\tentity\nn01443537\tgoldfish, Carassius auratus\nn02124075\tEgyptian cat\n"


def write_tiny_imagenet(root: Path) -> Path:
    """Write Tiny ImageNet: three classes of four training and two validation pictures.

    The colours of a picture are its class, its number, and whether it is of `val`.
    """
    home = root / "tiny-imagenet-200"
    lines = []
    for label, name in enumerate(TINY_IDS):
        for i in range(4):
            picture(home / "train" / name / "images" / f"{name}_{i}.JPEG", label * 40, i * 40)
        (home / "train" / name / f"{name}_boxes.txt").write_text(f"{name}_0.JPEG\t0\t0\t9\t9\n")
    for i in range(6):
        label = (5 - i) % 3
        picture(home / "val" / "images" / f"val_{i}.JPEG", label * 40, i * 40, 200)
        lines.append(f"val_{i}.JPEG\t{TINY_IDS[label]}\t0\t32\t44\t62\n")
    (home / "val" / "val_annotations.txt").write_text("".join(lines))
    picture(home / "test" / "images" / "test_0.JPEG", 1)
    (home / "wnids.txt").write_text("\n".join(TINY_IDS) + "\n")
    (home / "words.txt").write_text(TINY_WORDS)
    return home


LORIS_OBJECTS = ["bottle_01", "bottle_02", "paper_cutter_01"]


def write_openloris(root: Path, factors: tuple[str, ...] = ("clutter", "illumination")) -> Path:
    """Write OpenLORIS-Object: three objects in three segments per factor.

    The colours of a picture are its object, its segment and its factor.
    """
    for part, count in (("train", 2), ("test", 1), ("validation", 1)):
        for f, factor in enumerate(factors):
            for segment in (1, 2, 9):
                for label, name in enumerate(LORIS_OBJECTS):
                    home = root / part / factor / f"segment{segment}" / name
                    for i in range(count):
                        picture(home / f"{i:05d}.jpg", label * 40, segment * 20, f * 100)
    return root

"""Pictures of streams and data sets: what they show, checked on their parts and pixels."""

from __future__ import annotations

import io
import itertools
import re

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex, to_rgb

from primavista.errors import InputError
from primavista.streams.dataset import DataSet, Session, Stream
from primavista.streams.pictures import (
    BAND,
    PALETTE,
    RED,
    contact_sheet,
    draw_stream,
    first_batches,
    order_matrix,
    protocol_row,
)
from primavista.streams.protocols import nc, ni, nic, nicv2


def core50_shape(frames: int = 300) -> DataSet:
    numbers = (1, 2, 4, 5, 6, 8, 9, 11)
    train = [
        Session(o, n, frames * (8 * o + k), frames * (8 * o + k + 1))
        for o in range(50)
        for k, n in enumerate(numbers)
    ]
    images = torch.zeros(1, 1, 1, 3, dtype=torch.uint8).expand(400 * frames, 1, 1, 3)
    return DataSet(
        "c",
        images,
        tuple(train),
        (),
        tuple(f"thing {o % 5 + 1}" for o in range(50)),
        tuple(o // 5 for o in range(50)),
    )


def tiny() -> DataSet:
    """Three classes of two sessions of four frames.

    Frame k is all 10 k; session 2 of class 2 is missing; one test session.
    """
    frames = torch.arange(24, dtype=torch.uint8).reshape(24, 1, 1, 1).expand(24, 6, 6, 3) * 10
    train = [
        Session(label, 1 + k, 8 * label + 4 * k, 8 * label + 4 * k + 4)
        for label in range(3)
        for k in range(2)
    ][:5]
    return DataSet(
        "tiny",
        frames,
        tuple(train),
        (Session(0, 3, 20, 24),),
        ("cup 1", "cup 2", "a long name"),
        (0, 0, 1),
    )


def test_the_rows_of_the_paper_s_table() -> None:
    data = core50_shape()
    rows = {
        "nic": ["79", "10", "3000", "5", "1500"],  # two sessions of one class count once:
        "nicv2-79": ["79", "10", "3000", r"[1-4] to 5", "1500"],
        "nicv2-196": ["196", "10", "3000", "1 to 2", "600"],
        "nicv2-391": ["391", "10", "3000", "1", "300"],
    }
    for stream in (nic(data), *(nicv2(data, batches) for batches in (79, 196, 391))):
        name, *values = protocol_row(stream).values()
        for value, pattern in zip(values, rows[name], strict=True):
            assert re.fullmatch(pattern, value), (name, value)
    assert protocol_row(ni(data))["incremental classes"] == "50"
    assert protocol_row(nc(data)[:1])["incremental images (mean)"] == "0"
    with pytest.raises(InputError, match="no batches"):
        protocol_row(nc(data)[:0])


def test_the_matrix_counts_sessions_and_finds_the_first() -> None:
    data = tiny()
    s = data.train
    stream = Stream(data, [[s[0]], [s[2]], [s[1], s[3]], [s[4]]], "x", 0)
    matrix = order_matrix(stream)
    assert matrix.tolist() == [[1, 0, 1, 0], [0, 1, 1, 0], [0, 0, 0, 1]]
    assert first_batches(np.array([[0, 1, 2], [0, 0, 0], [0, 0, 1]])) == {0: 1, 2: 2}


@pytest.mark.parametrize("width", [4.75, 6.25])
def test_the_key_of_the_order_picture_is_not_cut_off(width: float) -> None:
    figure = draw_stream(nicv2(core50_shape(), 79), width)
    figure.savefig(io.BytesIO(), format="svg")
    box = figure.axes[0].xaxis.label.get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= width * figure.dpi


@pytest.mark.parametrize(
    "make", [lambda d: nicv2(d, 79), lambda d: nicv2(d, 391), ni, nc, lambda d: nc(d)[:1]]
)
def test_the_order_picture_has_a_cell_a_frame_and_a_band_for_each(make: object) -> None:
    stream = make(core50_shape())  # type: ignore[operator]
    axes = draw_stream(stream, 12.0).axes[0]
    cells, frames = axes.collections
    matrix = order_matrix(stream)
    firsts = first_batches(matrix)
    assert len(cells.get_paths()) == (matrix > 0).sum()
    assert len(frames.get_paths()) == len(firsts)
    assert to_hex(frames.get_edgecolor()[0]).upper() == RED
    bands = [patch for patch in axes.patches if to_hex(patch.get_facecolor()).upper() == BAND]
    assert sorted(round(band.get_x() + 0.5) for band in bands) == sorted(
        {column + 1 for column in firsts.values()}
    )
    for path, colour in list(zip(cells.get_paths(), cells.get_facecolor(), strict=True))[:50]:
        column, row = path.vertices[0] - 0.5
        assert matrix[int(row), int(column)] > 0
        assert to_hex(colour).upper() == PALETTE[int(row) // 5]


# Machado, Oliveira and Fernandes (2009), severity 1: linear RGB as seen without red, green or blue
# cones.
BLIND = {
    "nothing": np.eye(3),
    "red": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "green": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "blue": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)


def lab(colour: str, missing: str) -> np.ndarray:
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    x = XYZ @ np.clip(np.array(BLIND[missing]) @ linear, 0, 1) / np.array([0.95047, 1, 1.08883])
    f = np.where(x > 0.008856, np.cbrt(x), 7.787 * x + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("missing", BLIND)
def test_colours_can_be_told_apart_by_everybody(missing: str) -> None:
    assert len(set(PALETTE)) == 10
    for one, other in itertools.combinations((*PALETTE, BAND, "#FFFFFF"), 2):
        if {one, other} != {BAND, "#FFFFFF"}:
            assert np.linalg.norm(lab(one, missing) - lab(other, missing)) > 20, (one, other)


def pixel(sheet: object, row: int, column: int, columns: int, tile: int = 20) -> tuple[int, ...]:
    left = sheet.width - columns * (tile + 2)  # type: ignore[attr-defined]
    head = max(14, tile // 3)
    return sheet.getpixel(
        (left + column * (tile + 2) + tile // 2, head + row * (tile + 2) + tile // 2)
    )  # type: ignore[attr-defined,no-any-return]


def test_a_contact_sheet_of_sessions() -> None:
    sheet = contact_sheet(tiny(), tile=20)
    assert sheet.height == 14 + 3 * 22
    assert pixel(sheet, 0, 0, 3) == (20, 20, 20)  # the middle frame of 0 to 3
    assert pixel(sheet, 1, 1, 3) == (140, 140, 140)  # of 12 to 15
    assert pixel(sheet, 0, 2, 3) == (220, 220, 220)  # the test session, frames 20 to 23
    assert pixel(sheet, 2, 1, 3) == (255, 255, 255)  # missing


def test_a_contact_sheet_of_many_classes_has_some_of_them() -> None:
    data = core50_shape(frames=2)
    assert contact_sheet(data, tile=20).height == 14 + 17 * 22  # every third of 50

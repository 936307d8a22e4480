"""Pictures that end early: decoders fill the rest with grey or black and say nothing.

A file whose end is missing is an error for every decoder. If its data end early but in order (a
JPEG with its end marker, a PNG whose compressed stream is closed), libjpeg and Pillow accept it.
The fill is found first, which costs next to nothing; only then the file is looked at.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from typing import Any

from PIL import Image

GREY = 128  # of coefficients that are all zero
LEAST_TAIL, LONGEST_TAIL = 96, 4096  # bits of a JPEG's data that are looked at
INFLATED = 2**20  # bytes at once
# The first column and row of each pass of an interlaced PNG, and the steps between them.
PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2))
LAST_PASS = (0, 1, 1, 2)
SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # per pixel, by the colour type of a PNG


def is_cut_off(picture: Image.Image, data: bytes) -> bool:
    """Say if the data of a picture end before its last row.

    A JPEG is taken for complete if in doubt: if its last rows are grey and it is too small to tell,
    or if it is progressive and only later scans are missing, which make it sharper.

    Args:
        picture: The decoded picture, as Pillow opened it.
        data: The file.
    """
    if picture.format == "JPEG":
        return _jpeg_is_cut_off(picture, data)
    return picture.format == "PNG" and _png_is_cut_off(picture, data)


def _jpeg_is_cut_off(picture: Any, data: bytes) -> bool:
    if picture.mode not in ("L", "RGB"):
        return False
    layers: list[tuple[int, ...]] = picture.layer if len(picture.layer) > 1 else [(1, 1, 1, 0)]
    width, height = 8 * max(layer[1] for layer in layers), 8 * max(layer[2] for layer in layers)
    rows: int = _grey_rows(picture) // height  # of the blocks that are coded together
    if rows == 0:
        return False
    if data.count(b"\xff\xda") > 1 or picture.info.get("progressive"):
        return data.count(b"\xff\xda") == 1
    across = int(-(-picture.width // width))
    interval, coded = _coded_data(data)
    if interval:
        groups = int(-(-picture.height // height) * across)
        return len(re.findall(rb"\xff[\xd0-\xd7]", coded)) < -(-groups // interval) - 1
    # Blocks that are truly grey take two codes of at least one bit, the same ones again and again,
    # after the first group of them.
    blocks = max(rows * across - 2, 0) * sum(layer[1] * layer[2] for layer in layers)
    tail = _last_bits(coded, min(2 * blocks, LONGEST_TAIL))
    return len(tail) >= LEAST_TAIL and not _repeats(tail)


def _grey_rows(picture: Image.Image) -> int:
    """Return how many rows at the bottom are wholly grey."""
    if not _is_grey(picture, 1):
        return 0
    low, high = 1, picture.height
    while low < high:  # by halves: at least `low` rows are
        middle = (low + high + 1) // 2
        if _is_grey(picture, middle):
            low = middle
        else:
            high = middle - 1
    return low


def _is_grey(picture: Image.Image, rows: int) -> bool:
    bottom = picture.crop((0, picture.height - rows, picture.width, picture.height))
    values = [band.getextrema() for band in bottom.split()]
    return all(value == (GREY, GREY) for value in values)


def _coded_data(data: bytes) -> tuple[int, bytes]:
    """Return the restart interval of a JPEG, 0 if there is none, and its coded data."""
    interval, position = 0, 2
    while position + 4 <= len(data) and data[position] == 0xFF:
        marker, length = struct.unpack_from(">xBH", data, position)
        if marker == 0xDD:
            (interval,) = struct.unpack_from(">H", data, position + 4)
        position += 2 + length
        if marker == 0xDA:
            break
    return interval, data[position : max(position, data.rfind(b"\xff\xd9"))]


def _last_bits(coded: bytes, count: int) -> str:
    """Return so many of the last bits of a JPEG's data, less two bytes for what fills the last."""
    if count <= 16:
        return ""
    plain = coded[-count:].replace(b"\xff\x00", b"\xff")
    return "".join(f"{byte:08b}" for byte in plain)[-count:-16]


def _repeats(tail: str) -> bool:
    """Say if one pattern, of at most half of the length, makes up the whole."""
    half = tail[len(tail) // 2 :]
    found = tail.rfind(half, 0, len(tail) - 1)
    period = len(tail) - len(half) - found
    return found >= 0 and tail[period:] == tail[:-period]


def _png_is_cut_off(picture: Image.Image, data: bytes) -> bool:
    last = picture.crop((0, picture.height - 1, picture.width, picture.height))
    interlaced = bool(picture.info.get("interlace"))
    if not interlaced and last.getbbox(alpha_only=False) is not None:
        return False
    wanted = 0
    inflate = zlib.decompressobj()
    for kind, chunk in _chunks(data):
        if kind == b"IHDR":
            wanted = _raw_bytes(chunk)
        elif kind == b"IDAT":
            piece = chunk
            while piece and wanted > 0 and not inflate.eof:
                wanted -= len(inflate.decompress(piece, INFLATED))
                piece = inflate.unconsumed_tail
    if wanted > 0 and not inflate.eof:
        wanted -= len(inflate.flush())
    return wanted > 0


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    position = 8
    while position + 8 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, position)
        yield kind, data[position + 8 : position + 8 + length]
        position += 12 + length


def _raw_bytes(header: bytes) -> int:
    """Return how many bytes the rows of a PNG have, each with the byte that names its filter."""
    width, height, depth, colour, *_, interlaced = struct.unpack(">IIBBBBB", header[:13])
    bits = depth * SAMPLES[colour]
    total = 0
    for left, top, across, down in (*PASSES, LAST_PASS) if interlaced else ((0, 0, 1, 1),):
        columns = -(-(width - left) // across)
        rows = -(-(height - top) // down)
        if columns > 0 and rows > 0:
            total += rows * (1 + -(-columns * bits // 8))
    return total

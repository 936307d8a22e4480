"""Pictures that end early are refused (L15); complete ones with grey or black rows are not."""

from __future__ import annotations

import io
import itertools
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from primavista.errors import FileError
from primavista.media.images import decode_image

SAVED = {
    "ordinary": {},
    "not subsampled": {"subsampling": 0},
    "own tables": {"optimize": True},
    "restart markers": {"restart_marker_rows": 1},
    "progressive": {"progressive": True},
}


def scene(height: int = 240, width: int = 320) -> np.ndarray:
    """Blocks of random colours."""
    blocks = np.random.default_rng(0).integers(0, 255, (height // 8, width // 8, 3))
    return np.kron(blocks, np.ones((8, 8, 1))).astype(np.uint8)


def jpeg(image: np.ndarray, **options) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", **options)
    return file.getvalue()


def png(image: np.ndarray, rows: int, closed: bool = True, pieces: int = 1) -> bytes:
    """A PNG of the first rows of an image; its header says that it has all of them."""
    colour = {2: 0, 3: {3: 2, 4: 6}.get(image.shape[-1], 0)}[image.ndim]
    deflated = zlib.compress(b"".join(b"\0" + row.tobytes() for row in image[:rows]))
    deflated = deflated if closed else deflated[:-20]
    size = struct.pack(">II", image.shape[1], image.shape[0])
    step = -(-len(deflated) // pieces)
    parts = [deflated[k : k + step] for k in range(0, len(deflated), step)]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in [
            (b"IHDR", size + bytes([8, colour, 0, 0, 0])),
            *((b"IDAT", part) for part in parts),
            (b"IEND", b""),
        ]
    )


def decoded(data: bytes) -> np.ndarray:
    return decode_image(io.BytesIO(data), "mug", 32)


@pytest.mark.parametrize("share", [0.25, 0.5, 0.8])
@pytest.mark.parametrize("grey", [False, True], ids=["colour", "grey"])
@pytest.mark.parametrize("kind", [name for name in SAVED if name != "progressive"])
def test_a_jpeg_that_ends_early_but_in_order_is_refused(kind, grey, share):
    image = scene()[..., 0] if grey else scene()
    whole = jpeg(image, **SAVED[kind])
    decoded(whole)
    with pytest.raises(FileError, match="mug was cut off"):
        decoded(whole[: int(len(whole) * share)] + b"\xff\xd9")


def test_a_progressive_jpeg_that_ends_in_its_first_scan_is_refused():
    whole = jpeg(scene(), progressive=True)
    first, second = [k for k in range(len(whole)) if whole[k : k + 2] == b"\xff\xda"][:2]
    with pytest.raises(FileError, match="mug was cut off"):
        decoded(whole[: first + (second - first) // 2] + b"\xff\xd9")
    decoded(whole[: int(len(whole) * 0.8)] + b"\xff\xd9")  # less sharp, and whole


@pytest.mark.parametrize("kind", SAVED)
@pytest.mark.parametrize("rows", [16, 64, 120, 200, 240])
@pytest.mark.parametrize("quality", [30, 75, 95])
def test_a_jpeg_with_grey_rows_at_the_bottom_is_complete(kind, rows, quality):
    image = scene()
    image[-rows:] = 128
    whole = jpeg(image, **SAVED[kind], quality=quality)
    bottom = np.asarray(Image.open(io.BytesIO(whole)))[-8:]
    assert (bottom == 128).all(), "the picture must have the colour of what is missing"
    decoded(whole)
    decoded(jpeg(image[..., 0], **SAVED[kind], quality=quality))


@pytest.mark.parametrize("channels", [None, 3, 4])
@pytest.mark.parametrize(("rows", "closed"), [(0, True), (100, True), (239, True), (100, False)])
@pytest.mark.parametrize("pieces", [1, 5])
def test_a_png_that_ends_early_is_refused(channels, rows, closed, pieces):
    image = {None: scene()[..., 0], 3: scene()}.get(channels)
    if image is None:
        image = np.dstack([scene(), scene()[..., :1]])
    decoded(png(image, 240, pieces=pieces))
    with pytest.raises(FileError, match=r"mug (was cut off|is damaged)"):
        decoded(png(image, rows, closed, pieces))


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "I;16"])
@pytest.mark.parametrize("size", [(1, 1), (7, 5), (320, 240)])
def test_a_png_of_black_is_complete(mode, size):
    file = io.BytesIO()
    Image.new(mode, size).save(file, "PNG")
    decoded(file.getvalue())


@pytest.mark.parametrize(("width", "height"), list(itertools.product((1, 2, 5, 8, 33), repeat=2)))
def test_an_interlaced_png_is_complete_if_all_passes_are(width, height):
    """The passes are written here as the specification shows them: a square of eight pixels."""
    order = np.array(
        [
            [1, 6, 4, 6, 2, 6, 4, 6],
            [7] * 8,
            [5, 6, 5, 6, 5, 6, 5, 6],
            [7] * 8,
            [3, 6, 4, 6, 3, 6, 4, 6],
            [7] * 8,
            [5, 6, 5, 6, 5, 6, 5, 6],
            [7] * 8,
        ]
    )
    image = np.full((height, width), 9, np.uint8)
    rows = []
    for number in range(1, 8):
        for y in range(height):
            chosen = [image[y, x] for x in range(width) if order[y % 8, x % 8] == number]
            rows += [bytes([0, *chosen])] if chosen else []
    size = struct.pack(">II", width, height)

    def written(raw: bytes) -> bytes:
        parts = [
            (b"IHDR", size + bytes([8, 0, 0, 0, 1])),
            (b"IDAT", zlib.compress(raw)),
            (b"IEND", b""),
        ]
        return b"\x89PNG\r\n\x1a\n" + b"".join(
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
            for kind, data in parts
        )

    assert (decoded(written(b"".join(rows))) == 9).all()
    with pytest.raises(FileError, match=r"mug (was cut off|is damaged)"):
        decoded(written(b"".join(rows[:-1])))

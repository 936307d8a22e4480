"""Pictures whose file was cut off are refused (L15)."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from primavista.errors import FileError
from primavista.media.images import decode_image


def saved(kind: str, **options: object) -> bytes:
    """A picture with blocks of random colours."""
    blocks = np.random.default_rng(0).integers(0, 255, (30, 40, 3))
    image = np.kron(blocks, np.ones((8, 8, 1))).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(image).save(file, kind, **options)
    return file.getvalue()


@pytest.mark.parametrize("share", [0.25, 0.5, 0.8, 0.99])
@pytest.mark.parametrize("kind", ["JPEG", "progressive JPEG", "PNG"])
def test_a_picture_that_was_cut_off_is_refused(kind: str, share: float) -> None:
    progressive = {"progressive": True} if kind.startswith("progressive") else {}
    whole = saved(kind.rpartition(" ")[2], **progressive)
    assert decode_image(io.BytesIO(whole), "mug", None).shape == (240, 240, 3)
    with pytest.raises(FileError, match="mug is damaged"):
        decode_image(io.BytesIO(whole[: int(len(whole) * share)]), "mug", None)

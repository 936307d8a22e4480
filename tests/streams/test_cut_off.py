"""Pictures that break off are refused (L15)."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from primavista.errors import FileError
from primavista.media.images import decode_image

SAVED = {
    "ordinary": ("JPEG", {}),
    "restart markers": ("JPEG", {"restart_marker_rows": 1}),
    "progressive": ("JPEG", {"progressive": True}),
    "png": ("PNG", {}),
    "webp": ("WEBP", {}),
}


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("kind", SAVED)
def test_a_picture_that_breaks_off_is_refused(kind, share):
    name, options = SAVED[kind]
    blocks = np.random.default_rng(0).integers(0, 255, (30, 40, 3))
    file = io.BytesIO()
    Image.fromarray(np.kron(blocks, np.ones((8, 8, 1))).astype(np.uint8)).save(
        file, name, **options
    )
    data = file.getvalue()
    decode_image(io.BytesIO(data), "mug", 32)
    with pytest.raises(FileError, match="mug is damaged"):
        decode_image(io.BytesIO(data[: int(len(data) * share)]), "mug", 32)

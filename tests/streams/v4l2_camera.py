"""Webcams of this machine for the tests: FFmpeg finds them at /dev/video0 and so on.

`v4l2_device.c`, loaded into the process that reads the camera, answers what FFmpeg asks the kernel.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .camera_servers import Draw, jpeg

SOURCE = Path(__file__).with_name("v4l2_device.c")
DAMAGED = 0x40  # V4L2_BUF_FLAG_ERROR: the driver says that the buffer is damaged
PULLED = 0xFFFFFFFF  # instead of flags: there the plug is pulled
Buffer = tuple[bytes, int]  # and its flags


def yuyv(picture: Any) -> bytes:
    """Convert 8-bit RGB, H x W x 3 with W even, to YUYV 4:2:2 in the range of BT.601."""
    red, green, blue = (picture[..., i] / 255.0 for i in range(3))
    luma = 16 + 65.481 * red + 128.553 * green + 24.966 * blue
    cb = 128 - 37.797 * red - 74.203 * green + 112.0 * blue
    cr = 128 + 112.0 * red - 93.786 * green - 18.214 * blue
    packed = np.empty((*picture.shape[:2], 2))
    packed[..., 0] = luma
    packed[:, 0::2, 1] = (cb[:, 0::2] + cb[:, 1::2]) / 2
    packed[:, 1::2, 1] = (cr[:, 0::2] + cr[:, 1::2]) / 2
    return packed.round().astype(np.uint8).tobytes()


def emulate_v4l2(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Let child processes see the cameras of a folder, and no others.

    Args:
        folder: Where the library is built and the cameras are kept.
        patch: Sets the environment of child processes.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not sys.platform.startswith("linux") or compiler is None:
        pytest.skip("an emulated Video4Linux device needs Linux and a C compiler (gcc)")
    library = folder / "v4l2.so"
    command = [compiler, "-shared", "-fPIC", "-O1", f'-DFOLDER="{folder}"', "-o", str(library)]
    built = subprocess.run(
        [*command, str(SOURCE), "-ldl", "-lpthread"], capture_output=True, text=True
    )
    if "videodev2.h" in built.stderr:
        pytest.skip("the kernel's headers are not installed (linux-libc-dev)")
    assert built.returncode == 0, built.stderr
    patch.setenv("LD_PRELOAD", str(library))


class V4l2Camera:
    """A USB camera that is plugged in.

    Args:
        folder: That of `emulate_v4l2`.
        number: The number in the path of its device.
    """

    def __init__(self, folder: Path, number: int = 0) -> None:
        self.folder = folder / str(number)
        self.folder.mkdir()
        self.show(lambda i: np.zeros((48, 64, 3), np.uint8), 1)
        self.be("on")

    def show(self, draw: Draw, count: int, fps: int = 50) -> None:
        """Film pictures in YUYV."""
        pictures = [draw(i) for i in range(count)]
        height, width = pictures[0].shape[:2]
        self.film([(yuyv(one), 0) for one in pictures], "YUYV", width, height, fps)

    def show_jpegs(self, draw: Draw, count: int, fps: int = 50) -> None:
        """Film pictures in Motion JPEG."""
        pictures = [draw(i) for i in range(count)]
        height, width = pictures[0].shape[:2]
        self.film([(jpeg(one), 0) for one in pictures], "MJPG", width, height, fps)

    def film(
        self, buffers: Sequence[Buffer], fourcc: str, width: int, height: int, fps: int = 50
    ) -> None:
        """Give these buffers, again and again, from the next opening on."""
        head = struct.pack("<4s4I", fourcc.encode(), width, height, fps, len(buffers))
        body = [struct.pack("<2I", len(data), flags) + data for data, flags in buffers]
        self._write("film", head + b"".join(body))

    def be(self, state: str) -> None:
        """Be in a state of `v4l2_device.c`: "gone" pulls the plug, "on" puts it in again."""
        self._write("state", state.encode())

    def _write(self, name: str, data: bytes) -> None:
        (self.folder / f"{name}.new").write_bytes(data)
        os.replace(self.folder / f"{name}.new", self.folder / name)

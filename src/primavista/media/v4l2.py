"""Cameras of Linux (Video4Linux): which device is the first camera, which the second."""

from __future__ import annotations

import os
import struct

from primavista.errors import FileError

NUMBERS = range(64)  # in the paths of devices that are looked at
QUERYCAP = 0x80685600  # the request VIDIOC_QUERYCAP of <linux/videodev2.h>
CAPABILITIES = struct.Struct("=84xII12x")  # struct v4l2_capability: of the camera, of the device
CAN_CAPTURE, HAS_DEVICE_CAPABILITIES = 0x1, 0x80000000


def capture_device(name: str) -> str:
    """Return the path of a camera's device, such as /dev/video2 for the second camera.

    A USB camera usually has two devices, one for pictures and one for metadata; only those for
    pictures are counted.

    Args:
        name: The number of the camera, from 0, or the path of its device.

    Raises:
        FileError: If there is no such camera; the message lists those that there are.
    """
    if not name.isdecimal() and _may_capture(name):
        return name
    cameras = [path for path in (f"/dev/video{i}" for i in NUMBERS) if _may_capture(path)]
    if name.isdecimal() and int(name) < len(cameras):
        return cameras[int(name)]
    raise FileError(f"there is no such camera; this machine has {', '.join(cameras) or 'none'}")


def _may_capture(path: str) -> bool:
    """Ask a device whether it gives pictures; True if it is there but does not say."""
    import fcntl

    try:
        device = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    except OSError:  # busy, or not allowed: whoever opens it says so
        return True
    facts = bytearray(CAPABILITIES.size)
    try:
        fcntl.ioctl(device, QUERYCAP, facts)
    except OSError:
        return True
    finally:
        os.close(device)
    of_camera, of_device = CAPABILITIES.unpack(facts)
    abilities = of_device if of_camera & HAS_DEVICE_CAPABILITIES else of_camera
    return bool(abilities & CAN_CAPTURE)

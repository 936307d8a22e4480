"""Addresses of cameras and brokers, and names of them that do not show their secrets."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from primavista.errors import InputError

ENV = "env:"
CAMERA = "camera:"  # of this machine, by its number
DEVICE = re.compile(r"/dev/(video|v4l/).*")  # of Video4Linux
SCHEMES = ("rtsp", "rtsps", "http", "https")  # of cameras on the network
EXAMPLE = "rtsp://USER:PASSWORD@HOST/PATH for a camera; a file has to be downloaded first"
STALL = 10.0  # seconds without a frame after which a camera is lost
# The suffixes of video files; `decode.CONTAINERS` has their formats.
COMMON_VIDEOS = (".mp4", ".mkv", ".avi", ".webm", ".mov", ".m4v")
VIDEOS = (
    *COMMON_VIDEOS,
    *(".3gp", ".3g2", ".f4v", ".flv", ".wmv", ".asf", ".divx", ".ogv", ".ogm"),
    *(".ts", ".mts", ".m2ts", ".mpg", ".mpeg", ".m1v", ".m2v", ".vob", ".mxf", ".wtv"),
    *(".h264", ".264", ".h265", ".265", ".hevc", ".mjpeg", ".mjpg", ".ivf", ".obu", ".nut"),
)


@dataclass(frozen=True)
class Address:
    """An address, and a name for it that may be shown to anybody.

    Args:
        name: What messages and events call it: without user, password and query, which often holds
            a password too. An address from the environment is called `env:NAME`.
        url: The whole address. It is not part of the `repr`.
    """

    name: str
    url: str = field(repr=False)

    @property
    def parts(self) -> SplitResult:
        """The scheme, host, port, path and query of the address."""
        return urlsplit(self.url)

    @property
    def user(self) -> str | None:
        """The user in the address, decoded, or None."""
        return None if self.parts.username is None else unquote(self.parts.username)

    @property
    def password(self) -> str | None:
        """The password in the address, decoded, or None."""
        return None if self.parts.password is None else unquote(self.parts.password)


def is_address(text: str) -> bool:
    """Return True for `scheme://...` and for `env:NAME`; nothing is looked up.

    Args:
        text: What the user named.

    >>> is_address("rtsp://10.0.0.5/live"), is_address("env:DOOR"), is_address("C:/mug.mp4")
    (True, True, False)
    """
    return text.startswith(ENV) or re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", text) is not None


def is_live(source: object) -> bool:
    """Return True if a source is a camera: of this machine, or one that has an address.

    Args:
        source: What the user named. Only the form is looked at; opening the camera reports a wrong
            address.

    >>> is_live("camera:0"), is_live("/dev/video1"), is_live("rtsp://door/live"), is_live("mug.mp4")
    (True, True, True, False)
    """
    if not isinstance(source, str):
        return False
    return source.startswith(CAMERA) or is_address(source) or DEVICE.fullmatch(source) is not None


def is_video_file(source: str | Path) -> bool:
    """Return True if a source is a single video file that exists, by its suffix.

    Args:
        source: What the user named.
    """
    path = Path(source).expanduser()
    return path.suffix.lower() in VIDEOS and path.is_file()


def read_address(text: str, schemes: tuple[str, ...], example: str) -> Address:
    """Read an address as it was typed, or from the environment variable that `env:NAME` names.

    Other users of a machine see the command line of every process, but not its environment.

    Args:
        text: The address, or `env:NAME`.
        schemes: The schemes that are allowed, in lower case.
        example: A right address, for messages.

    Returns:
        The address and its name.

    Raises:
        InputError: If the variable is not set, or if its value is not an address of these schemes.
            The message does not show it.

    >>> read_address("rtsp://ann:secret@door:554/live?key=7", ("rtsp",), "rtsp://camera/live")
    Address(name='rtsp://door:554/live')
    """
    name = text if text.startswith(ENV) else ""
    url = _from_environment(name.removeprefix(ENV), example) if name else text.strip()
    shown = _shown(url, schemes)
    if shown is None:
        kinds = ", ".join(f"{scheme}://" for scheme in schemes)
        raise InputError(f"{name or 'this'} is not an address ({kinds}): write {example}")
    return Address(name or shown, url)


def camera_address(source: str) -> Address:
    """Read the address of a camera on the network.

    Args:
        source: What the user named.

    Raises:
        InputError: If it is not such an address; it may be one of a file.
    """
    address = read_address(source, SCHEMES, EXAMPLE)
    # cameras have addresses that end in .mjpg, .ts and .flv
    is_file = address.parts.path.lower().endswith(COMMON_VIDEOS)
    if is_file and address.parts.scheme.startswith("http"):
        raise InputError(
            f"{address.name} is the address of a file, not of a camera: download it first and give "
            "the path of the file"
        )
    return address


def live_name(source: str) -> str:
    """Return what messages call a camera: its address without user, password and query.

    Args:
        source: What the user named, for which `is_live` is True.

    Raises:
        InputError: If it is not an address of a camera; it may be one of a file.

    >>> live_name("rtsp://ann:secret@door/live?key=7")
    'rtsp://door/live'
    """
    if not is_address(source):
        return source
    return camera_address(source).name


def _from_environment(variable: str, example: str) -> str:
    url = os.environ.get(variable, "").strip()
    if not url:
        raise InputError(f"the environment variable {variable!r} is not set: {variable}={example}")
    return url


def _shown(url: str, schemes: tuple[str, ...]) -> str | None:
    """Return an address without its secrets, or None if it is not one of these schemes."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:  # a port that is not a number, a bracket that is not closed
        return None
    if not host or parts.scheme not in schemes or not url.isprintable() or " " in url:
        return None
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def shows_password(text: str) -> bool:
    """Return True for an address that was typed with a password in it.

    Args:
        text: What the user typed.
    """
    try:
        return is_address(text) and urlsplit(text).password is not None
    except ValueError:
        return False

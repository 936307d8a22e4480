"""The images of CORe50 as one array: `core50_imgs.npz` (or .npy, .bin) with `paths.pkl`."""

from __future__ import annotations

import shutil
import struct
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np

from primavista.errors import FileError, file_errors
from primavista.media.arrays import chosen_rows, like_indices
from primavista.media.images import ImageArray, centre_square
from primavista.storage import disk
from primavista.storage.disk import replacing
from primavista.streams.pickles import read_pickle

ARRAYS = ("core50_imgs.npz", "core50_imgs.npy", "core50_imgs.bin")
COPY_BYTES = 1 << 22


class MappedFrames:
    """Frames that are rows of a memory-mapped array. Only the requested frames are read.

    Args:
        array: uint8, N x H x W x 3.
        size: The side of the frames in pixels; None keeps that of the array.
    """

    def __init__(self, array: ImageArray, size: int | None) -> None:
        self.array, self.size = array, size

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, indices: Any) -> Any:
        chunk = self.array[chosen_rows(indices, len(self))]
        if self.size is not None and chunk.shape[1:3] != (self.size, self.size):
            resized = [centre_square(image, self.size) for image in chunk]
            chunk = np.stack(resized) if resized else chunk[:, : self.size, : self.size]
        return like_indices(np.ascontiguousarray(chunk), indices)


def open_image_array(folder: Path, size: int | None) -> tuple[MappedFrames, list[str]]:
    """Open the array of images of a folder and the names of its rows.

    Args:
        folder: The folder with the array and `paths.pkl`.
        size: The side of the frames in pixels; None keeps that of the array.

    Returns:
        The frames, and the official name of each.

    Raises:
        FileError: If a file is damaged, or the two do not fit together.
    """
    names = read_pickle(folder / "paths.pkl")
    if not isinstance(names, list):
        raise FileError(
            f"{folder / 'paths.pkl'} holds a {type(names).__name__} instead of a list of names: "
            "download it again"
        )
    array = _map_images(folder, len(names))
    is_images = array.dtype == np.uint8 and array.ndim == 4 and array.shape[3] == 3
    if not is_images or len(array) != len(names):
        raise FileError(
            f"the array of images in {folder} is {array.dtype} of shape {array.shape}; it should "
            f"be uint8, {len(names)} x H x W x 3, one row for each name in paths.pkl: "
            "download core50_imgs.npz and paths.pkl again"
        )
    return MappedFrames(array, size), names


def map_npz(path: Path, member: str = "x.npy") -> ImageArray:
    """Memory-map an array in an npz file, in place.

    A compressed array is unpacked once, to an .npy file next to the archive.

    Args:
        path: The npz file.
        member: The name of the array in it.

    Returns:
        The array, read-only.

    Raises:
        FileError: If the file is damaged or holds something else, or the disk is full.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            info = archive.getinfo(member)
            with archive.open(info) as stream:
                shape, header = _npy_header(stream, path)
            if info.compress_type == zipfile.ZIP_STORED:
                return _map_file(path, shape, _data_offset(path, info) + header)
            _unpack(archive, info, path.with_suffix(".npy"))
    except KeyError as error:
        raise FileError(
            f"{path} holds no array '{member}': it is not CORe50's, download core50_imgs.npz again"
        ) from error
    except (zipfile.BadZipFile, EOFError, ValueError, struct.error) as error:
        raise FileError(f"{path} is damaged ({error}): download core50_imgs.npz again") from error
    return _map_file(path.with_suffix(".npy"), shape, header)


def _map_images(folder: Path, count: int) -> ImageArray:
    """The images, mapped: from an unpacked file if there is one, else from the npz."""
    packed, plain, raw = (folder / f"core50_imgs.{kind}" for kind in ("npz", "npy", "bin"))
    if plain.is_file():
        with plain.open("rb") as file:
            shape, offset = _npy_header(file, plain)
        return _map_file(plain, shape, offset)
    if packed.is_file():
        return map_npz(packed)
    return _map_file(raw, (count, 128, 128, 3), 0)


def _npy_header(stream: IO[bytes], path: Path) -> tuple[tuple[int, ...], int]:
    """The shape of an .npy stream of uint8 in C order, and the length of its header."""
    if np.lib.format.read_magic(stream) == (1, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    else:
        shape, fortran, dtype = np.lib.format.read_array_header_2_0(stream)
    if dtype != np.uint8 or fortran:
        raise FileError(
            f"{path} holds an array of {dtype}, not the uint8 images of CORe50: download it again"
        )
    return shape, stream.tell()


def _data_offset(path: Path, info: zipfile.ZipInfo) -> int:
    """The first byte of a member's data.

    The data follow the local header, whose name and extra field vary in length.
    """
    with path.open("rb") as file:
        file.seek(info.header_offset)
        header = file.read(30)
    name, extra = struct.unpack("<HH", header[26:30])
    return info.header_offset + 30 + int(name) + int(extra)


def _map_file(path: Path, shape: tuple[int, ...], offset: int) -> ImageArray:
    need = offset + int(np.prod(shape, dtype=object))
    size = path.stat().st_size
    if size < need:
        raise FileError(
            f"{path} has {size:,} bytes and should have {need:,}: "
            "it was cut off, download or unpack it again"
        )
    return np.memmap(path, np.uint8, "r", offset, shape)


def _unpack(archive: zipfile.ZipFile, info: zipfile.ZipInfo, target: Path) -> None:
    free = shutil.disk_usage(target.parent).free
    if free < info.file_size:
        raise FileError(
            f"{target} needs {info.file_size:,} bytes to unpack the images once; "
            f"{free:,} are free: make room"
        )
    with (
        file_errors("unpack the images to", target),
        replacing(target) as part,
        archive.open(info) as source,
        part.open("xb") as sink,
    ):
        shutil.copyfileobj(source, sink, COPY_BYTES)
        sink.flush()
        disk.sync(sink.fileno())

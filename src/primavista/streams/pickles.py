"""Reads CORe50's official pickles in a child process, which runs nothing that a file names."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from primavista.errors import FileError, file_errors
from primavista.media.decoder import DecoderProcess
from primavista.media.decoder_child import DecodeJob

MAX_BYTES = 256 * 2**20
MAX_MEMORY = 2**30  # LUP.pkl holds about 10 million integers
MAX_SECONDS = 60.0


def read_pickle(path: str | Path, *keys: str | int) -> Any:
    """Read a pickle of plain data.

    Args:
        path: The file.
        *keys: Which part of it to return: its item at the first key, of that the item at the
            second, and so on; None if a dict does not have such an item. By default all of it.

    Returns:
        Lists, dicts with texts as keys, integers and texts; tuples and arrays become lists.

    Raises:
        FileError: If it cannot be read, takes too much time or memory, or holds anything else. The
            message names what was refused.
    """
    target = Path(path)
    with file_errors("read", target):
        size = target.stat().st_size
        if size > MAX_BYTES:
            raise FileError(
                f"{target} has {size:,} bytes, over the limit of {MAX_BYTES:,} for a pickle: "
                "it is not an official file of CORe50"
            )
        data = target.read_bytes()
    return loads(data, str(target), *keys)


def loads(data: bytes, name: str = "the pickle", *keys: str | int) -> Any:
    """Read a pickle of plain data from bytes, as `read_pickle` does."""
    job = DecodeJob("pickle", name, len(data), 0, 0, 0, MAX_SECONDS, MAX_MEMORY, keys=keys)
    process = DecoderProcess()
    try:
        return process.read_pickle(job, io.BytesIO(data))
    except FileError as error:
        raise FileError(
            f"refused to read {name}: {error}. The pickles of CORe50 hold only lists, tuples, "
            "dicts, integers, texts and numpy arrays of them; delete this file and download it "
            "again"
        ) from error
    finally:
        process.close()

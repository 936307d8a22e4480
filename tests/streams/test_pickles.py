"""Damaged pickles of data sets."""

from __future__ import annotations

import pytest

from primavista import FileError
from primavista.streams.pickles import loads


def test_a_letter_that_does_not_exist_in_a_pickle():
    """A scalar of one letter whose number is beyond all letters: numpy raises SystemError."""
    scalar = (
        b"\x80\x03cnumpy.core.multiarray\nscalar\ncnumpy\ndtype\n"
        b"X\x03\x00\x00\x00<U1K\x00K\x01\x87RC\x04%b\x86R."
    )
    assert loads(scalar % b"a\0\0\0") == "a"
    with pytest.raises(FileError, match="damaged"):
        loads(scalar % b"\xff\xff\xff\xff")

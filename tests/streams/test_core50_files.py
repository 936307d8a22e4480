"""What comes from outside: pickles that are not data, archives that are not honest."""

from __future__ import annotations

import os
import pickle
import stat
import struct
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primavista.errors import FileError
from primavista.streams import pickles
from primavista.streams.core50 import unzip
from primavista.streams.pickles import loads, read_pickle

plain = st.recursive(
    st.integers(-(2**63), 2**63 - 1) | st.text(max_size=20),
    lambda item: (
        st.lists(item, max_size=6)
        | st.tuples(item, item)
        | st.dictionaries(st.text(max_size=5), item, max_size=4)
    ),
    max_leaves=30,
)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(plain, st.integers(0, 5))
def test_plain_data_comes_back(value: Any, protocol: int) -> None:
    assert loads(pickle.dumps(value, protocol)) == value


@pytest.mark.parametrize("protocol", range(5))
def test_runs_of_integers_and_arrays_come_back(protocol: int) -> None:
    numbers = [
        *range(-300, 300),
        *range(65_000, 66_000),
        *range(2**18 - 5, 2**18 + 5),
        2**31 - 1,
        -(2**31),
        2**40,
    ]
    assert loads(pickle.dumps([numbers, numbers[::-1]], protocol)) == [numbers, numbers[::-1]]
    for array in (
        np.arange(6).reshape(2, 3),
        np.arange(5, dtype=">i2"),
        np.array(["s1/o1", "é"]),
        np.asfortranarray(np.eye(3, dtype=int)),
    ):
        back = loads(pickle.dumps({"x": [array, array]}, protocol))["x"]
        assert np.array_equal(back[1], array)
    assert loads(pickle.dumps([np.int64(5), np.int16(-3)], protocol)) == [5, -3]


def test_a_python_2_pickle_comes_back() -> None:
    assert loads(
        b"\x80\x02]q\x00(U\x15s1/o1/C_01_01_000.pngq\x01K\x00M,\x01J\xff\xff\xff\xffe."
    ) == [
        "s1/o1/C_01_01_000.png",
        0,
        300,
        -1,
    ]
    assert loads(b"(lp0\nS's1/o1'\np1\naI7\na(dp2\nS'ni'\np3\n(I1\nL2L\ntp4\nsa.") == [
        "s1/o1",
        7,
        {"ni": (1, 2)},
    ]


class Payload:
    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    ("payload", "named"),
    [
        (Payload(os.system, "touch hacked"), "system"),
        (Payload(eval, "open('hacked', 'w')"), "eval"),
        (Payload(subprocess.getoutput, "touch hacked"), "getoutput"),
        (Payload(np.load, "x.npy", None, True), "load"),
        (Payload(bytearray, 10**12), "bytearray"),
        (np.array([Payload(os.system, "touch hacked")], object), ""),
        (1.5, "FLOAT"),
        ({1, 2}, ""),
        (3 + 4j, "complex"),
        (Path("x"), "Path"),
    ],
)
def test_hostile_pickles_are_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: int, payload: Any, named: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for value in (payload, [1, {"ni": [(2, [payload])]}]):
        (tmp_path / "LUP.pkl").write_bytes(pickle.dumps(value, protocol))
        with pytest.raises(FileError, match=r"LUP\.pkl") as caught:
            read_pickle(tmp_path / "LUP.pkl")
        assert named.lower() in str(caught.value).lower()
        assert not (tmp_path / "hacked").exists()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b".",
        b"hello",
        b"<html>sorry</html>",
        b"\x80\x04]",
        b"(((((",
        b"e.",
        b"]e.",
        b"K",
        b"K\x01e.",
        b"}(K\x01u.",
        b"\x80\x02]q\x00h\x00s.",
        b"}]K\x01s.",
        b"h\x05.",
        b"cos\nsystem\n(S'true'\ntR.",
        b"\x8c\x02os\x8c\x06system\x93.",
        b"cnumpy\nndarray\n)R.",
        b"cnumpy\ndtype\n(S'O8'\ntR.",
        b"cnumpy\ndtype\n(S'f8'\ntR.",
        b"\x96" + b"\xff" * 8 + b".",
        b"I" + b"9" * 10**5 + b"\n.",
        b"\x8b\xff\xff\xff\x7f.",
        b"S" + b"(" * 60_000 + b"\n.",
        b"B\xff\xff\xff\xff.",
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR(I1\n(I-1\ntNI00\nS''\ntb.",
        b"ios\nsystem\n.",
    ],
)
def test_damaged_and_crafted_pickles_are_refused(data: bytes) -> None:
    with pytest.raises(FileError):
        loads(data)


def test_a_few_bytes_do_not_take_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (
        loads(b"]r\xff\xff\xff\xff.") == []
    )  # a memo place that costs the standard unpickler gigabytes
    doubled = (
        b"]"
        + b"".join(
            b"q" + bytes([i]) + b"]h" + bytes([i]) + b"ah" + bytes([i]) + b"a" for i in range(60)
        )
        + b"."
    )
    loads(doubled)  # 2^60 leaves, 120 references
    deep = loads(b"(" * 1 + b"]" * 100_000 + b"a" * 99_999 + b".")
    assert len(deep) == 1
    monkeypatch.setattr(pickles, "MAX_OBJECTS", 1000)
    with pytest.raises(FileError, match="more than 1,000 objects"):
        loads(b"]" * 2000 + b".")
    monkeypatch.setattr(pickles, "MAX_INTEGERS", 1000)
    with pytest.raises(FileError, match="more than 1,000 integers"):
        loads(pickle.dumps(list(range(5000))))


def test_a_memoised_string_is_not_encoded_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 KiB, kept in the memo and encoded 10,000 times, would be 640 MB of bytes from a file of
    190 KiB.
    """
    text = b"X" + struct.pack("<I", 1 << 16) + b"a" * (1 << 16)
    call = b"h\x01h\x00\x85R"
    crafted = text + b"q\x00c_codecs\nencode\nq\x01" + b"(" + call * 10_000 + b"l."
    with pytest.raises(FileError, match="more than 536,870,912 bytes of arrays"):
        loads(crafted)
    array = pickle.dumps(np.arange(1000), 2)
    assert np.array_equal(loads(array), np.arange(1000))
    monkeypatch.setattr(pickles, "MAX_MADE", 1000)
    with pytest.raises(FileError, match="more than 1,000 bytes of arrays"):
        loads(array)


def test_an_enormous_file_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "LUP.pkl").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(FileError, match="over the limit"):
        read_pickle(tmp_path / "LUP.pkl")


def archive(path: Path, **entries: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        for name, data in entries.items():
            target.writestr(name, data)
    return path


def entry(path: Path, name: str, data: bytes = b"x", mode: int = 0, flags: int = 0) -> Path:
    info = zipfile.ZipInfo("placeholder")
    info.filename = info.orig_filename = name
    info.external_attr = mode << 16
    with zipfile.ZipFile(path, "w") as target:
        target.writestr("fine.txt", b"fine")
        target.writestr(info, data)
    if flags:
        raw = bytearray(path.read_bytes())
        at = raw.rindex(b"PK\x01\x02") + 8
        raw[at : at + 2] = struct.pack("<H", flags)
        path.write_bytes(bytes(raw))
    return path


@pytest.mark.parametrize(
    "name",
    [
        "../out.txt",
        "a/../../out.txt",
        "/tmp/out.txt",
        "..\\out.txt",
        "C:/out.txt",
        "a/./../..//../out.txt",
        "a\nb",
    ],
)
def test_names_that_lead_out_are_refused(tmp_path: Path, name: str) -> None:
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    with pytest.raises(FileError, match="leads out"):
        unzip.unzip(entry(tmp_path / "x.zip", name), inside)
    assert not list(inside.iterdir())  # not even the good entry


def test_links_devices_encryption_and_doubles_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for mode in (stat.S_IFLNK | 0o777, stat.S_IFCHR, stat.S_IFIFO):
        with pytest.raises(FileError, match="link or a device"):
            unzip.unzip(entry(tmp_path / "x.zip", "link", b"/etc/passwd", mode), out)
    with pytest.raises(FileError, match="encrypted"):
        unzip.unzip(entry(tmp_path / "x.zip", "secret", flags=1), out)
    with pytest.raises(FileError, match="two entries"):
        unzip.unzip(entry(tmp_path / "x.zip", "FINE.txt"), out)
    assert not list(out.iterdir())


def test_bombs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(FileError, match="would unpack to 20,000,000"):
        unzip.unzip(archive(tmp_path / "x.zip", zeros=bytes(20_000_000)), out)
    many = {f"f{i}": bytes(1_000_000) for i in range(12)}  # each small enough, not together
    with pytest.raises(FileError, match="would unpack to 12,000,000"):
        unzip.unzip(archive(tmp_path / "x.zip", **many), out)
    monkeypatch.setattr(unzip, "MAX_ENTRIES", 10)
    with pytest.raises(FileError, match="12 entries"):
        unzip.unzip(tmp_path / "x.zip", out)
    monkeypatch.setattr(unzip, "MAX_TOTAL", 100)
    with pytest.raises(FileError, match="limit is 100"):
        unzip.unzip(archive(tmp_path / "y.zip", a=bytes(200)), out)
    assert not list(out.iterdir())


def test_an_entry_that_lies_about_its_size_or_content(tmp_path: Path) -> None:
    path = archive(tmp_path / "x.zip", a=os.urandom(5000))
    raw = bytearray(path.read_bytes())
    raw[100] ^= 255
    path.write_bytes(bytes(raw))
    with pytest.raises(FileError, match="damaged"):
        unzip.unzip(path, tmp_path)
    assert not (tmp_path / "a").exists()
    path.write_bytes(b"no archive")
    with pytest.raises(FileError, match="damaged"):
        unzip.unzip(path, tmp_path)

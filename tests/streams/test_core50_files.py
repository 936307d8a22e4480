"""What comes from outside: pickles that are not data, archives that are not honest."""

from __future__ import annotations

import json
import os
import pickle
import resource
import stat
import struct
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primavista.errors import FileError
from primavista.media.decoder import DecoderProcess
from primavista.media.decoder_child import plain_json
from primavista.streams import pickles
from primavista.streams.core50 import unzip
from primavista.streams.pickles import loads, read_pickle


@pytest.fixture(scope="module")
def child() -> Iterator[DecoderProcess]:
    process = DecoderProcess()
    yield process
    process.close()


@pytest.fixture
def one_child(child: DecoderProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many pickles are read by one child, which otherwise reads one."""

    class Shared:
        read_pickle = child.read_pickle

        def close(self) -> None:
            pass

    monkeypatch.setattr(pickles, "DecoderProcess", Shared)


plain = st.recursive(
    st.integers(-(2**63), 2**63 - 1) | st.text(max_size=20),
    lambda item: (
        st.lists(item, max_size=6)
        | st.tuples(item, item)
        | st.dictionaries(st.text(max_size=5), item, max_size=4)
    ),
    max_leaves=30,
)


def as_lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: as_lists(item) for key, item in value.items()}
    return [as_lists(item) for item in value] if isinstance(value, list | tuple) else value


@settings(max_examples=200, deadline=None)
@given(plain, st.integers(0, 5))
def test_plain_data_comes_back(value: Any, protocol: int) -> None:
    assert json.loads(plain_json(pickle.dumps(value, protocol))) == as_lists(value)


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
        {"ni": [1, 2]},
    ]


def test_a_part_of_a_pickle_is_read_by_its_keys() -> None:
    table = pickle.dumps({"nic": [[[0, 1], (2, 3)], [[4]]]}, 2)
    assert loads(table, "LUP.pkl", "nic", 0) == [[0, 1], [2, 3]]
    assert loads(table, "LUP.pkl", "ni", 0) is None
    with pytest.raises(FileError, match=r"LUP\.pkl"):
        loads(table, "LUP.pkl", "nic", 2)
    names = pickle.dumps(np.array(["s1/o1", "s1/o2"]), 2)
    assert loads(names, "paths.pkl", 1) == "s1/o2"


class Payload:
    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call


@pytest.mark.usefixtures("one_child")
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


@pytest.mark.usefixtures("one_child")
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


@pytest.mark.skipif(sys.platform != "linux", reason="needs limits of memory")
@pytest.mark.parametrize(
    "data",
    [
        b"]r\xff\xff\xff\xff.",  # a place in the memo that costs gigabytes
        # lists of lists: 2^60 leaves, 120 references
        b"]" + b"".join(b"q%c]h%cah%ca" % (i, i, i) for i in range(60) if i != 10) + b".",
        b"]" * 100_000 + b"a" * 99_999 + b".",  # nested too deeply
        # 64 KiB, kept in the memo and encoded 100,000 times: 6.4 GB from 600 KiB
        b"X\x00\x00\x01\x00" + b"a" * (1 << 16) + b"q\x00c_codecs\nencode\nq\x01"
        b"(" + b"h\x01h\x00\x85R" * 100_000 + b"l.",
    ],
    ids=["memo", "doubled", "deep", "encoded"],
)
def test_a_few_bytes_do_not_take_much_memory(
    data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pickles, "MAX_MEMORY", 2**28)
    monkeypatch.setattr(pickles, "MAX_SECONDS", 5.0)
    (tmp_path / "LUP.pkl").write_bytes(data)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.monotonic()
    with pytest.raises(FileError, match=r"LUP\.pkl"):
        read_pickle(tmp_path / "LUP.pkl")
    assert time.monotonic() - began < 30
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 2**10  # KiB


def test_a_pickle_takes_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickles, "MAX_SECONDS", 0.001)
    with pytest.raises(FileError, match=r"more than 0\.001 seconds"):
        loads(pickle.dumps(list(range(100_000))))


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

"""Saved learners: whole or not at all, checked to the last bit, readable by later versions."""

from __future__ import annotations

import json
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save as save_safetensors

from primavista import FileError, Learner
from primavista.storage import learner_file as files
from primavista.strategies.builtin import STRATEGIES

ONE_OF_EACH_CLASS = {info.where: name for name, info in reversed(STRATEGIES.items())}.values()
GOLDEN = Path(__file__).parents[1] / "golden"


def frames(seed: int) -> np.ndarray:
    base = np.random.default_rng(seed).integers(0, 200, 3)
    noise = np.random.default_rng(seed + 100).integers(0, 55, (6, 32, 32, 3))
    return (base + noise).astype(np.uint8)


def tiny(strategy: str = "cwr*") -> Learner:
    learner = Learner(strategy, weights="random", width=0.0625, size=32)
    for k, name in enumerate(["mug", "kettle"]):
        learner.learn(frames(k), name)
    return learner


@pytest.fixture(scope="module")
def good() -> bytes:
    learner = tiny()
    path = GOLDEN.parent / f".good.{os.getpid()}.pv"
    learner.save(path)
    data = path.read_bytes()
    path.unlink()
    return data


@pytest.mark.parametrize("strategy", ONE_OF_EACH_CLASS)
def test_saved_and_loaded_is_the_same_learner(strategy, tmp_path):
    """Equal state gives equal bytes.

    Loaded, it predicts and goes on learning bit for bit the same.
    """
    learner = tiny(strategy)
    learner.save(tmp_path / "a.pv")
    loaded = Learner.load(tmp_path / "a.pv")
    loaded.save(tmp_path / "b.pv")
    assert (tmp_path / "a.pv").read_bytes() == (tmp_path / "b.pv").read_bytes()
    assert loaded.predict(frames(0)) == learner.predict(frames(0))
    for one in (learner, loaded):
        one.learn(frames(3), "cup")
        one.save(tmp_path / f"{id(one)}.pv")
    assert (tmp_path / f"{id(learner)}.pv").read_bytes() == (
        tmp_path / f"{id(loaded)}.pv"
    ).read_bytes()


def test_a_file_cut_off_anywhere_is_refused(good, tmp_path):
    path = tmp_path / "cut.pv"
    for length in [
        0,
        1,
        7,
        8,
        9,
        100,
        *random.Random(0).sample(range(len(good)), 40),
        len(good) - 1,
    ]:
        path.write_bytes(good[:length])
        with pytest.raises(FileError, match=r"cut\.pv"):
            Learner.load(path)


@settings(max_examples=150, deadline=None)
@given(where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_anywhere_is_noticed(good, where, bit):
    data = bytearray(good)
    data[int(where * len(data))] ^= 1 << bit
    with pytest.raises(FileError):
        files.decode(bytes(data), "flipped.pv")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"hello",
        os.urandom(5000),
        b"\x89PNG\r\n\x1a\n" + bytes(100),
        pickle.dumps({"a": 1}),
        b"\xff" * 64,
        save_safetensors({"a": np.zeros(3)}),
        save_safetensors({"a": np.zeros(3)}, {"format": "pt"}),
        save_safetensors({"a": np.zeros(3)}, {"primavista": "[" * 100_000}),
    ],
    ids=["empty", "text", "noise", "png", "pickle", "ones", "safetensors", "torch", "nested"],
)
def test_a_foreign_file_is_refused(data, tmp_path):
    (tmp_path / "x.pv").write_bytes(data)
    with pytest.raises(FileError, match=r"x\.pv"):
        Learner.load(tmp_path / "x.pv")


def test_a_missing_file_and_a_folder_say_so(tmp_path):
    with pytest.raises(FileError, match="No such file"):
        Learner.load(tmp_path / "none.pv")
    with pytest.raises(FileError, match="directory"):
        Learner.load(tmp_path)
    with pytest.raises(FileError, match="not an ordinary file"):
        Learner.load("/dev/zero")


def altered(good: bytes, change) -> bytes:
    """The same file with another manifest, its checksum made right: what an attacker would send."""
    arrays, manifest = files.decode(good, "good")
    change(manifest, arrays)
    return files.encode(arrays, manifest)


def test_a_file_of_a_newer_format_says_so(good, tmp_path):
    (tmp_path / "new.pv").write_bytes(altered(good, lambda m, a: m.update(format=2, surprise=1)))
    with pytest.raises(FileError, match=r"format 2.*up to 1.*upgrade"):
        Learner.load(tmp_path / "new.pv")


@pytest.mark.parametrize(
    "change",
    [
        lambda m, a: m["backbone"].update(size=10**9),
        lambda m, a: m["backbone"].update(name="../../etc/passwd"),
        lambda m, a: m["backbone"]["options"].update(width=1e9),
        lambda m, a: m["backbone"]["options"].update(width=-1),
        lambda m, a: m["strategy"].update(name="os:system"),
        lambda m, a: m["strategy"]["options"].update(capacity=10**12),
        lambda m, a: m["strategy"]["options"].update(head="__import__('os')"),
        lambda m, a: m["strategy"]["options"].update(evil=1),
        lambda m, a: m["classes"].append({"id": 99, "name": "ghost", "frames": 1}),
        lambda m, a: m["classes"].append(m["classes"][0]),
        lambda m, a: m["classes"][0].update(name=""),
        lambda m, a: m["classes"][0].update(id=-1),
        lambda m, a: m.update(unknown=1),
        lambda m, a: m.pop("undo"),
        lambda m, a: m["undo"]["tensors"].append("ghost"),
        lambda m, a: a.pop("head.cw"),
        lambda m, a: a.update(extra=np.zeros(1)),
        lambda m, a: a.update({"head.cw": np.zeros((64, 3), np.float32)}),
        lambda m, a: a.update({"head.cw": a["head.cw"].astype(np.float64)}),
        lambda m, a: a.update(classes=np.array([-1, 1])),
        lambda m, a: a.update({"head.cw": a["head.cw"][:1], "head.past": a["head.past"][:1]}),
        lambda m, a: a.update({"head.cw": a["head.cw"] * np.float32("nan")}),
        lambda m, a: m["backbone"].update(std=[0, 1, 1]),
        lambda m, a: m["backbone"]["options"].update(width=4),
        lambda m, a: m["strategy"]["options"].update(capacity=2**15),
        lambda m, a: m["strategy"]["options"].update(epochs=10**9),
        lambda m, a: m["strategy"]["options"].update(compat=5),
        lambda m, a: m["backbone"]["options"].update(width=-1e308),
        lambda m, a: m.update(format=-3),
        lambda m, a: m.update(next_id=0),
        lambda m, a: m.update(threshold=7),
    ],
)
def test_a_hostile_manifest_with_a_right_checksum_is_refused(good, tmp_path, change):
    (tmp_path / "evil.pv").write_bytes(altered(good, change))
    with pytest.raises(FileError, match=r"evil\.pv"):
        Learner.load(tmp_path / "evil.pv")


def test_a_full_disk_leaves_the_old_file_and_no_litter(good, tmp_path, monkeypatch):
    path = tmp_path / "kitchen.pv"
    path.write_bytes(good)
    learner = Learner.load(path)
    learner.learn(frames(5), "new")

    def no_space(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(FileError, match=r"No space left on device.*untouched"):
        learner.save(path)
    assert path.read_bytes() == good
    assert [p.name for p in tmp_path.iterdir()] == ["kitchen.pv"]


@pytest.mark.slow
def test_a_real_limit_on_file_size_likewise(good, tmp_path):
    """The kernel refuses the write half-way: RLIMIT_FSIZE stands for the full disk."""
    path = tmp_path / "kitchen.pv"
    path.write_bytes(good)
    code = f"""
import resource, signal
from primavista import Learner, FileError
learner = Learner.load({str(path)!r})
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    learner.save({str(path)!r})
except FileError as error:
    print("refused:", error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert "refused: cannot write" in done.stdout, done.stderr
    assert path.read_bytes() == good
    assert [p.name for p in tmp_path.iterdir()] == ["kitchen.pv"]


def test_a_folder_that_is_not_there_says_so(tmp_path):
    with pytest.raises(FileError, match="cannot write in"):
        tiny().save(tmp_path / "no" / "such" / "folder" / "a.pv")


@pytest.mark.slow
def test_killed_while_saving_the_file_is_always_whole(tmp_path):
    """SIGKILL at random moments: what is there is either the old learner or the new one."""
    path = tmp_path / "killed.pv"
    code = f"""
import numpy as np, itertools
from primavista import Learner
learner = Learner("cwr*", weights="random", width=0.0625, size=32)
for k in itertools.count():
    learner.learn(np.full((2, 32, 32, 3), k % 250, np.uint8), f"object {{k % 5}}")
    learner.save({str(path)!r})
    print(k, flush=True)
"""
    draw = random.Random(1)
    for _ in range(4):
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(draw.uniform(0, 0.25))
        process.send_signal(signal.SIGKILL)
        process.wait()
        acknowledged = [int(line) for line in process.stdout.read().split()]
        process.stdout.close()
        loaded = Learner.load(path)
        assert len(loaded._state.lessons) >= len(acknowledged) + 1


@pytest.mark.parametrize("name", ["cwr_star", "ar1_star", "dslda", "prima"])
def test_files_of_the_first_format_load(name, tmp_path):
    """Written by tests/golden/make.py when the format was made.

    If this fails, the format needs a new number and a reader of the old.
    """
    learner = Learner.load(GOLDEN / f"{name}.pv", device="cpu")
    expected = json.loads((GOLDEN / f"{name}.json").read_text())
    assert learner.labels == expected["labels"]
    assert learner.counts == expected["counts"]
    image = (np.arange(32 * 32 * 3).reshape(32, 32, 3) * 7 % 256).astype(np.uint8)
    assert learner.predict(image).scores == pytest.approx(expected["scores"], abs=2e-3)
    learner.learn(frames(9), "later")
    learner.undo()
    assert learner.labels == expected["labels"]
    loaded = Learner.load(GOLDEN / f"{name}.pv", device="cpu")
    assert loaded.to_bytes() == (GOLDEN / f"{name}.pv").read_bytes()
    loaded.undo()
    assert loaded.labels == expected["labels_before"]


def test_no_pickle_is_ever_read_from_a_file_or_written_to_one():
    for path in Path(files.__file__).parent.rglob("*.py"):
        text = path.read_text()
        for word in (
            "pickle.load",
            "Unpickler(",
            "torch.save(",
            "allow_pickle=True",
            "eval(compile",
        ):
            assert word not in text, f"{path.name}: {word}"
        assert "torch.load(" not in text or "weights_only=True" in text, path


def test_random_state_is_untouched():
    before = torch.get_rng_state()
    tiny()
    assert torch.get_rng_state().equal(before)


def test_weights_published_in_half_precision_take_two_bytes_per_number(tmp_path):
    """The network of the package has them; it comes back to the bit, and one number off stays."""
    learner = Learner("ncm", size=32, device="cpu", engine="torch")
    learner.learn(frames(0), "mug")
    learner.save(tmp_path / "a.pv")
    arrays, manifest = files.read(tmp_path / "a.pv")
    network = {name: a for name, a in arrays.items() if name.startswith("backbone.")}
    assert {str(a.dtype) for a in network.values()} <= {"float16", "int64"}
    assert sum(a.nbytes for a in network.values()) < 7e6
    loaded = Learner.load(tmp_path / "a.pv", device="cpu")
    ours, theirs = (one.strategy.network.backbone.state_dict() for one in (learner, loaded))
    for name, tensor in ours.items():
        assert theirs[name].dtype == tensor.dtype
        assert torch.equal(theirs[name], tensor), name
    assert loaded.to_bytes() == (tmp_path / "a.pv").read_bytes()
    weight = next(loaded.strategy.network.backbone.parameters())
    with torch.no_grad():
        weight[0, 0, 0, 0] += 1e-4
    assert {str(a.dtype) for n, a in loaded.content()[0].items() if n in network} <= {
        "float32",
        "int64",
    }
    again = Learner.from_bytes(loaded.to_bytes(), device="cpu")
    assert torch.equal(next(again.strategy.network.backbone.parameters()), weight)
    name = next(name for name, a in network.items() if a.dtype == np.float16)
    bad = {**arrays, name: arrays[name] * np.float16(np.nan)}
    with pytest.raises(FileError, match="NaN"):
        Learner.from_bytes(files.encode(bad, manifest), device="cpu")

"""The page refuses the altered files that Python refuses, and loads those that Python loads."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from web_support import call_page, opened

from primavista import FileError, Learner
from primavista.learner.export import export
from primavista.storage import learner_file as files

pytestmark = pytest.mark.slow
Change = Callable[[dict[str, Any], dict[str, np.ndarray]], object]


def clip(seed: int) -> np.ndarray:
    base = np.random.default_rng(seed).integers(0, 200, (1, 8, 8, 3))
    noise = np.random.default_rng(seed + 100).integers(0, 55, (6, 64, 64, 3))
    return (base.repeat(8, 1).repeat(8, 2) + noise).astype(np.uint8)


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> dict[str, bytes]:
    """A small file of prima with a graph inside, and one of ncm with the network of the package."""
    folder = tmp_path_factory.mktemp("good")
    small = Learner("prima", weights="random", width=0.25, size=64, device="cpu")
    for k, name in enumerate(["mug", "kettle", "mug", "cup"]):
        small.learn(clip(k), name)
    ncm = Learner("ncm", engine="onnx", size=64, device="cpu")
    for k, name in enumerate(["mug", "kettle"]):
        ncm.learn(clip(k), name)
    ncm.save(folder / "ncm.pv")
    path = export(small, folder / "prima.pv", "portable")
    return {"prima": path.read_bytes(), "ncm": (folder / "ncm.pv").read_bytes()}


def altered(data: bytes, change: Change) -> bytes:
    """The same file with other contents and a right checksum: what an attacker would send."""
    arrays, manifest = files.decode(data, "good")
    arrays = {name: array.copy() for name, array in arrays.items()}
    change(manifest, arrays)
    return files.encode(arrays, manifest)


def at(name: str, where: Any, value: Any) -> Change:
    """Set some numbers of an array."""

    def change(m: dict[str, Any], a: dict[str, np.ndarray]) -> None:
        a[name][where] = value

    return change


def becomes(name: str, make: Callable[[np.ndarray], np.ndarray]) -> Change:
    """Replace an array."""

    def change(m: dict[str, Any], a: dict[str, np.ndarray]) -> None:
        a[name] = make(a[name])

    return change


def sixth(x: np.ndarray) -> np.ndarray:
    return np.concatenate([x, x[:, :1]], axis=1)


PRIMA: dict[str, Change] = {
    "nothing": lambda m, a: None,  # loads
    "large size": lambda m, a: m["backbone"].update(size=10**9),
    "size over the limit": lambda m, a: m["backbone"].update(size=600),
    "true for a size": lambda m, a: m["backbone"].update(size=True),
    "a size with a point": lambda m, a: m["backbone"].update(size=64.0),
    "another strategy": lambda m, a: m["strategy"].update(name="os:system"),
    "an option": lambda m, a: m["strategy"]["options"].update(evil=1),
    "a long name": lambda m, a: m["classes"][0].update(name="x" * 201),
    "a name of 200 emoji": lambda m, a: m["classes"][0].update(name="\U0001f375" * 200),  # loads
    "a ghost": lambda m, a: m["classes"].append({"id": 99, "name": "ghost", "frames": 1}),
    "an object twice": lambda m, a: m["classes"].append(m["classes"][0]),
    "two of one name": lambda m, a: m["classes"][0].update(name="kettle"),
    "no name": lambda m, a: m["classes"][0].update(name=""),
    "a negative id": lambda m, a: m["classes"][0].update(id=-1),
    "half a frame": lambda m, a: m["classes"][0].update(frames=6.5),
    "fewer frames than lessons": lambda m, a: m["classes"][0].update(frames=1),
    "more frames than can be": lambda m, a: m["classes"][0].update(frames=2**53),
    "an unknown field": lambda m, a: m.update(unknown=1),
    "a field of a class": lambda m, a: m["classes"][0].update(colour="red"),
    "no undo": lambda m, a: m.pop("undo"),
    "undo without tensors": lambda m, a: m["undo"].pop("tensors"),
    "an undo tensor": lambda m, a: m["undo"]["tensors"].append("ghost"),
    "undo of more lessons": lambda m, a: m["undo"]["classes"][0].update(id=7),
    "no format": lambda m, a: m.pop("format"),
    "a negative format": lambda m, a: m.update(format=-3),
    "a newer format": lambda m, a: m.update(format=2),
    "an id in use": lambda m, a: m.update(next_id=0),
    "a threshold": lambda m, a: m.update(threshold=7),
    "a threshold of 1": lambda m, a: m.update(threshold=1),  # loads
    "another engine": lambda m, a: m.update(engine="gpu"),
    "a deviation of 0": lambda m, a: m["backbone"].update(std=[0, 1, 1]),
    "four means": lambda m, a: m["backbone"].update(mean=[0.5] * 4),
    "a seed": lambda m, a: m["strategy"].update(seed=2**63),
    "lessons that are numbers": lambda m, a: m.update(lessons=[1, 2, 3, 4]),
    "a test of no frames": lambda m, a: m["classes"][0].update(
        held_out=[[{"id": 0, "frames": 0, "known": 0}]]
    ),
    "a test that knows more": lambda m, a: m["classes"][0].update(
        held_out=[[{"id": 0, "frames": 1, "known": 2}]]
    ),
    "a test of another": lambda m, a: m["classes"][0].update(
        held_out=[[{"id": 77, "frames": 2, "known": 1}]]
    ),  # loads: that object may have been forgotten
    "an array more": lambda m, a: a.update(extra=np.zeros(1)),
    "an array of the head more": lambda m, a: a.update({"moments.q": np.zeros(3)}),
    "no counts": lambda m, a: a.pop("moments.n"),
    "no keys": lambda m, a: a.pop("lessons.key"),
    "no classes": lambda m, a: a.pop("classes"),
    "negative classes": lambda m, a: a.update(classes=np.array([-1, 1, 2])),
    "equal classes": lambda m, a: a.update(classes=np.array([0, 0, 1])),
    "classes of another type": lambda m, a: a.update(classes=np.array([0, 1, 2], np.int32)),
    "more classes": lambda m, a: a.update(classes=np.array([0, 1, 2, 3])),
    "batches in a list": lambda m, a: a.update(batches=np.array([4])),
    "half a lesson": at("moments.n", 0, 1.5),
    "a negative count": at("moments.n", 0, -1),
    "no lesson": at("moments.n", 1, 0),
    "more lessons": at("moments.n", 0, 7),
    "a total": lambda m, a: a.update({"moments.t": np.array(1.0)}),
    "half a total": lambda m, a: a.update({"moments.t": np.array(4.5)}),
    "sums of another type": lambda m, a: a.update({"moments.s": a["moments.s"].astype("f4")}),
    "sums of other features": lambda m, a: a.update({"moments.s": a["moments.s"][:, :-1]}),
    "sums that are not finite": at("moments.s", (0, 0), np.nan),
    "sums that are too large": at("moments.s", (0, 0), 1e300),
    "sums that G denies": at("moments.s", (0, 0), 1e6),
    "G of 0": at("moments.gram", slice(None), 0),
    "G that is infinite": at("moments.gram", 0, [0, 0, 0, 240, 127]),
    "G that is too large": at("moments.gram", 0, [0, 0, 0, 239, 127]),
    "G of six bytes": lambda m, a: a.update({"moments.gram": sixth(a["moments.gram"])}),
    "G of another size": lambda m, a: a.update({"moments.gram": a["moments.gram"][:-1]}),
    "a negative key": at("lessons.key", (0, 0), -1),
    "keys out of order": at("lessons.key", (0, 0), 2**62),
    "a class without lessons": at("lessons.key", (1, 0), 0),
    "a lesson more": at("lessons.key", (1, 1), 2**60),
    "a hole among the keys": lambda m, a: a["lessons.key"].__setitem__(
        0, [0, *a["lessons.key"][0, :2], 0]
    ),
    "a lesson without a mean": lambda m, a: a.update({"lessons.mean": a["lessons.mean"][1:]}),
    "a mean that is not finite": at("lessons.mean", (0, 0), np.inf),
    "means of another type": lambda m, a: a.update(
        {"lessons.mean": a["lessons.mean"].astype("f8")}
    ),
    "a spread": at("lessons.spread", (0, 0), 2),
    "a centre of other features": lambda m, a: a.update(
        {"lessons.centre": a["lessons.centre"][1:]}
    ),
    "a larger sample": lambda m, a: a.update({"lessons.key": np.ones((9, 4), np.int64)}),
    "undo rows that are not there": at("undo/moments.rows", 0, 9),
    "undo rows twice": at("undo/lessons.rows", slice(None), 0),
    "undo rows of another type": lambda m, a: a.update(
        {"undo/moments.rows": a["undo/moments.rows"].astype("f8")}
    ),
    "an undo factor of other features": lambda m, a: a.update(
        {"undo/moments.added": a["undo/moments.added"][:, 1:]}
    ),
    "an undo factor of many rows": lambda m, a: a.update(
        {"undo/moments.added": np.zeros((129, a["lessons.centre"].size), np.float32)}
    ),
    "an undo factor that is not finite": at("undo/moments.added", (0, 0), np.nan),
    "an undo factor that is too large": at("undo/moments.added", slice(None), 1e30),
    "no undo rows": lambda m, a: a.pop("undo/moments.changed_n"),
    "undo of what is not there": lambda m, a: a.update({"undo/ghost": np.zeros(2)}),  # loads
    "facts that are no facts": lambda m, a: a.update({"onnx/facts": np.arange(9, dtype=np.uint8)}),
    "a deviation below 0": lambda m, a: a.update({"backbone.x.sigma": np.array([-1], np.float32)}),
}

NCM: dict[str, Change] = {
    "nothing": lambda m, a: None,  # loads
    "a network that is not there": lambda m, a: m["backbone"].update(name="../../etc/passwd"),
    "another width": lambda m, a: m["backbone"]["options"].update(width=4),
    "a weight less": lambda m, a: a.pop("backbone.body.stem.conv.weight"),
    "a weight of another shape": lambda m, a: a.update(
        {"backbone.body.stem.conv.weight": a["backbone.body.stem.conv.weight"][:-1]}
    ),
    "a weight that is not finite": at("backbone.body.stem.conv.weight", 0, np.inf),
    "a variance below 0": at("backbone.body.stem.bn.running_var", 0, -1),
    "counts that the manifest denies": lambda m, a: m["classes"][0].update(frames=5),
    "squares below the sums": at("moments.q", 0, 0),
    "squares that are too large": at("moments.q", 0, 1e300),
    "squares of other classes": lambda m, a: a.update({"moments.q": a["moments.q"][:-1]}),
    "a Gram matrix": lambda m, a: a.update({"moments.gram": np.zeros(10)}),
}


def foreign(data: bytes) -> dict[str, bytes]:
    """Bytes that are no files, and files that were cut off or damaged anywhere."""
    draw = random.Random(0)
    found = {
        "empty": b"",
        "text": b"hello",
        "noise": os.urandom(5000),
        "png": b"\x89PNG\r\n\x1a\n" + bytes(100),
        "ones": b"\xff" * 64,
    }
    for length in [1, 7, 8, 9, 100, *draw.sample(range(len(data)), 6), len(data) - 1]:
        found[f"cut at {length}"] = data[:length]
    for _ in range(20):
        flipped = bytearray(data)
        place = draw.randrange(len(data)) if draw.random() < 0.5 else draw.randrange(20_000)
        flipped[place] ^= 1 << draw.randrange(8)
        found[f"flipped at {place}"] = bytes(flipped)
    return found


def in_python(data: bytes) -> str | None:
    """Load a file as on a machine without torch; return why it is refused."""
    try:
        Learner.from_bytes(data, "it", engine="onnx", device="cpu")
    except FileError as error:
        return str(error)
    return None


def in_the_page(cases: dict[str, bytes], folder: Path) -> dict[str, str | None]:
    """Load the files one after the other into the page's learner."""
    calls = [opened()]
    for k, data in enumerate(cases.values()):
        (folder / f"{k}.pv").write_bytes(data)
        fields = {"file": {"bytes": str(folder / f"{k}.pv")}, "name": "it"}
        calls.append({"call": "change", "args": ["load", fields]})
    results = call_page(calls, folder)[1:]
    assert all(one.get("status") == 422 for one in results if "refused" in one)
    return {name: one.get("refused") for name, one in zip(cases, results, strict=True)}


@pytest.mark.parametrize(("kind", "changes"), [("prima", PRIMA), ("ncm", NCM)])
def test_both_refuse_the_same_altered_files(kind, changes, good, tmp_path):
    cases = {name: altered(good[kind], change) for name, change in changes.items()}
    found = in_the_page(cases, tmp_path)
    expected = {name: in_python(data) for name, data in cases.items()}
    assert found["nothing"] is None
    differ = {
        name: (found[name], why)
        for name, why in expected.items()
        if (found[name] is None) != (why is None)
    }
    assert not differ
    assert all(why is None or "it" in why for why in found.values())


def test_both_refuse_what_is_not_a_whole_file(good, tmp_path):
    cases = foreign(good["prima"])
    found = in_the_page(cases, tmp_path)
    assert all(in_python(data) for data in cases.values())
    assert not [name for name, why in found.items() if why is None]


def test_a_network_that_comes_in_a_file_gives_the_answers_of_python(good, tmp_path):
    images = np.stack([clip(k)[0] for k in (0, 1, 3, 8)])
    (tmp_path / "small.pv").write_bytes(good["prima"])
    calls = [opened(file={"bytes": str(tmp_path / "small.pv")})]
    calls += [{"call": "recognise", "args": [{"frame": k}]} for k in range(len(images))]
    calls += [{"call": "file", "save": str(tmp_path / "again.pv")}]
    results = call_page(calls, tmp_path, images)[1:-1]
    assert (tmp_path / "again.pv").read_bytes() == good["prima"]
    learner = Learner.from_bytes(good["prima"], engine="onnx", device="cpu")
    for found, image in zip(results, images, strict=True):
        expected = learner.predict(image)
        assert (found["label"], found["answer"]) == (expected.label, expected.answer)
        assert found["familiarity"] == pytest.approx(expected.familiarity, abs=1e-3)
        shares = {one["label"]: one["share"] for one in found["scores"]}
        assert shares == pytest.approx(expected.scores, abs=1e-3)

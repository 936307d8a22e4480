"""The parts of the page in their small form: what the page unpacks is what Python packed."""

from __future__ import annotations

import lzma
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from web_support import DATA, LEARNER, program

from primavista import Learner
from primavista.backbones.reference import generic_frames
from primavista.heads.statistics import unpack_lower
from primavista.web.packed_model import packed_model, packed_network

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import build_web

NETWORK = (DATA / "mobilenet_v1_objects_fp16.safetensors").read_bytes()


def converted(module: str, expression: str, data: bytes, folder: Path) -> bytes:
    """Return `expression` of the bytes `data`, with the exports of a module of the page."""
    (folder / "in").write_bytes(data)
    script = (
        f'import * as own from "{(LEARNER / module).as_uri()}";'
        f'import * as network from "{(LEARNER / "network.js").as_uri()}";'
        'import { readFileSync, writeFileSync } from "node:fs";'
        'const data = new Uint8Array(readFileSync("in"));'
        f'writeFileSync("out", {expression});'
    )
    (folder / "script.mjs").write_text(script, encoding="utf-8")
    subprocess.run([program(), "script.mjs"], cwd=folder, check=True)
    return (folder / "out").read_bytes()


@pytest.mark.parametrize("kind", ["empty", "one", "noise", "text", "runs", "records", "far"])
def test_what_is_compressed_with_lzma_comes_back(kind, tmp_path):
    draw = random.Random(0)
    text = "".join(draw.choice("abc \n") for _ in range(9000)).encode()
    data = {
        "empty": b"",
        "one": b"x",
        "noise": draw.randbytes(70_000),
        "text": text * 3,
        "runs": b"".join(bytes([k % 7]) * (k * k) for k in range(90)),
        "records": np.arange(40_000, dtype="<u4").tobytes(),
        "far": text + bytes(3_000_000) + text + draw.randbytes(300) + text,
    }[kind]
    compressed = build_web.compressed(data)
    assert lzma.decompress(compressed) == data
    assert converted("lzma.js", "own.unlzma(data)", compressed, tmp_path) == data


def test_damaged_lzma_is_an_error(tmp_path):
    compressed = build_web.compressed(b"abcdefgh" * 1000)
    damaged = compressed[:14] + bytes(4) + compressed[18:]
    with pytest.raises(subprocess.CalledProcessError):
        converted("lzma.js", "own.unlzma(data)", damaged, tmp_path)


@pytest.fixture(scope="module")
def taught() -> tuple[Learner, np.ndarray]:
    """A learner of four objects, two of them with two lessons, and frames to show it."""
    frames = generic_frames(192)
    learner = Learner("prima", engine="onnx", device="cpu")
    for k, name in enumerate(["cup", "ball", "pen", "box", "cup", "ball"]):
        clip = np.stack([np.roll(frames[k % 4], 3 * i + 20 * k, axis=1) for i in range(5)])
        learner.learn(clip, name)
    shown = [np.roll(frames[k], 9, axis=1) for k in (0, 1, 2, 3, 20, 30)]
    return learner, np.stack(shown)


def unpacked(learner: Learner, folder: Path) -> Learner:
    """Return the learner that the page unpacks."""
    packed = packed_model(learner, NETWORK)
    (folder / "network").write_bytes(packed_network(NETWORK))
    weights = 'network.shippedWeights(new Uint8Array(readFileSync("network")))'
    file = converted("packed_model.js", f"own.unpacked(data, {weights})", packed, folder)
    return Learner.from_bytes(file)


def test_the_page_begins_with_the_rounded_model(taught, tmp_path):
    learner, shown = taught
    found = unpacked(learner, tmp_path)
    assert found.counts == learner.counts
    assert not found.can_undo
    for before, after in zip(learner.predict(shown), found.predict(shown), strict=True):
        assert (after.label, after.answer) == (before.label, before.answer)
        for name, score in before.scores.items():
            assert abs(after.scores[name] - score) < 1e-3, name
    statistics, rounded = (one.strategy.head.statistics for one in (learner, found))
    start = 0
    for dim in statistics.blocks:
        part = slice(start, start := start + dim * (dim + 1) // 2)
        g, h = (unpack_lower(one.gram[part], dim) for one in (statistics, rounded))
        bound = np.sqrt(np.outer(g.diagonal(), g.diagonal())) * 2.0**-13
        assert (np.tril(abs(h - g)) <= bound).all()
        assert (h.diagonal() >= g.diagonal()).all()


def test_numbers_that_are_rounded_to_zero_from_below_are_zero(taught, tmp_path):
    learner = taught[0].copy()
    s = learner.strategy.head.statistics.s
    before, s[0, 0] = float(s[0, 0]), -1e-12
    try:
        found = unpacked(learner, tmp_path)  # its checksum is that of Python
    finally:
        s[0, 0] = before
    assert not np.signbit(found.strategy.head.statistics.s[0, 0])


def test_a_model_of_another_strategy_or_network_is_whole(taught, tmp_path):
    frames = taught[1]
    ncm = Learner("ncm", engine="onnx", device="cpu")
    other = Learner("ncm", weights="imagenet", engine="onnx", device="cpu")
    for learner in (ncm, other):
        learner.learn(frames[:1], "cup")
        assert unpacked(learner, tmp_path).to_bytes() == learner.without_undo().to_bytes()
    small, large = (len(packed_model(learner, NETWORK)) for learner in (ncm, other))
    assert small < 100_000 < 5_000_000 < large

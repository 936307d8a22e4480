"""The edge has its own copy of the code that saves: the same faults at every step of it."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np

from fault_support import Operation
from primavista import Learner
from primavista.learner.export import export
from primavista.storage import disk


def clip(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 255, (3, 32, 32, 3)).astype(np.uint8)


def test_a_model_of_the_edge_is_the_old_or_the_new_one_after_every_fault(
    edge, tmp_path, monkeypatch
):
    ours = Learner("ncm", weights="random", width=0.0625, size=32, device="cpu")
    for seed, name in enumerate(["mug", "cup"]):
        ours.learn(clip(seed), name)
    export(ours, tmp_path / "k.pv", "edge")
    before = edge.Learner.load(tmp_path / "k.pv")
    before.save(tmp_path / "old.pv")
    after = edge.Learner.load(tmp_path / "k.pv")
    after.learn(clip(2), "bowl")
    after.save(tmp_path / "new.pv")
    old, new = ((tmp_path / name).read_bytes() for name in ("old.pv", "new.pv"))
    assert old != new
    copied = importlib.import_module("primavista_edge.storage.disk")
    assert copied is not disk
    files = importlib.import_module("primavista_edge.storage.learner_file")
    monkeypatch.setattr(files, "encoded", lambda *content: [new[:1000], new[1000:]])

    def prepare(root: Path) -> None:
        (root / "k.pv").write_bytes(old)

    def work(root: Path) -> None:
        after.save(root / "k.pv")

    def check_whole(root: Path) -> None:
        assert (root / "k.pv").read_bytes() in (old, new)

    def check_done(root: Path) -> None:
        assert (root / "k.pv").read_bytes() == new

    errors = (edge.FileError,)
    operation = Operation(prepare, work, check_whole, check_done, copied, errors)
    assert operation.try_all(tmp_path / "root") > 20
    assert edge.Learner.load(tmp_path / "root" / "k.pv").labels == ["mug", "cup", "bowl"]

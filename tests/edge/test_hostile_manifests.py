"""A manifest with a right checksum may still be anybody's: one table of rules for both packages."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import numpy as np
import pytest

from primavista import FileError, InputError, Learner
from primavista.learner.export import export
from primavista.storage import learner_file as files
from primavista.storage import manifest as rules
from primavista.strategies.cwr import CWROptions
from primavista.strategies.frozen import DSLDAOptions, LDAOptions, PrimaOptions, RidgeOptions
from primavista.strategies.options import Options

Change = Callable[[dict[str, Any]], Any]


def clip(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 255, (4, 32, 32, 3)).astype(np.uint8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("manifests")


@cache
def exported(folder, strategy: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The content of a file for the edge, which primavista reads too."""
    learner = Learner(strategy, weights="random", width=0.0625, size=32, device="cpu")
    for k, name in enumerate(["mug", "cup", "bowl"]):
        learner.learn(clip(k), name)
    return files.read(export(learner, folder / "good.edge.pv", "edge"))


def check_refused(edge, folder, strategy: str, change: Change, said: str) -> None:
    arrays, manifest = exported(folder, strategy)
    evil = copy.deepcopy(manifest)
    change(evil)
    files.write(folder / "evil.pv", arrays, evil)
    for load in (lambda path: Learner.load(path, device="cpu"), edge.Learner.load):
        with pytest.raises((FileError, edge.FileError), match=said) as refusal:
            load(folder / "evil.pv")
        assert "evil.pv" in str(refusal.value)


# the 16 manifests that are not those of a learner, among the 18 of the security review
REFUSED: dict[str, tuple[Change, str]] = {
    "unknown field": (lambda m: m.update(surprise=1), "surprise"),
    "frames -5": (lambda m: m["classes"][0].update(frames=-5), r"classes\.0\.frames"),
    "empty name": (lambda m: m["classes"][0].update(name=""), r"classes\.0\.name"),
    "long name": (lambda m: m["classes"][1].update(name="x" * 5000), r"classes\.1\.name"),
    "threshold 7": (lambda m: m.update(threshold=7), "threshold"),
    "threshold nan": (lambda m: m.update(threshold="nan"), "threshold"),
    "size 100000": (lambda m: m["backbone"].update(size=100_000), r"backbone\.size"),
    "size -3": (lambda m: m["backbone"].update(size=-3), r"backbone\.size"),
    "seed 10^99": (lambda m: m["strategy"].update(seed=10**99), r"strategy\.seed"),
    "balance 7": (lambda m: m["strategy"]["options"].update(balance=7), "balance"),
    "lessons are numbers": (lambda m: m.update(lessons=[1, 2, 3]), r"lessons\.0"),
    "next id 0": (lambda m: m.update(next_id=0), "next_id"),
    "next id -7": (lambda m: m.update(next_id=-7), "next_id"),
    "class id -4": (lambda m: m["classes"][0].update(id=-4), r"classes\.0\.id"),
    "name twice": (lambda m: m["classes"][1].update(name="mug"), "classes"),
    "format 2": (lambda m: m.update(format=2), "format 2"),
}
MORE: dict[str, tuple[Change, str]] = {
    "format true": (lambda m: m.update(format=True), "format"),
    "format 1.0": (lambda m: m.update(format=1.0), "format"),
    "no undo": (lambda m: m.pop("undo"), "undo"),
    "undo of a number": (lambda m: m.update(undo=3), "undo"),
    "next id of undo": (lambda m: m["undo"].update(next_id=0), r"undo\.next_id"),
    "frames as text": (lambda m: m["classes"][0].update(frames="4"), r"classes\.0\.frames"),
    "more frames than learned": (lambda m: m["classes"][0].update(frames=5), r"moments\.n"),
    "no frames": (lambda m: m["classes"][0].update(frames=0), r"moments\.n"),
    "2^53 frames": (lambda m: m["classes"][0].update(frames=2**53), r"classes\.0\.frames"),
    "std near 0": (lambda m: m["backbone"].update(std=[1e-300] * 3), r"backbone\.std\.0"),
    "two means": (lambda m: m["backbone"].update(mean=[0.5] * 2), r"backbone\.mean"),
    "mean of texts": (lambda m: m["backbone"].update(mean=["0.5"] * 3), r"backbone\.mean\.0"),
    "options in a list": (lambda m: m["strategy"].update(options=[]), r"strategy\.options"),
    "nested option": (lambda m: m["strategy"]["options"].update(rho=[1]), r"options\.rho"),
    "engine": (lambda m: m.update(engine="cuda"), "engine"),
    "size 2048": (lambda m: m["backbone"].update(size=2048), "2048 x 2048 pixels.*trusted=True"),
}


@pytest.mark.parametrize("case", [*REFUSED, *MORE])
def test_both_refuse_the_same_manifests(edge, folder, case):
    change, said = {**REFUSED, **MORE}[case]
    check_refused(edge, folder, "ridge", change, said)


@pytest.mark.parametrize("threshold", [0, 1])
def test_both_accept_what_is_only_unusual(edge, folder, threshold):
    """The two of the 18 that are in order: a whole number as the threshold."""
    arrays, manifest = exported(folder, "ridge")
    files.write(folder / "odd.pv", arrays, {**manifest, "threshold": threshold})
    assert Learner.load(folder / "odd.pv", device="cpu").threshold == threshold
    assert edge.Learner.load(folder / "odd.pv").threshold == threshold


@pytest.mark.parametrize("value", [301, 10_000])
@pytest.mark.parametrize("option", ["epochs", "epochs_1"])
def test_a_file_cannot_ask_for_hours_of_work(edge, folder, option, value):
    def change(manifest: dict[str, Any]) -> None:
        manifest["strategy"]["options"][option] = value

    check_refused(edge, folder, "cwr*", change, f"{option}={value}.*trusted=True")


@pytest.mark.parametrize("value", [0, 2.0, True, None, "4", 10**6])
def test_both_refuse_wrong_epochs(edge, folder, value):
    def change(manifest: dict[str, Any]) -> None:
        manifest["strategy"]["options"]["epochs"] = value

    check_refused(edge, folder, "cwr*", change, "epochs")


def test_a_trusted_file_may(edge, folder):
    arrays, manifest = exported(folder, "cwr*")
    long = copy.deepcopy(manifest)
    long["strategy"]["options"]["epochs"] = 400
    files.write(folder / "long.pv", arrays, long)
    loaded = Learner.load(folder / "long.pv", device="cpu", trusted=True)
    assert loaded.options["epochs"] == 400
    assert edge.Learner.load(folder / "long.pv", trusted=True).labels == loaded.labels


def test_the_rules_of_options_are_those_of_the_strategies():
    """Every number at the ends of its range, and just beyond them, gets the same answer."""
    kinds = {
        "lda": LDAOptions,
        "ridge": RidgeOptions,
        "prima": PrimaOptions,
        "dslda": DSLDAOptions,
        "cwr*": CWROptions,
    }
    tried = 0
    for strategy, kind in kinds.items():
        assert set(rules.OPTIONS[strategy]) <= {one.name for one in fields(kind)}
        for name, rule in rules.OPTIONS[strategy].items():
            for value in (
                None,
                True,
                "x",
                -1,
                0,
                1e-13,
                1e-12,
                1e-9,
                1e-8,
                1,
                1.0,
                2,
                1000,
                1001,
                10_000,
                10_001,
                2**15,
                2**15 + 1,
                2**20,
                2**20 + 1,
                1e8,
                1e9,
            ):
                assert _accepts(rule, value) == _constructs(kind, name, value), (name, value)
                tried += 1
    assert tried > 400


def _accepts(rule: rules.Rule, value: Any) -> bool:
    try:
        rule(value)
    except ValueError:
        return False
    return True


def _constructs(kind: type, name: str, value: Any) -> bool:
    more = {"rule": "frames"} if kind is PrimaOptions and name == "balance" else {}
    try:
        kind(**{name: value, **more})
    except InputError:
        return False
    return True


def test_what_a_file_may_ask_for_covers_every_count_of_epochs():
    """An option that makes lessons longer, and that no limit names, would be a way around it."""
    hints = get_type_hints(Options, include_extras=True)
    counts = {
        name
        for name, hint in hints.items()
        if get_origin(hint) is Annotated and get_args(hint)[0] is int and "epochs" in name
    }
    assert counts <= set(rules.MOST_WORK)


def test_nothing_is_built_of_a_file_that_asks_for_too_much(folder, monkeypatch):
    """The refusal comes before the network: no pass at 2048 x 2048 pixels, no ONNX graph."""
    from primavista.learner import loading

    def build(*_: object) -> None:
        raise AssertionError("a network was built")

    monkeypatch.setattr(loading, "rebuild", build)
    arrays, manifest = exported(folder, "ncm")
    manifest = copy.deepcopy(manifest)
    manifest["backbone"]["size"] = 2048
    with pytest.raises(FileError, match="2048 x 2048"):
        Learner.from_bytes(files.encode(arrays, manifest), device="cpu")
    with pytest.raises(FileError, match="network was built"):
        Learner.from_bytes(files.encode(arrays, manifest), device="cpu", trusted=True)


@pytest.mark.parametrize("number", [-1.0, -1e-30])
def test_variances_below_0_are_refused(edge, folder, number):
    arrays, manifest = exported(folder, "ridge")
    name = next(name for name in arrays if name.endswith("running_var"))
    bad = arrays[name].copy()
    bad[0] = number
    files.write(folder / "evil.pv", {**arrays, name: bad}, manifest)
    for load in (lambda path: Learner.load(path, device="cpu"), edge.Learner.load):
        with pytest.raises((FileError, edge.FileError), match="below 0"):
            load(folder / "evil.pv")


def test_a_count_that_no_file_can_hold_is_refused_by_the_lesson(folder):
    """Read at its limit, the learner refuses the lesson; it does not fail at the next save."""
    arrays, manifest = exported(folder, "ridge")
    last = {**manifest, "next_id": rules.MAX_COUNT - 1}
    learner = Learner.from_bytes(files.encode(arrays, last), device="cpu")
    before = learner.to_bytes()
    with pytest.raises(InputError, match="more frames or objects than a file can count"):
        learner.learn(clip(9), "new")
    assert learner.to_bytes() == before
    learner.learn(clip(9), "mug")
    learner.to_bytes()

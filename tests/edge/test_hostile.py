"""A file may have been written by anybody.

Statistics that no frames can have given are refused, and the array is named.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primavista import FileError, Learner
from primavista.heads.base import five_bytes, from_five_bytes
from primavista.learner.export import export
from primavista.storage import learner_file as files

STRATEGIES = ["prima", "ridge", "lda", "ncm", "dslda", "cwr*"]
COUNTS = {
    "prima": "moments.n",
    "ridge": "moments.n",
    "lda": "moments.n",
    "ncm": "moments.n",
    "dslda": "statistics.n",
    "cwr*": "seen.n",
}


def clip(seed: int) -> np.ndarray:
    base = np.random.default_rng(seed).integers(0, 200, 3)
    return (base + np.random.default_rng(seed + 100).integers(0, 55, (6, 32, 32, 3))).astype(
        np.uint8
    )


def small(strategy: str) -> Learner:
    return Learner(strategy, weights="random", width=0.0625, size=32, device="cpu")


@cache
def saved(strategy: str) -> tuple[dict[str, np.ndarray], dict]:
    learner = small(strategy)
    for k, name in enumerate(["mug", "kettle", "cup"]):
        learner.learn(clip(k), name)
    return files.decode(learner.to_bytes(), "good")


@pytest.fixture(scope="module")
def loaders(edge, tmp_path_factory):
    """Every way in: loading, merging, the runtime without torch."""
    folder = tmp_path_factory.mktemp("hostile")

    @cache
    def graphs(strategy: str) -> dict[str, np.ndarray]:
        good = files.read(export(small_taught(strategy), folder / "good.edge.pv", "edge"))[0]
        return {name: good[name] for name in files.GRAPHS}

    def attempts(strategy: str, arrays, manifest):
        files.write(folder / "evil.pv", arrays, manifest)
        yield lambda: Learner.load(folder / "evil.pv", device="cpu")
        if strategy in ("prima", "ridge", "lda", "ncm"):
            yield lambda: small(strategy).merge(folder / "evil.pv")
        given = {**arrays, **graphs(strategy)}
        files.write(folder / "evil.edge.pv", given, {**manifest, "engine": "onnx"})
        yield lambda: edge.Learner.load(folder / "evil.edge.pv")

    return attempts


@cache
def small_taught(strategy: str) -> Learner:
    arrays, manifest = saved(strategy)
    return Learner.from_bytes(files.encode(arrays, manifest), device="cpu")


def refused(loaders, edge, strategy: str, name: str, change) -> None:
    arrays, manifest = saved(strategy)
    changed = {**arrays, name: change(arrays[name].copy())}
    for load in loaders(strategy, changed, manifest):
        with pytest.raises((FileError, edge.FileError), match=name):
            load()


def put(value: float):
    def change(array: np.ndarray) -> np.ndarray:
        array.reshape(-1)[0] = value
        return array

    return change


def numbers(change):
    """The change of the numbers of an array that files have as five bytes each."""
    return lambda array: five_bytes(change(from_five_bytes("it", array)))


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(max_examples=6, deadline=None)
@given(
    bad=st.one_of(
        st.sampled_from([0.0, np.nan, np.inf, 1e300]), st.floats(-1e6, -1e-3), st.floats(0.01, 0.99)
    )
)
def test_counts_that_are_none(loaders, edge, strategy, bad):
    refused(loaders, edge, strategy, COUNTS[strategy], put(bad))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "name", "change"),
    [
        ("prima", "moments.t", put(1.0)),
        ("prima", "moments.t", put(-5.0)),
        ("prima", "moments.t", put(1e300)),
        ("prima", "moments.gram", numbers(lambda a: -a)),
        ("prima", "moments.gram", numbers(put(np.nan))),
        ("prima", "moments.gram", lambda a: a[:-1]),
        ("prima", "moments.gram", lambda a: a[:, :-1]),
        ("prima", "moments.gram", lambda a: a.reshape(-1)),
        ("prima", "moments.gram", lambda a: from_five_bytes("it", a)),
        ("prima", "moments.s", lambda a: a[:, :-1]),
        ("prima", "moments.s", lambda a: a * 1e200),
        ("prima", "lessons.key", lambda a: -a),
        ("prima", "lessons.key", lambda a: a[:, :-1]),
        ("prima", "lessons.key", lambda a: a[:, ::-1].copy()),
        ("prima", "lessons.mean", lambda a: a[..., :-1]),
        ("prima", "lessons.key", lambda a: np.append(a, a * 0, 0)),
        ("prima", "lessons.mean", lambda a: a[:-1]),
        ("prima", "lessons.mean", lambda a: np.append(a, a, 0)),
        ("prima", "lessons.mean", lambda a: a[None]),
        ("prima", "lessons.mean", lambda a: a.astype(np.float64)),
        ("prima", "lessons.frame", put(np.nan)),
        ("prima", "lessons.centre", lambda a: a[:-1]),
        ("prima", "lessons.centre", put(np.nan)),
        ("prima", "lessons.spread", lambda a: a[:-1]),
        ("prima", "lessons.spread", put(2.0)),
        ("ridge", "moments.gram", lambda a: a * 0),
        ("lda", "moments.t", put(17.5)),
        ("ncm", "moments.q", lambda a: a * 0.5),
        ("ncm", "moments.q", lambda a: -a),
        ("cwr*", "seen.q", lambda a: a * 0),
        ("cwr*", "head.past", put(-1.0)),
        ("cwr*", "head.cw", put(np.nan)),
        ("dslda", "statistics.t", put(2)),
        ("dslda", "statistics.scatter", lambda a: -a),
        ("dslda", "statistics.mu", lambda a: a + 1e39),
        ("dslda", "statistics.mu", lambda a: a[:, :-1]),
        ("dslda", "statistics.n", lambda a: a[:2]),
        ("prima", "moments.n", lambda a: a[:2]),
        ("prima", "moments.n", lambda a: np.append(a, 4.0)),
    ],
)
def test_sums_that_are_none(loaders, edge, strategy, name, change):
    refused(loaders, edge, strategy, name, change)


@cache
def saved_after_a_second_lesson() -> tuple[dict[str, np.ndarray], dict]:
    learner = small_taught("prima").copy()
    learner.learn(clip(7), "mug")
    return files.decode(learner.to_bytes(), "good")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("moments.added", put(np.nan)),
        ("moments.added", lambda a: a[:, :-1]),
        ("moments.added", lambda a: a.reshape(-1)),
        ("moments.added", lambda a: a.astype(np.float64)),
        ("moments.added", lambda a: np.repeat(a, 129, 0)),
        ("moments.rows", put(-2)),
        ("moments.rows", put(3)),
        ("moments.rows", put(2**40)),
        ("moments.rows", lambda a: a.astype(np.float64)),
        ("moments.rows", lambda a: np.repeat(a, 1000)),
        ("moments.rows", lambda a: a[None]),
        ("moments.changed_n", put(-1.0)),
        ("moments.changed_n", put(np.nan)),
        ("moments.changed_n", lambda a: a[:0]),
        ("moments.changed_s", lambda a: a[:, :-1]),
        ("moments.changed_s", lambda a: a.astype(np.float32)),
        ("lessons.rows", lambda a: np.repeat(a, 1000)),
        ("lessons.changed_key", lambda a: -a),
        ("lessons.changed_mean", lambda a: np.append(a, a, 0)),
        ("lessons.changed_frame", put(np.nan)),
    ],
)
def test_the_difference_from_the_state_before_is_checked_too(edge, loaders, name, change):
    arrays, manifest = saved_after_a_second_lesson()
    changed = {**arrays, "undo/" + name: change(arrays["undo/" + name].copy())}
    for load in loaders("prima", changed, manifest):
        with pytest.raises(
            (FileError, edge.FileError), match=name.replace("changed_", "(changed_)?")
        ):
            load()


def test_a_difference_that_leaves_no_sums_is_refused(edge, loaders):
    """More was added by the last lesson than there is."""
    arrays, manifest = saved_after_a_second_lesson()
    changed = {**arrays, "undo/moments.added": arrays["undo/moments.added"] * 10}
    for load in loaders("prima", changed, manifest):
        with pytest.raises((FileError, edge.FileError), match=r"moments\.gram"):
            load()
    without = {k: a for k, a in arrays.items() if k != "undo/moments.changed_s"}
    for load in loaders("prima", without, manifest):
        with pytest.raises((FileError, edge.FileError), match=r"moments\.changed_s is missing"):
            load()


@pytest.mark.parametrize("strategy", ["dslda", "cwr*"])
def test_the_state_before_is_checked_too(edge, loaders, strategy):
    name = f"undo/{COUNTS[strategy]}"
    arrays, manifest = saved(strategy)
    assert name in arrays
    for bad in (-1.0, np.nan):
        changed = {**arrays, name: put(bad)(arrays[name].copy())}
        for load in loaders(strategy, changed, manifest):
            with pytest.raises((FileError, edge.FileError), match=COUNTS[strategy]):
                load()


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_was_forgotten_leaves_a_sound_file(strategy, tmp_path):
    """Sums from which others were subtracted are a little off, even if nothing else is left."""
    learner = small(strategy)
    for k, name in enumerate(["mug", "kettle"]):
        learner.learn(np.full((3, 32, 32, 3), 90 * k + 30, np.uint8), name)  # no scatter at all
    for name in ("mug", "kettle"):
        learner.forget(name)
        learner.save(tmp_path / "a.pv")
        loaded = Learner.load(tmp_path / "a.pv", device="cpu")
        loaded.learn(clip(4), "cup")
        loaded.save(tmp_path / "b.pv")
        assert "cup" in Learner.load(tmp_path / "b.pv", device="cpu").labels


def test_sums_of_enormous_features_are_sums(tmp_path):
    """A network whose features are of the order of 1e8 is strange, not hostile."""
    import torch

    class Loud(torch.nn.Module):
        def forward(self, x):
            return x.flatten(1)[:, :40] * 1e8

    learner = Learner("ridge", backbone=Loud(), size=32, device="cpu")
    for k, name in enumerate(["mug", "kettle", "cup"]):
        learner.learn(clip(k), name)
    learner.forget("mug")
    learner.save(tmp_path / "a.pv")
    assert Learner.load(tmp_path / "a.pv", backbone=Loud(), device="cpu").labels == [
        "kettle",
        "cup",
    ]

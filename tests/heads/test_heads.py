"""Every head in numpy and in torch: the same scores and familiarity, through every change."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from primavista.heads.acil import ACILHead, ACILOptions
from primavista.heads.base import ClassArrays, Head
from primavista.heads.cwr import consolidate
from primavista.heads.dslda import DSLDAHead, StreamingStatistics
from primavista.heads.fecam import ClassMoments, FeCAMHead, FeCAMOptions
from primavista.heads.frozen_cwr import (
    ConsolidatedWeights,
    FrozenCWRHead,
    softmax,
    temporary_weights,
)
from primavista.heads.klda import KLDAHead, KLDAOptions
from primavista.heads.lda import LDAHead
from primavista.heads.ncm import NCMHead
from primavista.heads.prima import LessonHead, LessonSample, LessonStatistics
from primavista.heads.ranpac import RanPACHead, RanPACOptions, RanPACStatistics
from primavista.heads.ridge import RidgeHead, RidgeOptions
from primavista.heads.statistics import AnalyticHead, SufficientStatistics
from primavista.nn.class_rows import ArrayBuffers
from primavista.strategies.conformance import tiny_backbone
from primavista.strategies.creation import create
from primavista.strategies.options import CWROptions, DSLDAOptions

DIM = 6


def empty(**options) -> SufficientStatistics:
    return SufficientStatistics.empty(DIM, **options)


MAKERS = {
    "ncm": lambda: NCMHead(empty(gram=False)),
    "lda": lambda: LDAHead(empty()),
    "lda, shrinkage": lambda: LDAHead(empty(), 0.01),
    "ridge": lambda: RidgeHead(empty(), RidgeOptions()),
    "ridge, expand": lambda: RidgeHead(SufficientStatistics.empty(9), RidgeOptions(9), 3),
    "prima": lambda: LessonHead(
        LessonStatistics.empty(DIM, blocks=(4, 2)), LessonSample.empty((4, 2)), (1.0, 0.5)
    ),
    "klda": lambda: KLDAHead(SufficientStatistics.empty(40), KLDAOptions(sigma=0.05), 3),
    "acil": lambda: ACILHead(SufficientStatistics.empty(40), ACILOptions(gamma=0.5), 3),
    "ranpac": lambda: RanPACHead(RanPACStatistics.empty(40), RanPACOptions(), 3),
    "fecam": lambda: FeCAMHead(ClassMoments.empty(DIM), FeCAMOptions()),
    "dslda": lambda: DSLDAHead(StreamingStatistics.empty(DIM), DSLDAOptions(open_set=True)),
    "dslda, base_init": lambda: DSLDAHead(
        StreamingStatistics.empty(DIM), DSLDAOptions(base_init=True)
    ),
}
MERGED = [name for name in MAKERS if not name.startswith(("dslda", "ranpac", "fecam"))]


def lesson(seed: int, classes: list[int], count: int = 12) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    columns = np.resize(classes, count)
    z = random.normal(size=(count, DIM)) + 2 * np.arange(DIM) * columns[:, None]
    return z.astype(np.float32), columns


class Twins:
    """One head in numpy and the same head on the buffers of torch modules."""

    def __init__(self, name: str) -> None:
        self.numpy: Head = MAKERS[name]()
        self.torch: Head = MAKERS[name]()
        self.modules = [ArrayBuffers(group) for group in self.torch.groups.values()]

    def learn(self, i: int, z: np.ndarray, columns: np.ndarray) -> None:
        for head, make in ((self.numpy, np.asarray), (self.torch, torch.from_numpy)):
            head.expand(int(columns.max()) + 1)
            head.learn(make(z), make(columns), i)

    def assert_equal(self, classes: int) -> None:
        z, _ = lesson(99, [0])
        ours = self.numpy.scores(z, classes)
        theirs = self.torch.scores(torch.from_numpy(z), classes).numpy()
        # RanPAC may choose a lambda of 1e-8, which leaves the rounding of single precision large
        assert np.allclose(ours, theirs, rtol=1e-4, atol=1e-4)
        one, other = (head.familiarity(classes) for head in (self.numpy, self.torch))
        assert (one is None) == (other is None)
        if one is None:
            return
        wide = z.astype(np.float64)
        best = ours.argmax(1)
        features = self.numpy.features(wide)
        told = other(self.torch.features(torch.from_numpy(wide)), torch.from_numpy(best)).numpy()
        assert np.allclose(one(features, best), told, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MAKERS)
def test_numpy_and_torch_agree_through_lessons_and_forgetting(name):
    twins = Twins(name)
    twins.learn(1, *lesson(0, [0, 1]))
    twins.assert_equal(2)
    twins.learn(2, *lesson(1, [2]))
    twins.assert_equal(3)
    for head in (twins.numpy, twins.torch):
        head.forget(1)
    twins.assert_equal(2)
    twins.learn(3, *lesson(2, [1, 2]))
    twins.assert_equal(3)
    twins.numpy.check(3, [0, 1, 2])
    twins.torch.check(3, [0, 1, 2])
    for one, other in zip(twins.numpy.groups.values(), twins.torch.groups.values(), strict=True):
        assert list(one.arrays) == list(other.arrays)


@pytest.mark.parametrize("name", MERGED)
def test_a_merge_of_two_heads_is_one_that_learned_both(name):
    one, other, joint = (MAKERS[name]() for _ in range(3))
    for i, (head, seed, classes) in enumerate([(one, 0, [0, 1]), (other, 1, [1, 2])]):
        z, columns = lesson(seed, classes)
        for learner in (head, joint):
            learner.expand(3)
            learner.learn(z, columns, i + 1)
    assert isinstance(one, AnalyticHead)
    one.merge(other, np.arange(3))
    z, _ = lesson(99, [0])
    assert np.allclose(one.scores(z, 3), joint.scores(z, 3), rtol=1e-8)
    assert one.scores(z, 0).shape == (12, 0)


@pytest.mark.parametrize("name", ["dslda", "lda", "ridge", "prima"])
def test_a_copy_of_a_strategy_is_a_pair_of_head_and_modules_again(name):
    strategy = create(name, tiny_backbone())
    z = torch.randn(9, strategy.backbone.dim, generator=torch.Generator().manual_seed(0))
    strategy.learn_embedded(z, torch.arange(9) % 3)
    before = strategy.scores_embedded(z)
    other = copy.deepcopy(strategy)
    assert strategy.derived
    assert not other.derived
    assert other.head.derived is other.derived
    for group, arrays in other.head.groups.items():
        assert arrays.arrays is getattr(other, group)._buffers
        assert arrays.arrays is not getattr(strategy, group)._buffers
    other.learn_embedded(z + 1, torch.arange(9) % 3)
    assert strategy.scores_embedded(z).equal(before)
    assert not other.scores_embedded(z).equal(before)


def test_rows_grow_and_drop():
    class Counts(ClassArrays):
        row_names = ("n",)

        def check(self, prefix, known, taught):
            raise NotImplementedError

    for kind in (np.asarray, torch.as_tensor):
        counts = Counts({"n": kind([3.0, 4.0]), "t": kind([7.0])})
        counts.expand(1)
        counts.expand(4)
        assert counts.arrays["n"].tolist() == [3, 4, 0, 0]
        counts.drop(0)
        assert counts.arrays["n"].tolist() == [4, 0, 0, 0]


def test_cwr_on_frozen_features_by_hand():
    """Two frames, one step: softmax(0) is 1/2, so g_0 = (z_1 - z_0) / 4 and g_1 = -g_0."""
    arrays = {"cw": np.zeros((2, 2), np.float32), "past": np.zeros(2, np.float32)}
    options = CWROptions(lr=1.0, epochs=1, minibatch=2, momentum=0.9, weight_decay=0.0)
    head = FrozenCWRHead(ConsolidatedWeights(arrays), options, seed=0)
    z = np.array([[4.0, 0.0], [0.0, 8.0]], np.float32)
    head.expand(2)
    head.learn(z, np.array([0, 1]), 2)
    # tw = -g = ((1, -2), (-1, 2)), of mean 0; past was 0, so cw = tw
    assert np.allclose(arrays["cw"], [[1, -2], [-1, 2]])
    assert arrays["past"].tolist() == [1, 1]
    assert np.allclose(head.scores(z, 2), [[4, -4], [-16, 16]])
    head.expand(3)
    assert head.weights.cw.shape == (4, 2)  # the capacity doubles


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_tw_and_consolidation_in_both_libraries(kind):
    cw = kind(np.array([[1.0, 2.0], [3.0, 4.0]]))
    assert temporary_weights(cw, kind([1]), "cwr*").tolist() == [[0, 0], [3, 4]]
    assert temporary_weights(cw, kind([1]), "cwr+").tolist() == [[0, 0], [0, 0]]
    past = kind(np.array([0.0, 4.0]))
    # wpast = sqrt(4 / 1) = 2, tw - avg = (-1, 1): ((3, 4) 2 + (-1, 1)) / 3
    tw = kind(np.array([[5.0, 7.0]]))
    consolidate(cw, past, tw, kind([1]), kind(np.array([1.0])), "cwr*", "sqrt")
    assert np.allclose(cw, [[1, 2], [5 / 3, 3]])
    assert past.tolist() == [0, 5]
    assert np.allclose(softmax(kind(np.log(np.array([[1.0, 3.0]])))), [[0.25, 0.75]])

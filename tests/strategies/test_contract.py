"""The shipped conformance suite over every registered strategy, its ablations and the release's
behaviour.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from primavista import Learner
from primavista.errors import InputError
from primavista.nn.class_rows import Rows
from primavista.nn.memory import Memory
from primavista.strategies.base import EmbeddingStrategy, LearnReport
from primavista.strategies.builtin import STRATEGIES
from primavista.strategies.conformance import CHECKS, check_strategy, tiny_backbone, toy_batch
from primavista.strategies.creation import create
from primavista.strategies.naive import Naive
from primavista.strategies.ncm import NCM
from primavista.strategies.registry import names

# Baselines that rehearse have batch norm and no batch 1 of their own; the release has none of them.
BASELINES = ("er", "der++", "gdumb", "icarl")
TRAINED = [
    name for name, preset in STRATEGIES.items() if preset.training_options and name not in BASELINES
]
VARIANTS = {
    **{name: {} for name in STRATEGIES},
    **{f"{name}, bn": {"norm": "bn"} for name in TRAINED},
    **{f"{name}, caffe": {"compat": "caffe"} for name in TRAINED},
    **{f"{name}, no B_1": {"first_batch": False} for name in TRAINED},
    **{f"{name}, open set": {"open_set": True} for name in ("cwr+", "cwr*", "dslda")},
    "cwr*, open set, caffe": {"open_set": True, "compat": "caffe"},
    "latent-replay, small": {"memory": 5, "cut": 3},
    "latent-replay-2020, small": {"memory": 5, "cut": 3},
    "latent-replay-2020, guard": {"guard": "modulate"},
    "rehearsal, small": {"memory": 5},
    "er, small": {"memory": 5, "epochs": 2},
    "der++, small": {"memory": 5},
    "gdumb, small": {"memory": 5},
    "gdumb, every 2": {"every": 2},
    "icarl, small": {"memory": 5},
    "ar1*, no guard": {"guard": "none"},
    "ridge, expand": {"expand": 40},
    "ridge, balance 0": {"balance": 0},
    "ridge, rho": {"rho": 0.1},
    "ridge, protocol 79": {"protocol": "nicv2-79"},
    "fecam, no Tukey": {"power": 1, "gamma_2": 0},
    "klda, sigma": {"sigma": 0.1, "expand": 30},
    "fsa, all": {"adapt": "all"},
    "ewc, modulate": {"guard": "modulate"},
    "ewc, cwr*": {"head": "cwr*"},
    "lwf, cwr*": {"head": "cwr*"},
    "naive, cwr+": {"head": "cwr+"},
    "ar1*, linear": {"head": "linear"},
    "ar1*, penalty": {"guard": "penalty"},
    "ar1*, displacement": {"path": "displacement"},
    "cwr*, ratio": {"wpast": "ratio"},
    "dslda, tune": {"tune": True},
    "dslda, base_init": {"base_init": True},
    "cumulative, every 2": {"every": 2},
    **{
        f"naive, freeze {freeze}": {"freeze": freeze, "freeze_from": 1}
        for freeze in ("none", "depthwise", "pointwise", "all")
    },
    **{f"ar1*, freeze {freeze}": {"freeze": freeze} for freeze in ("none", "pointwise", "all")},
    **{f"{name}, protocol 79": {"protocol": "nicv2-79"} for name in ("naive", "ar1*")},
}


# one preset of each class in `make test`; the other presets and the variants in `make test-all`
QUICK = {info.where: name for name, info in reversed(STRATEGIES.items())}.values()


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
@pytest.mark.parametrize(
    "variant",
    [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in VARIANTS],
)
def test_contract(variant, check):
    name = variant.partition(",")[0]
    check(lambda backbone: create(name, backbone, **VARIANTS[variant]))


def test_every_registered_strategy_is_checked():
    assert {variant.partition(",")[0] for variant in VARIANTS} >= set(names())


@pytest.mark.slow
def test_a_broken_strategy_is_caught():
    """The suite can fail: each of these breaks one clause."""

    class KeepsFrames(Naive):
        def learn_batch(self, batch):
            kept = getattr(self, "kept", torch.zeros(0, 16, 16, 3, dtype=torch.uint8))
            self.register_buffer(
                "kept", torch.cat([kept, batch.images[torch.arange(len(batch.images))]])
            )
            return super().learn_batch(batch)

    class GlobalRandom(Naive):
        def learn_batch(self, batch):
            self.head.weight.data += torch.randn(())
            return super().learn_batch(batch)

    class Aliases(Naive):
        def learn_batch(self, batch):
            self.register_buffer("old", self.head.weight.data)
            return super().learn_batch(batch)

    class HidesFrames(Naive):
        def learn_batch(self, batch):
            self.__dict__.setdefault("kept", []).append(
                batch.images[torch.arange(len(batch.images))]
            )
            return super().learn_batch(batch)

    class WrongWayRound(Naive):
        def score_features(self, z):
            return -super().score_features(z)

    class LearnsOnce(Naive):
        def learn_batch(self, batch):
            return (
                super().learn_batch(batch)
                if batch.i == 1
                else LearnReport(batch.i, batch.count, batch.new)
            )

    class ForgetsTheWrongOne(Naive):
        def _forgot(self, label):
            self.head.weight.data[:2] = self.head.weight.data[:2].flip(0)

    class ScoresAtRandom(Naive):
        def score_features(self, z):
            self.__dict__["calls"] = self.__dict__.get("calls", 0) + 1
            return super().score_features(z) + self.__dict__["calls"]

    class Writes(Naive):
        def learn_batch(self, batch):
            batch.images[:] = 0
            return super().learn_batch(batch)

    for broken, words in [
        (KeepsFrames, "going|grow|went|loads|load"),
        (HidesFrames, "went from"),
        (GlobalRandom, "random"),
        (Aliases, "share memory"),
        (Writes, "changed the frames"),
        (WrongWayRound, "the right class led"),
        (LearnsOnce, "labels exchanged"),
        (ForgetsTheWrongOne, "changed the scores of the others"),
        (ScoresAtRandom, "differently"),
    ]:
        with pytest.raises((AssertionError, RuntimeError), match=words):
            check_strategy(lambda backbone, broken=broken: broken(backbone))


def test_a_strategy_whose_classes_share_a_scale_may_forget():
    """Of a scale over all classes, forgetting leaves what was never taught: that was refused."""

    class ScaledMeans(EmbeddingStrategy):
        def __init__(self, backbone, *, seed=0):
            super().__init__(backbone, seed=seed)
            self.sums = Rows()
            for name in ("total", "square", "count"):
                self.sums.add_rows(name, torch.zeros(0, backbone.dim))

        def learn_batch(self, batch):
            z, columns = self.features(batch), batch.columns
            for name, value in (("total", z), ("square", z * z), ("count", torch.ones_like(z))):
                getattr(self.sums, name).index_add_(0, columns, value)
            return LearnReport(batch.i, batch.count, batch.new)

        def score_features(self, z):
            means = self.sums.total / self.sums.count.clamp(min=1)  # spare rows are 0
            within = (self.sums.square - self.sums.count * means**2).sum(0)
            scale = (within / self.sums.count.sum(0) + 1e-3).rsqrt()
            return -torch.cdist(z * scale, means * scale)

    class Remembers(ScaledMeans):
        """Its scale is never that of the classes that are left."""

        def _forgot(self, label):
            self.sums.square *= 1.5

    check_strategy(lambda backbone: ScaledMeans(backbone))
    with pytest.raises(AssertionError, match="never taught it"):
        check_strategy(lambda backbone: Remembers(backbone))


@pytest.mark.slow
def test_a_broken_memory_is_caught():
    """Each of these breaks what the suite asks of stored data, or ignores the given backbone."""

    class KeepsTheForgotten(Naive):
        """Experience replay as somebody might write it, with a buffer that `forget` misses."""

        rehearsal_free = False

        def __init__(self, backbone, **settings):
            super().__init__(backbone, **settings)
            self.register_buffer("kept", torch.zeros(500, 16, 16, 3, dtype=torch.uint8))

        def learn_batch(self, batch):
            some = batch.images[torch.arange(min(len(batch.images), 4))]
            self.kept[: len(some)] = some
            return replace(super().learn_batch(batch), stored_bytes=self.kept.numel())

    class ForgetsItsLabels(KeepsTheForgotten):
        def __init__(self, backbone, **settings):
            super().__init__(backbone, **settings)
            self.register_buffer("whose", torch.full((500,), -1))

        def learn_batch(self, batch):
            column = {label: j for j, label in enumerate(self.classes.tolist())}
            [column[label] for label in self.whose.tolist() if label >= 0]
            labels = self.classes[batch.columns[:4]]
            self.whose[: len(labels)] = labels
            return super().learn_batch(batch)

        def _forgot(self, label):
            self.kept[:] = 0

    class GrowsForEver(Naive):
        rehearsal_free = False

        def __init__(self, backbone, **settings):
            super().__init__(backbone, **settings)
            self.register_buffer("kept", torch.zeros(0, 16, 16, 3, dtype=torch.uint8))
            self._any_size.append("kept")

        def learn_batch(self, batch):
            frames = batch.images[torch.arange(len(batch.images))]
            self.kept = torch.cat([self.kept, frames])
            return replace(super().learn_batch(batch), stored_bytes=self.kept.numel())

    class SaysNothingOfItsMemory(Naive):
        def __init__(self, backbone, **settings):
            super().__init__(backbone, **settings)
            self.memory = Memory(9, frames=torch.zeros(0, 16, 16, 3, dtype=torch.uint8))

    class BringsItsOwnBackbone(Naive):
        def __init__(self, backbone, **settings):
            super().__init__(tiny_backbone(), **settings)

    for broken, words in [
        (KeepsTheForgotten, "frames of a forgotten class"),
        (ForgetsItsLabels, "^0$"),
        (GrowsForEver, "beside its Memory"),
        (SaysNothingOfItsMemory, "rehearsal_free = False"),
        (BringsItsOwnBackbone, "two backbones"),
    ]:
        with pytest.raises((AssertionError, KeyError), match=words):
            check_strategy(lambda backbone, broken=broken: broken(backbone))


def test_features_that_stay_and_a_memory_beyond_its_limit_are_caught():
    """A store of one's own instead of a `Memory`, and a `Memory` that is not used as one."""

    class KeepsFeaturesOfTheForgotten(NCM):
        """Features in a buffer of its own, instead of a `Memory`."""

        rehearsal_free = False

        def __init__(self, backbone, **settings):
            super().__init__(backbone, **settings)
            self.register_buffer("kept", torch.zeros(50, backbone.dim))

        def learn_batch(self, batch):
            z = self.features(batch)[:50]
            self.kept[: len(z)] = z
            return replace(super().learn_batch(batch), stored_bytes=4 * self.kept.numel())

    class BreaksTheLimit(Naive):
        """A `Memory` that is written to behind its back."""

        rehearsal_free = False

        def __init__(self, backbone, **settings):
            super().__init__(backbone, **settings)
            self.memory = Memory(9, frames=torch.zeros(0, 16, 16, 3, dtype=torch.uint8))

        def learn_batch(self, batch):
            frames = batch.images[torch.arange(len(batch.images))]
            memory, labels = self.memory, self.classes[batch.columns]
            memory.frames = torch.cat([memory.frames, frames])
            memory.labels = torch.cat([memory.labels, labels])
            return super().learn_batch(batch)

    for broken, words in [
        (KeepsFeaturesOfTheForgotten, "kept still has features of a forgotten class"),
        (BreaksTheLimit, "its limit is"),
    ]:
        with pytest.raises((AssertionError, InputError), match=words):
            check_strategy(lambda backbone, broken=broken: broken(backbone))


@pytest.mark.parametrize("name", STRATEGIES)
def test_resume_six_and_six_equals_twelve(name):
    """Learn 6 batches, save, load, learn 6 more: bit for bit 12 in one go."""
    torch.set_num_threads(1)
    through, first, second = (create(name, tiny_backbone(), seed=3) for _ in range(3))
    batches = [toy_batch([k % 5, (k * 3) % 7] * 4, seed=k) for k in range(12)]
    for images, labels in batches:
        through.learn(images, labels)
    for images, labels in batches[:6]:
        first.learn(images, labels)
    second.load_state_dict({key: value.clone() for key, value in first.state_dict().items()})
    for images, labels in batches[6:]:
        second.learn(images, labels)
    a, b = through.state_dict(), second.state_dict()
    assert a.keys() == b.keys()
    assert [key for key in a if not a[key].equal(b[key])] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", STRATEGIES)
def test_resume_past_the_capacity(name, tmp_path):
    """The same through a file, when the head has grown since it was made."""
    options = {"weights": "random", "width": 0.0625, "size": 32} | (
        {"capacity": 4} if name in (*TRAINED, *BASELINES) else {}
    )
    through = Learner(name, **options)

    def frames(k):
        return toy_batch([k] * 3, seed=k)[0].numpy()

    for k in range(6):
        through.learn(frames(k), f"object {k}")
    through.save(tmp_path / "half.pv")
    second = Learner.load(tmp_path / "half.pv")
    for k in (5, 1, 7, 5):
        through.learn(frames(k), f"object {k}")
        second.learn(frames(k), f"object {k}")
    through.save(tmp_path / "a.pv")
    second.save(tmp_path / "b.pv")
    assert (tmp_path / "a.pv").read_bytes() == (tmp_path / "b.pv").read_bytes()

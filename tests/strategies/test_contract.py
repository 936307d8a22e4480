"""The shipped conformance suite over every registered strategy, its ablations and the release's behaviour."""

from __future__ import annotations

import pytest
import torch

from primavista.checks import CHECKS, check_strategy, tiny_backbone, toy_batch
from primavista.strategies import PRESETS, create, names

VARIANTS = {
    **{name: {} for name in PRESETS},
    **{f"{name}, bn": {"norm": "bn"} for name in PRESETS},
    **{f"{name}, caffe": {"compat": "caffe"} for name in PRESETS},
    **{f"{name}, no B_1": {"first_batch": False} for name in PRESETS},
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
    **{f"naive, freeze {freeze}": {"freeze": freeze, "freeze_from": 1} for freeze in ("none", "depthwise", "pointwise", "all")},
    **{f"ar1*, freeze {freeze}": {"freeze": freeze} for freeze in ("none", "pointwise", "all")},
    **{f"{name}, protocol 79": {"protocol": "nicv2-79"} for name in ("naive", "ar1*")},
}


@pytest.mark.filterwarnings("ignore:Cumulative stores")
@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
@pytest.mark.parametrize("variant", VARIANTS)
def test_contract(variant, check):
    name = variant.partition(",")[0]
    check(lambda backbone: create(name, backbone, **VARIANTS[variant]))


def test_every_registered_strategy_is_checked():
    assert {variant.partition(",")[0] for variant in VARIANTS} >= set(names())


def test_a_broken_strategy_is_caught():
    """The suite can fail: each of these breaks one clause."""
    from primavista.strategies.naive import Naive

    class KeepsFrames(Naive):
        def learn_batch(self, batch):
            kept = getattr(self, "kept", torch.zeros(0, 16, 16, 3, dtype=torch.uint8))
            self.register_buffer("kept", torch.cat([kept, batch.images[torch.arange(len(batch.images))]]))
            return super().learn_batch(batch)

    class GlobalRandom(Naive):
        def learn_batch(self, batch):
            self.head.weight.data += torch.randn(())
            return super().learn_batch(batch)

    class Aliases(Naive):
        def learn_batch(self, batch):
            self.register_buffer("old", self.head.weight.data)
            return super().learn_batch(batch)

    class Writes(Naive):
        def learn_batch(self, batch):
            batch.images[:] = 0
            return super().learn_batch(batch)

    for broken, words in [
        (KeepsFrames, "going|grow|went|loads|load"),
        (GlobalRandom, "random"),
        (Aliases, "share memory"),
        (Writes, "changed the frames"),
    ]:
        with pytest.raises((AssertionError, RuntimeError), match=words):
            check_strategy(lambda backbone, broken=broken: broken(backbone))


@pytest.mark.filterwarnings("ignore:Cumulative stores")
@pytest.mark.parametrize("name", PRESETS)
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

"""What strategies refuse, they refuse before anything changes."""

from __future__ import annotations

import copy
import threading

import numpy as np
import pytest
import torch
from torch import nn

from primavista import FileError, InputError, Learner
from primavista.learner.prediction import is_known
from primavista.media.frames import Selection
from primavista.media.images import centre_square
from primavista.networks.base import build
from primavista.nn.renorm import replace_batch_norm
from primavista.strategies.builtin import STRATEGIES
from primavista.strategies.conformance import tiny_backbone, toy_batch
from primavista.strategies.creation import create


def state(module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def same(a, b) -> bool:
    return a.keys() == b.keys() and all(a[name].equal(b[name]) for name in a)


@pytest.mark.parametrize(
    "option",
    [
        {"every": 0},
        {"max_f": 0},
        {"max_f": -1.0},
        {"lam": float("nan")},
        {"r_max": 0.5},
        {"moments_decay": 1.5},
        {"momentum": 1.5},
        {"first_batch": "no"},
        {"shrinkage": -1},
        {"lr": "x"},
        {"lr": True},
        {"startup": "a"},
        {"compat": 5},
        {"compat": "cafe"},
        {"epochs": 10**9},
        {"capacity": 10**9},
        {"capacity": 0},
        {"minibatch": 2.5},
    ],
)
def test_options_that_make_no_sense_are_refused(option):
    name = {"every": "cumulative", "max_f": "ewc", "lam": "ewc", "shrinkage": "dslda"}.get(
        next(iter(option)), "ar1*"
    )
    with pytest.raises(InputError, match=next(iter(option))):
        create(name, tiny_backbone(), **option)


@pytest.mark.parametrize(
    ("strategy", "choice"),
    [
        ("prima", "this strategy has none"),
        ("ridge", "choose from balance, expand, rho"),
        ("lda", "choose from shrinkage"),
        ("ncm", "this strategy has none"),
        ("ar1*", "choose from capacity, "),
    ],
)
def test_an_option_that_a_strategy_does_not_have_is_named_with_those_that_it_has(strategy, choice):
    for option in ("nrm", "name", "dim" if strategy == "ncm" else "backbones"):
        with pytest.raises(InputError, match=f"there is no option {option}: {choice}"):
            Learner(strategy, weights="random", width=0.25, size=32, **{option: "bn"})


@pytest.mark.parametrize("seed", ["abc", 1.5, None, 2**63])
def test_a_seed_is_a_whole_number(seed):
    for call in (
        lambda: Learner(weights="random", size=32, width=0.25, seed=seed),
        lambda: create("ncm", tiny_backbone(), seed=seed),
    ):
        with pytest.raises(InputError, match="seed must be a whole number"):
            call()
    with pytest.raises(InputError, match="width must be above 0"):
        Learner(weights="random", size=32, width="wide")


class FloatStore:
    def __len__(self):
        return 3

    def __getitem__(self, indices):
        return torch.zeros(len(indices), 16, 16, 3)


def test_a_store_that_gives_floats_and_frames_too_small_are_refused_before_anything_changes():
    body = nn.Sequential(nn.Conv2d(3, 8, 5), nn.BatchNorm2d(8))  # unpadded: needs 5 pixels
    for strategy in (create(name, build(body, size=16)) for name in ("naive", "cwr*", "dslda")):
        strategy.learn(*toy_batch([0, 1]))
        before = state(strategy)
        with pytest.raises(InputError, match="uint8"):
            strategy.learn(FloatStore(), torch.tensor([7, 7, 7]))
        with pytest.raises(
            InputError, match=r"cannot take frames of 1 x 1 pixels.*resize them to 16 x 16"
        ):
            strategy.learn(torch.zeros(1, 1, 1, 3, dtype=torch.uint8), torch.tensor([5]))
        assert same(before, strategy.state_dict())


@pytest.mark.parametrize("name", STRATEGIES)
def test_wrong_arguments_are_refused_and_change_nothing(name):
    strategy = create(name, tiny_backbone())
    images, labels = toy_batch([0, 1] * 3)
    strategy.learn(images, labels)
    before = state(strategy)
    for wrong in (
        (images.float(), labels),
        (images.float() * float("nan"), labels),
        (images.permute(0, 3, 1, 2), labels),
        (images[:0], labels[:0]),
        (images[0], labels),
        (images[..., :1], labels),
        (images.tolist(), labels),
        (images, labels[:-1]),
        (images, labels - 5),
        (images, labels.float()),
        (images, 3),
        (images[:, :0], labels),
    ):
        with pytest.raises(InputError):
            strategy.learn(*wrong)
    with pytest.raises(InputError, match="class 1000000 is not known"):
        strategy.forget(10**6)
    assert same(before, strategy.state_dict())


def test_cumulative_refuses_to_mix_its_sources():
    images, labels = toy_batch([0, 1, 2, 0])
    indices = torch.arange(4)
    loose, stream = (create("cumulative", tiny_backbone()) for _ in range(2))
    loose.learn(images, labels)
    stream.learn(Selection(images, indices), labels)
    for strategy, wrong in (
        (loose, Selection(images, indices)),
        (stream, images),
        (stream, Selection(images.clone(), indices)),
    ):
        before = state(strategy)
        with pytest.raises(InputError, match="Cumulative"):
            strategy.learn(wrong, labels + 5)
        assert same(before, strategy.state_dict())
    assert copy.deepcopy(stream).memory.source is images  # a copy shares the stream

    loaded = create("cumulative", tiny_backbone())
    loaded.load_state_dict(stream.state_dict())
    before = state(loaded)
    with pytest.raises(InputError, match="loaded without its stream"):
        loaded.forget(0)
    assert same(before, loaded.state_dict())


def test_a_batch_norm_that_does_more_is_not_replaced_silently():
    class NormAct(nn.BatchNorm2d):
        def forward(self, x):
            return super().forward(x).relu()

    with pytest.raises(InputError, match=r"NormAct.*norm='bn'"):
        replace_batch_norm(nn.Sequential(NormAct(3)))
    backbone = build(nn.Sequential(nn.Conv2d(3, 8, 3), NormAct(8)), size=16)
    create("ar1*", backbone, norm="bn").learn(*toy_batch([0, 1] * 3))


def test_odd_backbones_serve():
    """Group norm behind a frozen convolution (torch can crash there), half precision, a module in
    evaluation mode.
    """
    group = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.ReLU())
    half = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).half()
    for body in (group, half):
        strategy = create("naive", build(body, size=16))
        for k in range(3):
            strategy.learn(*toy_batch([0, 1] * 3, seed=k))
        assert strategy.scores(toy_batch([0])[0]).isfinite().all()
    body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).eval()
    build(body, size=16)
    assert not body.training
    assert not body[1].training
    assert half[0].weight.dtype == torch.float16  # the given module is left alone

    class Pair(nn.Module):
        def forward(self, x):
            return x, x

    with pytest.raises(InputError, match="Pair failed"):
        build(Pair(), size=16)


def test_the_crop_is_the_centre():
    """A 3 x 9 image whose middle third is white: the centre square is white, to the last pixel."""
    image = np.zeros((3, 9, 3), np.uint8)
    image[:, 3:6] = 255
    assert centre_square(image, 3).min() == 255
    assert centre_square(image.transpose(1, 0, 2), 3).min() == 255


def test_dslda_solves_anew_after_every_batch():
    strategy = create("dslda", tiny_backbone())
    images = toy_batch([0, 1, 2])[0]
    strategy.learn(*toy_batch([0, 1] * 4))
    first = strategy.scores(images)
    strategy.learn(*toy_batch([0, 1] * 4, seed=7))
    fresh = create("dslda", tiny_backbone())
    fresh.load_state_dict(strategy.state_dict())
    assert not strategy.scores(images).equal(first)
    assert strategy.scores(images).equal(fresh.scores(images))


def tiny_learner() -> Learner:
    return Learner("cwr*", weights="random", width=0.0625, size=32)


def clip(k: int) -> np.ndarray:
    return toy_batch([k] * 4, seed=k)[0].numpy()


def test_an_id_is_never_given_twice():
    learner = tiny_learner()
    learner.learn(clip(0), "a")
    learner.learn(clip(1), "b")
    learner.forget("b")
    learner.learn(clip(0), "a")
    learner.learn(clip(2), "c")
    assert learner.strategy.classes == [0, 2]


def test_known_is_a_matter_of_the_threshold():
    """Of two names, p = 0.7 is 0.4 of the way from one half to certainty."""
    for threshold, known in ((0.39, True), (0.41, False)):
        assert is_known(0.7, 2, None, threshold) is known
    assert is_known(1.0, 1, None, 0.5)
    for wrong in (float("nan"), -0.1, 2):
        with pytest.raises(InputError, match="threshold"):
            Learner("cwr*", weights="random", width=0.0625, size=32, threshold=wrong)


def test_lessons_at_once_are_all_learned_and_files_saved_meanwhile_are_whole(tmp_path):
    learner = tiny_learner()
    threads = [
        threading.Thread(target=learner.learn, args=(clip(k), f"object {k}")) for k in range(6)
    ]
    for thread in threads:
        thread.start()
    k = 0
    while any(thread.is_alive() for thread in threads) or k < 3:
        learner.save(tmp_path / f"{k % 20}.pv")
        Learner.load(tmp_path / f"{k % 20}.pv")
        k += 1
    assert sorted(learner.labels) == [f"object {k}" for k in range(6)]


def test_a_backbone_object_of_ones_own_loads_again(tmp_path):
    backbone = build(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)), size=16)
    learner = Learner("cwr*", backbone=backbone)
    learner.learn(clip(0), "a")
    learner.save(tmp_path / "own.pv")
    assert Learner.load(tmp_path / "own.pv", backbone=backbone).labels == ["a"]


def test_the_first_slip_of_a_newcomer():
    with pytest.raises(FileError, match=r"cannot open mug\.mp4: No such file"):
        tiny_learner().learn("mug.mp4", "mug")
    learner = tiny_learner()
    learner.learn(clip(0), np.array(["a", "a", "b", "b"]))
    assert learner.counts == {"a": 2, "b": 2}
    with pytest.raises(InputError, match="no device"):
        Learner(weights="random", device="tpu?")
    with pytest.raises(InputError, match="whole pixels"):
        Learner(weights="random", size=2.5)


class Normed(nn.Module):
    """Divides by its own size: of a black frame it makes NaN."""

    def forward(self, x):
        z = (x + 1).mean((2, 3))  # black is -1 everywhere
        return z / z.norm(dim=1, keepdim=True)


@pytest.mark.parametrize("name", ["prima", "ridge", "lda", "ncm", "dslda", "cwr*"])
def test_features_that_are_no_numbers_are_refused_before_anything_changes(name):
    body = build(Normed(), size=8, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    options = {"first_batch": False, "features": "fixed"} if name == "cwr*" else {}
    strategy = create(name, body, **options)
    frames = torch.randint(
        1, 256, (4, 8, 8, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    strategy.learn(frames, torch.tensor([0, 0, 1, 1]))
    before = state(strategy)
    frames[2] = 0
    with pytest.raises(InputError, match="NaN or infinity for frame 2"):
        strategy.learn(frames, torch.tensor([0, 2, 2, 1]))
    with pytest.raises(InputError, match="NaN or infinity for frame 2"):
        strategy.learn_embedded(strategy.embed(frames), torch.tensor([0, 2, 2, 1]))
    assert same(before, strategy.state_dict())


def test_the_papers_hyperparameters():
    """`tab:hyper_core50` of the paper, typed in from its text."""
    rows = {
        "naive": {"epochs_1": 2, "lr_1": 0.001, "epochs": 2, "lr": 0.000035},
        "lwf": {"lam": 0.1, "epochs_1": 2, "lr_1": 0.001, "epochs": 2, "lr": 0.00005},
        "ewc": {"max_f": 0.001, "lam": 2e6, "epochs_1": 2, "lr_1": 0.001, "epochs": 2, "lr": 1e-4},
        "cwr*": {"epochs_1": 4, "lr_1": 0.001, "epochs": 4, "lr": 0.001},
        "ar1*": {"w_1": 0.5, "w_i": 0.5, "max_f": 0.001, "epochs": 4, "lr": 1e-4, "lr_head": 1e-3},
        "dslda": {"shrinkage": 1e-4},
    }
    for name, row in rows.items():
        made = create(name, tiny_backbone()).options
        for option, value in row.items():
            assert getattr(made, option) == value, (name, option)

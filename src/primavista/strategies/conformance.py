"""The contract of a strategy as a conformance suite, for our strategies and your own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from primavista.backbones.spec import Spec
from primavista.heads.statistics import AnalyticHead
from primavista.networks.base import Backbone
from primavista.nn.memory import memories
from primavista.strategies.base import EmbeddingStrategy, Strategy
from primavista.strategies.frozen import AnalyticStrategy
from primavista.strategies.open_set import judge, tells_strangers

Factory = Callable[[Backbone], Strategy]
SIDE = 16
SCORES_AGREE = 1e-5  # relative to the largest score; sums may be rounded to float32


def check_strategy(factory: Factory) -> list[str]:
    """Run every check of the conformance suite on a strategy. It takes seconds.

    Args:
        factory: Makes a new strategy from a backbone.

    Returns:
        The names of the checks that concern the strategy, which have all passed.

    Raises:
        AssertionError: If a check fails; the message says which requirement is violated.

    >>> from primavista.strategies.creation import create
    >>> passed = check_strategy(lambda backbone: create("dslda", backbone))
    >>> [check.__name__ for check in CHECKS if check.__name__ not in passed]
    ['order_and_grouping_of_lessons_do_not_matter']
    """
    return [check.__name__ for check in CHECKS if check(factory) is not False]


def tiny_backbone(seed: int = 1) -> Backbone:
    """Return a depthwise separable network with 16 features, for checks that take milliseconds.

    Args:
        seed: The seed of its weights.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        body = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU6(),
            nn.Conv2d(8, 8, 3, 1, 1, groups=8, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU6(),
            nn.Conv2d(8, 16, 1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU6(),
        )
    return Backbone(body, Spec("custom", SIDE, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)))


def toy_batch(labels: list[int], seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return one frame per label: noise and a square; the label sets its colour and position.

    Args:
        labels: The labels of the frames.
        seed: The seed of the noise.
    """
    noise = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 80, (len(labels), SIDE, SIDE, 3), generator=noise, dtype=torch.uint8)
    for k, label in enumerate(labels):
        look = torch.Generator().manual_seed(label)
        colour = torch.randint(100, 256, (3,), generator=look, dtype=torch.uint8)
        row, column = torch.randint(0, SIDE - 6, (2,), generator=look).tolist()
        images[k, row : row + 6, column : column + 6] = colour
    return images, torch.tensor(labels)


def _taught(factory: Factory, *batches: list[int], backbone: int = 1) -> Strategy:
    """Return a new strategy on a tiny backbone, after one toy batch for each list of labels."""
    strategy = factory(tiny_backbone(backbone))
    for k, labels in enumerate(batches):
        strategy.learn(*toy_batch(labels, seed=k))
    return strategy


def inputs_are_left_alone(factory: Factory) -> None:
    """Check that frames, labels, the given backbone and the global random state do not change."""
    backbone = tiny_backbone()
    before = _copy(backbone)
    images, labels = toy_batch([0, 1] * 4)
    images_before, labels_before = images.clone(), labels.clone()
    random_before = torch.get_rng_state()
    strategy = factory(backbone)
    strategy.learn(images, labels)
    strategy.scores(images)
    assert images.equal(images_before), "learn or scores changed the frames"
    assert labels.equal(labels_before), "learn changed the labels"
    assert _same(before, backbone.state_dict()), (
        "the strategy changed the backbone it was given: it must work on a copy"
    )
    assert torch.get_rng_state().equal(random_before), (
        "the global random state moved: use generators seeded by (seed, batch, epoch)"
    )


def state_has_no_aliases(factory: Factory) -> None:
    """Check that no two tensors of the state share memory.

    An importance that is a view of a live weight would always be 0.
    """
    strategy = _taught(factory, [0, 1] * 4)
    owners: dict[int, str] = {}
    for name, tensor in strategy.state_dict().items():
        if tensor.numel():
            other = owners.setdefault(tensor.untyped_storage().data_ptr(), name)
            assert other == name, f"{name} and {other} share memory"


def saved_and_loaded_goes_on_the_same(factory: Factory) -> None:
    """Check that `state_dict()` is complete.

    A fresh strategy that loads it must score and continue to learn bit for bit the same.
    """
    first = _taught(factory, [0, 1] * 3, [1, 2] * 3, [2, 3] * 3)
    second = factory(tiny_backbone())
    second.load_state_dict(_copy(first))
    images, labels = toy_batch([1, 4] * 3, seed=9)
    assert first.scores(images).equal(second.scores(images)), "a loaded strategy scores differently"
    first.learn(images, labels)
    second.learn(images, labels)
    different = [n for n, t in first.state_dict().items() if not t.equal(second.state_dict()[n])]
    assert not different, f"after loading, learning goes on differently: {different[:3]}"


def same_seed_same_result(factory: Factory) -> None:
    """Check that the result does not depend on the global random state."""
    states = []
    for seed in (1, 2):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            states.append(_copy(_taught(factory, [0, 1] * 4, [1, 2] * 4)))
    assert _same(*states), "the result depends on the global random state"


def cost_is_constant(factory: Factory) -> bool:
    """Check that the cost of a batch does not depend on the number of earlier batches.

    False is returned by checks that do not concern the strategy.

    The cost is the number of operations, if the strategy is rehearsal-free, and the bytes that it
    keeps. A strategy that rehearses keeps its patterns in a `Memory`, which has a limit, and
    everything else must keep its size. A strategy that keeps everything declares this by
    `keeps_everything`.
    """
    strategy = factory(tiny_backbone())
    free, kept = strategy.rehearsal_free, list(memories(strategy))
    assert not (free and (kept or strategy.keeps_everything)), (
        "a strategy with a Memory is not rehearsal-free: set rehearsal_free = False"
    )
    if strategy.keeps_everything:
        return False
    costs, beside = [], []
    for k in range(8):
        images, labels = toy_batch([0, 1, 2] * 4, seed=k)
        with CountOperations() as counter:
            report = strategy.learn(images, labels)
        stored, most = sum(m.bytes for m in kept), sum(m.most_bytes for m in kept)
        assert stored <= most, f"the memory holds {stored} bytes, and its limit is {most}"
        assert (report.stored_bytes == 0) == free, (
            "a strategy that rehearses reports stored_bytes, and no other; what is in a Memory is "
            "counted for it"
        )
        costs.append((counter.operations, counter.elements))
        beside.append(_kept_bytes(strategy) - stored)
    assert beside[3] == beside[7], (
        f"what it keeps beside its Memory went from {beside[3]} bytes in batch 4 to {beside[7]} "
        "in batch 8: keep patterns in primavista.Memory, which has a limit"
    )
    assert not free or costs[3] == costs[7], (
        f"(operations, elements) went from {costs[3]} in batch 4 to {costs[7]} in batch 8"
    )
    return True


def _kept_bytes(strategy: Strategy) -> int:
    """Return the bytes of a strategy's state, and what it hides outside of it."""
    state: int = sum(t.numel() * t.element_size() for t in strategy.state_dict().values())
    return state + hidden_size(strategy)


def any_batches(factory: Factory) -> None:
    """Check batches of one frame, of one class and larger than a minibatch, and unusual labels.

    New and known classes may come in any order, with gaps in the labels, in lessons of one class
    each, and there may be more of them than the initial capacity.
    """
    courses = (
        ([0, 1, 2, 3], [2], [1] * 5, [0, 1, 2] * 100),
        ([0] * 8, [1] * 8, [2] * 8),
        ([7, 3] * 3, [40] * 4, [3, 1000] * 3, [7] * 4, [0, 40] * 2),
        (list(range(70)), list(range(60, 130))),
    )
    all_known = len(factory(tiny_backbone()).classes) > 0  # all outputs are known from the start
    for course in courses[:2] if all_known else courses:
        strategy = factory(tiny_backbone())
        for k, labels in enumerate(course):
            report = strategy.learn(*toy_batch(labels, seed=k))
            assert report.patterns >= len(labels), (
                f"{len(labels)} frames were given, {report.patterns} learned"
            )
            _finite(strategy)
        known, taught = strategy.classes.tolist(), set().union(*course)
        assert all_known or sorted(known) == sorted(taught), f"the known classes are {known}"
        scores = strategy.scores(toy_batch([0, 1, 2])[0])
        assert scores.shape == (3, len(known)), f"scores has shape {tuple(scores.shape)}"
        assert float(scores.std()) > 0, "every score is the same"


def scores_do_not_depend_on_company(factory: Factory) -> None:
    """Check that the scores of a frame do not depend on the other frames of the call.

    Scoring must not change the state either.
    """
    strategy = _taught(factory, [0, 1, 2] * 3)
    before = _copy(strategy)
    images = toy_batch([0, 1, 2, 1], seed=5)[0]
    assert strategy.scores(images).equal(strategy.scores(images)), (
        "the same frames are scored differently the second time"
    )
    alone = torch.cat([strategy.scores(image[None]) for image in images])
    assert torch.allclose(strategy.scores(images), alone, rtol=1e-3, atol=1e-4), (
        "scores depend on the other frames"
    )
    assert _same(before, strategy.state_dict()), "scores changed the state"


def judges_what_it_scores(factory: Factory) -> None:
    """Check that `judge` and `scores` return equal scores, and that familiarity is finite."""
    strategy = factory(tiny_backbone())
    images = toy_batch([0, 1, 2, 7], seed=5)[0]
    for scores in (strategy.scores(images), judge(strategy, images).scores):
        assert scores.shape == (4, len(strategy.classes)), (
            f"scores have shape {tuple(scores.shape)} before any batch"
        )
    for k, labels in enumerate(([0] * 6, [1, 2] * 4, [0, 2] * 3)):
        strategy.learn(*toy_batch(labels, seed=k))
        judged = judge(strategy, images)
        assert judged.scores.equal(strategy.scores(images)), (
            "judge and scores give different scores"
        )
        assert 0 < judged.temperature < float("inf"), f"the temperature is {judged.temperature}"
        assert (judged.familiarity is not None) == tells_strangers(strategy), (
            "there must be a familiarity if and only if open_set is True"
        )
        if judged.familiarity is not None:
            assert judged.familiarity.shape == (4,), (
                f"familiarity has shape {tuple(judged.familiarity.shape)} for 4 frames"
            )
            assert bool(judged.familiarity.isfinite().all()), "familiarity contains NaN or infinity"


def forgets_and_learns_again(factory: Factory) -> None:
    """Check that a forgotten class has no column, and that it can be taught again.

    The scores of the other classes stay the same, or become those of a strategy that was never
    taught the class.
    """
    strategy = factory(tiny_backbone())
    taught, labels = toy_batch([0, 1, 2] * 3)
    strategy.learn(taught, labels)
    images = toy_batch([0, 1, 2], seed=4)[0]
    before, classes = strategy.scores(images), strategy.classes.tolist()
    strategy.forget(1)
    assert strategy.classes.tolist() == [c for c in classes if c != 1], (
        f"after forgetting 1: {strategy.classes.tolist()}"
    )
    others = before[:, [j for j, c in enumerate(classes) if c != 1]]
    never = factory(tiny_backbone())
    never.learn(taught[labels != 1], labels[labels != 1])
    after = strategy.scores(images)
    assert after.shape == others.shape
    if isinstance(getattr(strategy, "head", None), AnalyticHead):
        # the others lose a negative, so their scores change, but not their order
        assert after[::2].argmax(1).equal(others[::2].argmax(1)), (
            "forgetting one class changed the order of the others"
        )
    elif strategy.rehearsal_free:  # a strategy that stores data may retrain
        assert _close(after, others) or _close(after, never.scores(images)), (
            "forgetting one class changed the scores of the others, and they are not those of a "
            "strategy that was never taught it"
        )
    strategy.learn(*toy_batch([1] * 4))
    assert strategy.classes.tolist().count(1) == 1


def forgets_one_and_learns_another(factory: Factory) -> bool:
    """Check that another class can be learned in place of a forgotten one.

    Nothing of the forgotten class may remain: no label in a `Memory`, none of its frames and none
    of their features.
    """
    strategy = factory(tiny_backbone())
    if len(strategy.classes):
        return False  # all outputs are known from the start
    images, labels = toy_batch([0, 1] * 4)
    strategy.learn(images, labels)
    gone = images[labels == 0]
    features = strategy.representation.features(gone, frozen=strategy.embeds).cpu()
    strategy.forget(0)
    for memory in memories(strategy):
        assert 0 not in memory.labels.tolist(), "the memory still has labels of a forgotten class"
    for name, tensor in strategy.state_dict().items():
        for what, rows in (("frames", gone), ("features", features)):
            if tensor.dtype == rows.dtype and tensor.shape[1:] == rows.shape[1:]:
                same = (tensor[:, None].cpu() == rows).flatten(2).all(2)
                assert not same.any(), f"{name} still has {what} of a forgotten class"
    for k, taught in enumerate(([1, 2] * 4, [3] * 4, [2, 1] * 3)):
        strategy.learn(*toy_batch(taught, seed=k))
    assert strategy.classes.tolist() == [1, 2, 3], (
        f"after learning 0 and 1, forgetting 0 and learning 1, 2 and 3, the known classes are "
        f"{strategy.classes.tolist()}"
    )
    _finite(strategy)
    return True


def uses_the_backbone_it_is_given(factory: Factory) -> None:
    """Check that the scores depend on the weights of the given backbone."""
    images = toy_batch([0, 1, 2] * 4)[0]
    one, other = (_taught(factory, [0, 1, 2] * 4, backbone=seed) for seed in (1, 2))
    assert not one.scores(images).equal(other.scores(images)), (
        "two backbones with different weights give the same scores: use the one that is given"
    )


def _close(scores: Tensor, expected: Tensor) -> bool:
    if scores.shape != expected.shape:
        return False
    return float((scores - expected).abs().max()) <= 1e-4 * float(expected.abs().max())


def labels_matter_in_every_batch(factory: Factory) -> None:
    """Check that the result depends on the labels, in an early batch and in a later one."""
    images = toy_batch([0, 1] * 4)[0]
    for batches in (2, 4):
        scores = []
        for last in ([0, 1] * 4, [1, 0] * 4):
            strategy = _taught(factory, *[[0, 1] * 4] * (batches - 1))
            strategy.learn(images, torch.tensor(last))
            order = strategy.classes.argsort()
            scores.append(strategy.scores(images)[:, order])
        assert not scores[0].equal(scores[1]), (
            f"batch {batches} with its labels exchanged leaves the same scores"
        )


def learns_what_it_is_shown(factory: Factory) -> None:
    """Check that the right one of two easy classes gains on the other after a few batches."""
    strategy = factory(tiny_backbone())
    images, labels = toy_batch([0, 1] * 16)

    def lead() -> float:
        if not len(strategy.classes):
            return 0.0
        known = strategy.classes.tolist()
        pair = strategy.scores(images)[:, [known.index(0), known.index(1)]]
        return float((pair.gather(1, labels[:, None]) - pair.gather(1, 1 - labels[:, None])).mean())

    before = lead()
    for _ in range(4):
        strategy.learn(images, labels)
    assert lead() > before, (
        f"the right class led by {before:.3g} before, by {lead():.3g} after four batches"
    )


def embedding_is_the_same_road(factory: Factory) -> bool:
    """Check that learning and scoring give the same results from features as from frames.

    The check concerns strategies with `embed`.
    """
    frames, features = factory(tiny_backbone()), factory(tiny_backbone())
    if not isinstance(features, EmbeddingStrategy):
        return False
    for k in range(3):
        images, labels = toy_batch([k, k + 1] * 4, seed=k)
        frames.learn(images, labels)
        if features.embeds:
            features.learn_embedded(features.embed(images), labels)
        else:
            features.learn(images, labels)
    expected, found = frames.scores(images), features.scores_embedded(features.embed(images))
    assert torch.allclose(expected, found, rtol=1e-3, atol=1e-4)
    return True


def order_and_grouping_of_lessons_do_not_matter(factory: Factory) -> bool:
    """Check that an analytic strategy gives the same scores for any order, grouping and merge.

    A lesson is all frames of one class in one session; they stay in one batch, and their order in
    the batch does not matter.
    """
    strategies = [factory(tiny_backbone()) for _ in range(4)]
    analytic = [strategy for strategy in strategies if isinstance(strategy, AnalyticStrategy)]
    if not analytic:
        return False
    whole, regrouped, left, right = analytic
    images, labels = toy_batch([5, 1, 1, 3, 5, 8, 3, 3, 1, 5, 8, 5])
    sessions = torch.tensor([0, 1, 0, 2, 0, 3, 0, 2, 1, 4, 3, 4])
    z = whole.embed(images)

    def teach(strategy: AnalyticStrategy, *some: int) -> None:
        """Teach the frames of some sessions as one batch, in reverse order."""
        rows = torch.cat([(sessions == session).nonzero()[:, 0] for session in some]).flip(0)
        strategy.learn_embedded(z[rows], labels[rows], sessions[rows])

    whole.learn_embedded(z, labels, sessions)
    for part in ([3], [4, 1], [0], [2]):
        teach(regrouped, *part)
    teach(left, 2, 4)
    teach(right, 0, 3, 1)
    before = _copy(right)
    left.head.merge(right.head, torch.tensor(left.columns_of(right.classes.tolist())))
    assert _same(before, right.state_dict()), "merging changed the other"
    expected = whole.scores_embedded(z)[:, whole.classes.argsort()]
    for strategy in (regrouped, left):
        assert sorted(strategy.classes.tolist()) == [1, 3, 5, 8], (
            f"the known classes are {strategy.classes.tolist()}"
        )
        scores = strategy.scores_embedded(z)[:, strategy.classes.argsort()]
        off = float((scores - expected).abs().max() / expected.abs().max())
        assert off <= SCORES_AGREE, (
            f"another order of lessons, another grouping or a merge changed the scores by {off:.1g}"
        )
    return True


CHECKS: tuple[Callable[[Factory], object], ...] = (
    inputs_are_left_alone,
    state_has_no_aliases,
    saved_and_loaded_goes_on_the_same,
    same_seed_same_result,
    cost_is_constant,
    any_batches,
    scores_do_not_depend_on_company,
    judges_what_it_scores,
    forgets_and_learns_again,
    forgets_one_and_learns_another,
    uses_the_backbone_it_is_given,
    labels_matter_in_every_batch,
    learns_what_it_is_shown,
    embedding_is_the_same_road,
    order_and_grouping_of_lessons_do_not_matter,
)


class CountOperations(TorchDispatchMode):
    """Counts the operations that run, and the elements that they return.

    On a GPU each operation is one kernel launch.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # skipping the compiler would import it, which takes 2 s and 150 MB

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations = self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.operations += 1
        self.elements += sum(x.numel() for x in tree_leaves(result) if isinstance(x, Tensor))
        return result


def hidden_size(strategy: nn.Module) -> int:
    """Count the elements of tensors and containers in plain attributes, outside the state.

    Args:
        strategy: Any module.
    """
    seen: set[int] = set()

    def size(value: Any) -> int:
        if id(value) in seen or isinstance(value, nn.Module):
            return 0
        seen.add(id(value))
        if isinstance(value, Tensor):
            return value.numel()
        if isinstance(value, dict):
            return len(value) + sum(size(v) for v in value.values())
        if isinstance(value, list | tuple | set | frozenset):
            return len(value) + sum(size(v) for v in value)
        return 0

    apart = ("_parameters", "_buffers", "_modules")
    return sum(
        size(v) for m in strategy.modules() for name, v in vars(m).items() if name not in apart
    )


def _copy(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def _same(a: dict[str, Tensor], b: dict[str, Any]) -> bool:
    return a.keys() == b.keys() and all(tensor.equal(b[name]) for name, tensor in a.items())


def _finite(strategy: Strategy) -> None:
    scores = strategy.scores(toy_batch([0, 1, 2])[0])
    assert bool(scores.isfinite().all()), "scores hold NaN or infinity"
    for name, tensor in strategy.state_dict().items():
        assert not tensor.is_floating_point() or bool(tensor.isfinite().all()), (
            f"{name} holds NaN or infinity"
        )

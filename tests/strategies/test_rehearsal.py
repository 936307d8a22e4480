"""The four baselines that keep frames, against hand-worked numbers and slow versions."""

from __future__ import annotations

import copy
import math
from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from primavista import Learner, evaluate
from primavista.engine.frames import read_frames
from primavista.errors import FileError, InputError
from primavista.nn.minibatches import generator
from primavista.strategies.builtin import STRATEGIES
from primavista.strategies.conformance import tiny_backbone, toy_batch
from primavista.strategies.creation import create
from primavista.strategies.registry import strategy_info
from primavista.strategies.rehearsal.er import Reservoir
from primavista.strategies.rehearsal.frame_rehearsal import augmented
from primavista.strategies.rehearsal.gdumb import (
    GreedySampler,
    clipped,
    cut_and_mix,
    random_box,
    warm_restarts,
)
from primavista.strategies.rehearsal.icarl import herding
from primavista.streams.dataset import DataSet, Session
from primavista.streams.protocols import nicv2

NAMES = ["er", "der++", "gdumb", "icarl"]
ORDER = [(label, k) for label in range(3) for k in (1, 2, 3)]  # the sessions of three classes
STREAM = [[0, 1] * 6, [2] * 9, [1, 3] * 5, [0] * 7, [4, 2] * 4]


def taught(name, *batches, **options):
    strategy = create(name, tiny_backbone(), **options)
    reports = [strategy.learn(*toy_batch(labels, seed=k)) for k, labels in enumerate(batches)]
    return strategy, reports


# the reservoir


def test_a_reservoir_with_drawn_numbers_worked_by_hand(monkeypatch):
    """Two places. 0 and 1 take them; 2 draws 1 of 0..2, 3 draws 2 of 0..3, 4 draws 0 of 0..4."""
    asked, drawn = [], iter([1, 2, 0])

    def randint(high, size, generator):
        asked.append(high)
        return torch.tensor(next(drawn))

    monkeypatch.setattr(torch, "randint", randint)
    reservoir = Reservoir(2, [], 0, generator(0))
    reservoir.update([0, 1, 2, 3])
    assert reservoir.kept == [0, 2]
    reservoir.update([4])
    assert (reservoir.kept, reservoir.n, asked) == ([4, 2], 5, [3, 4, 5])


@pytest.mark.parametrize(("size", "count"), [(1, 2), (2, 5), (3, 4)])
def test_a_reservoir_keeps_every_pattern_with_the_same_probability(size, count):
    """size / count, within four deviations of 4,000 draws, if the patterns come in two parts."""
    runs, found = 4000, Counter()
    for seed in range(runs):
        reservoir = Reservoir(size, [], 0, generator(seed))
        reservoir.update(range(2))
        again = Reservoir(size, reservoir.kept, 2, generator(seed, 1))
        again.update(range(2, count))
        assert len(set(again.kept)) == min(size, count)
        found.update(again.kept)
    p = size / count
    for pattern in range(count):
        assert abs(found[pattern] / runs - p) < 4 * math.sqrt(p * (1 - p) / runs)


def test_samples_of_a_reservoir_have_no_pattern_twice():
    reservoir = Reservoir(5, [7, 8, 9], 3, generator(0))
    assert sorted(reservoir.sample(10).tolist()) == [7, 8, 9]
    assert len(set(reservoir.sample(2).tolist())) == 2
    assert Reservoir(5, [], 0, generator(0)).sample(4).tolist() == []


# experience replay and DER++


def slow_loss(h, y, new, stored):
    """Equation 6 with alpha 0.2 and beta 0.5."""
    loss = F.cross_entropy(h[:new], y[:new])
    if stored:
        squares = (h[new : new + len(stored)] - torch.stack(stored)).square()
        loss = loss + 0.2 * squares.sum() / squares.numel()
        loss = loss + 0.5 * F.cross_entropy(h[new + len(stored) :], y[new + len(stored) :])
    return loss


@pytest.mark.parametrize("name", ["er", "der++"])
def test_three_batches_equal_a_slow_version(name):
    """Written apart: lists of (frame, label, outputs), torch's SGD, and one pattern at a time."""
    options = {"memory": 5, "minibatch": 4, "replayed": 3, "lr_1": 0.05, "lr": 0.02, "capacity": 6}
    options |= {"epochs_1": 1, "epochs": 1}
    fast = create(name, tiny_backbone(), seed=3, **options)
    slow = copy.deepcopy(fast)
    network, head, M, n = slow.backbone, slow.head, [], 0
    for i, labels in enumerate([[4, 7] * 3, [7] * 5, [9, 4] * 4], 1):
        images, truth = toy_batch(labels, seed=i)
        report = fast.learn(images, truth)
        column = {label: j for j, label in enumerate(fast.classes.tolist())}
        lr = 0.05 if i == 1 else 0.02
        weights = [*network.parameters(), head.weight, head.bias]
        for weight in weights:
            weight.requires_grad_()
        sgd = torch.optim.SGD(weights, lr)
        network.eval()
        for layer in network.modules():
            if isinstance(layer, torch.nn.BatchNorm2d):
                layer.train()
                layer.momentum = 0.01 if i == 1 else 0.1
        order, draw = generator(3, i, 0), generator(3, i, -1)
        arriving = torch.randperm(len(labels), generator=order)
        losses, shown = 0.0, 0
        for part in arriving.tensor_split(-(-len(labels) // 4)):
            draws = [
                [M[k] for k in torch.randperm(len(M), generator=draw)[:3].tolist()]
                for _ in range(1 if name == "er" else 2)
            ]
            new = [(images[k], column[labels[k]], None) for k in part.tolist()]
            everything = [*new, *(pattern for drawn in draws for pattern in drawn)]
            h = head(network(torch.stack([x for x, _, _ in everything])))
            y = torch.tensor([y for _, y, _ in everything])
            stored = [z for _, _, z in draws[0]] if name == "der++" else []
            loss = slow_loss(h, y, len(new), stored) if name == "der++" else F.cross_entropy(h, y)
            losses += float(loss.detach()) * len(everything)
            shown += len(everything)
            sgd.zero_grad()
            loss.backward()
            sgd.step()
            for pattern, z in zip(new, h.detach(), strict=False):
                if len(M) < 5:
                    M.append((*pattern[:2], z))
                else:
                    place = int(torch.randint(n + 1, (), generator=draw))
                    if place < 5:
                        M[place] = (*pattern[:2], z)
                n += 1
        close = {"rtol": 1e-4, "atol": 1e-6}
        for (key, ours), theirs in zip(
            fast.backbone.state_dict().items(), network.state_dict().values(), strict=True
        ):
            torch.testing.assert_close(ours, theirs, msg=key, **close)
        torch.testing.assert_close(fast.head.weight.detach(), head.weight.detach(), **close)
        assert torch.equal(fast.frames, torch.stack([x for x, _, _ in M]))
        assert fast.memory.columns(fast.classes).tolist() == [y for _, y, _ in M]
        if name == "der++":
            outputs = torch.stack([z for _, _, z in M])
            torch.testing.assert_close(fast.outputs(), outputs, **close)
        assert report.losses == pytest.approx([losses / shown], rel=1e-4)
    assert int(fast.seen.n.sum()) == n == 19


def test_the_loss_of_der_worked_by_hand():
    """Equation 6 with one pattern each.

    ln 2 for outputs (0, 0); alpha (1 + 4) / 2 for (1, 3) where (0, 1) is stored; and
    beta ln(4 / 3) for (ln 3, 0) with the first class.
    """
    strategy = create("der++", tiny_backbone(), alpha=0.2, beta=0.5)
    h = torch.tensor([[0.0, 0.0], [1.0, 3.0], [math.log(3), 0.0]])
    y, z = torch.tensor([0, 1, 0]), torch.tensor([[0.0, 1.0]])
    by_hand = math.log(2) + 0.2 * 2.5 + 0.5 * math.log(4 / 3)
    assert float(strategy.loss(h, y, z)) == pytest.approx(by_hand, rel=1e-6)
    assert by_hand == pytest.approx(1.336988, abs=1e-6)
    alone = strategy.loss(h[:1], y[:1], z[:0])
    assert float(alone) == pytest.approx(math.log(2), rel=1e-6)


def test_stored_outputs_follow_a_head_that_grows_and_a_class_that_is_forgotten():
    """Rows that a head grows by are 0, so their outputs would have been 0."""
    strategy, _ = taught("der++", [5, 6] * 4, capacity=2)
    before = strategy.outputs().clone()
    assert before.shape == (8, 2)
    strategy.columns_of([7, 8, 9])  # the head has 8 rows now
    assert torch.equal(strategy.outputs(), torch.cat([before, torch.zeros(8, 6)], 1))
    sixes = strategy.memory.labels == 6
    strategy.forget(5)
    assert torch.equal(strategy.outputs()[:, 0], before[sixes, 1])
    assert float(strategy.outputs()[:, 1:].abs().max()) == 0


def test_the_outputs_that_der_stores_are_those_of_training():
    """One step from known weights: the outputs before the step, with the norms in training mode."""
    strategy = create("der++", tiny_backbone(), epochs_1=1)
    before = copy.deepcopy(strategy)
    images, labels = toy_batch([3, 8] * 5)
    strategy.learn(images, labels)
    before._train_mode(None)
    with torch.no_grad():
        h = before.head(before.backbone(images))
    for frame, z in zip(strategy.frames, strategy.outputs(), strict=True):
        k = next(k for k, image in enumerate(images) if image.equal(frame))
        torch.testing.assert_close(z, h[k], rtol=1e-4, atol=1e-5)


# GDumb


def test_the_greedy_sampler_worked_by_hand():
    """Four places.

    a fills them; each b takes the place of an a until both have their share of 2, and no further a
    or b is kept. The first c takes the place of an a or a b, the second that of the class which
    still has 2, and the third finds its share of 4 / 3 exceeded.
    """
    sampler = GreedySampler(4, [], generator(0))

    def offer(*pairs):
        for pattern, y in pairs:
            sampler.offer(pattern, y)
        return {y: len(kept) for y, kept in sampler.D.items()}

    a, b, c = 0, 1, 2
    assert offer((0, a), (1, a), (2, a), (3, a), (4, a)) == {a: 4}
    assert sampler.kept == [0, 1, 2, 3]
    assert offer((10, b)) == {a: 3, b: 1}
    assert offer((11, b)) == {a: 2, b: 2}
    assert offer((12, b), (5, a)) == {a: 2, b: 2}
    assert sampler.D[b] == [10, 11]
    assert sorted(offer((20, c)).values()) == [1, 1, 2]
    assert offer((21, c), (22, c)) == {a: 1, b: 1, c: 2}
    assert sampler.D[c] == [20, 21]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.lists(st.integers(0, 4), max_size=60), st.integers(0, 99))
def test_the_greedy_sampler_is_bounded_and_ends_balanced(k, stream, seed):
    sampler = GreedySampler(k, [], generator(seed))
    for pattern, y in enumerate(stream):
        sampler.offer(pattern, y)
        assert len(sampler.kept) == len(set(sampler.kept)) <= k
        assert all(stream[p] == label for label, kept in sampler.D.items() for p in kept)
    for pattern in range(5 * k):  # all five classes come until each has its share
        sampler.offer(100 + pattern, pattern % 5)
    counts = [len(kept) for kept in sampler.D.values()]
    assert sum(counts) == k
    assert max(counts) - min(counts) <= 1


def test_warm_restarts_are_those_of_torch():
    """Epoch 0 at a tenth, epoch 1 at the maximum, and then the scheduler steps once per epoch."""
    sgd = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], 0.05)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(sgd, 1, 2, 0.0005)
    expected = [0.005, 0.05]
    for _ in range(2, 256):
        sgd.step()
        scheduler.step()
        expected.append(sgd.param_groups[0]["lr"])
    assert [0.05 * warm_restarts(epoch, 0.01) for epoch in range(256)] == pytest.approx(expected)
    assert expected[255] < 0.0006  # 256 passes end with a cycle


def test_cut_and_mix_worked_by_hand():
    """Two rows and three columns of 4 x 4 pixels come from the other frame: 10 of 16 are own."""
    x = torch.stack([torch.full((4, 4, 3), value, dtype=torch.uint8) for value in (10, 20)])
    mixed, share = cut_and_mix(x, torch.tensor([1, 0]), torch.tensor([1, 3, 0, 3]))
    assert float(share) == pytest.approx(10 / 16)
    assert mixed[0, :, :, 0].tolist() == [[10] * 4, [20, 20, 20, 10], [20, 20, 20, 10], [10] * 4]
    assert mixed[1, 1, :, 2].tolist() == [10, 10, 10, 20]
    same, share = cut_and_mix(x, torch.tensor([1, 0]), torch.zeros(4, dtype=torch.int64))
    assert torch.equal(same, x)
    assert float(share) == 1


def test_boxes_are_drawn_in_half_of_the_minibatches_and_lie_in_the_frame():
    random = generator(0)
    boxes = torch.stack([random_box(32, 0.5, random) for _ in range(2000)])
    assert int(boxes.min()) >= 0
    assert int(boxes.max()) <= 32
    used = boxes.any(1)
    assert 0.45 < float(used.float().mean()) < 0.55
    assert not torch.stack([random_box(32, 0.0, random) for _ in range(50)]).any()


def test_gradients_are_clipped_at_a_norm():
    """(3, 0) and (4) have the norm 5."""
    g = {"a": torch.tensor([3.0, 0.0]), "b": torch.tensor([4.0])}
    assert [t.tolist() for t in clipped(g, 10.0).values()] == [[3, 0], [4]]
    assert torch.cat([*clipped(g, 1.0).values()]).tolist() == pytest.approx([0.6, 0, 0.8])
    assert clipped({"a": torch.zeros(2)}, 1.0)["a"].tolist() == [0, 0]


def test_gdumb_is_a_function_of_its_memory_alone():
    """What was seen and not kept has no influence: training starts from the network as given."""
    strategy, _ = taught("gdumb", *STREAM, memory=8, every=None)
    losses = strategy.retrain()
    weights = {name: tensor.clone() for name, tensor in strategy.backbone.state_dict().items()}
    assert strategy.retrain() == losses
    assert all(tensor.equal(weights[n]) for n, tensor in strategy.backbone.state_dict().items())
    first = create("gdumb", tiny_backbone()).backbone.state_dict()
    assert not first["body.6.weight"].equal(weights["body.6.weight"])
    assert strategy.scratch.state_dict()["body.6.weight"].equal(first["body.6.weight"])


# iCaRL


def test_herding_worked_by_hand():
    """Of 0, 1, 2, 7 with mean 2.5.

    2 is nearest. With 2, the means are 1, 1.5 and 4.5: 1.5 is nearest, by adding 1. With both, 0
    gives 1 and 7 gives 10 / 3, which is nearer.
    """
    phi = torch.tensor([[0.0], [1.0], [2.0], [7.0]])
    assert herding(phi, phi.mean(0), 3).tolist() == [2, 1, 3]
    assert herding(phi, phi.mean(0), 9).tolist() == [2, 1, 3, 0]
    assert herding(phi, phi.mean(0), 0).tolist() == []


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 9), st.integers(1, 12), st.integers(0, 999))
def test_herding_chooses_the_best_next_exemplar(count, m, seed):
    phi = F.normalize(torch.randn(count, 3, generator=generator(seed)), dim=1)
    chosen = herding(phi, phi.mean(0), m).tolist()
    assert len(set(chosen)) == len(chosen) == min(m, count)
    for k in range(1, len(chosen) + 1):

        def off(p, k=k):
            return float((phi.mean(0) - phi[[*chosen[: k - 1], p]].mean(0)).norm())

        others = set(range(count)) - set(chosen[: k - 1])
        assert off(chosen[k - 1]) <= min(map(off, others)) + 1e-6


def test_the_loss_of_icarl_worked_by_hand():
    """Outputs 0 are probabilities of 1 / 2: each of the two known classes costs ln 2."""
    strategy = create("icarl", tiny_backbone())
    outputs, known = torch.tensor([[0.0, 0.0, 9.0]]), torch.tensor([True, True, False])
    q = torch.tensor([[1.0, 0.25, 0.0]])
    assert float(strategy.loss(outputs, q, known)) == pytest.approx(2 * math.log(2))
    sure = torch.tensor([[math.log(3), 0.0, 9.0]])  # a probability of 3 / 4 for the first class
    expected = math.log(4 / 3) + math.log(2)
    assert float(strategy.loss(sure, q, known)) == pytest.approx(expected, rel=1e-6)


def test_the_targets_of_icarl_are_labels_for_present_and_old_outputs_for_absent_classes():
    strategy, _ = taught("icarl", [5, 6] * 3, capacity=3)
    images, labels = toy_batch([6, 7] * 2, seed=5)
    B = strategy.begin_batch(images, labels)
    D = strategy.with_memory(B)
    with torch.no_grad():
        old = strategy.head(strategy.backbone.eval()(D.images[torch.arange(10)])).sigmoid()
    q = strategy.targets(B, D)
    torch.testing.assert_close(q[:, 0], old[:, 0])  # class 5 is not in the batch
    assert D.columns.tolist() == [1, 2, 1, 2, *strategy.memory.columns(strategy.classes).tolist()]
    for j in (1, 2):
        assert q[:, j].tolist() == [float(y == j) for y in D.columns.tolist()]


def test_each_class_has_its_share_of_the_exemplars_and_old_ones_keep_their_best():
    """K = 12: 6 for each of two classes, then 4 for each of three."""
    strategy, _ = taught("icarl", [0, 1] * 8, memory=12)
    assert Counter(strategy.memory.labels.tolist()) == {0: 6, 1: 6}
    best = {y: strategy.frames[strategy.memory.labels == y] for y in (0, 1)}
    strategy.learn(*toy_batch([2] * 9, seed=1))
    assert Counter(strategy.memory.labels.tolist()) == {0: 4, 1: 4, 2: 4}
    for y in (0, 1):
        assert torch.equal(strategy.frames[strategy.memory.labels == y], best[y][:4])


def test_exemplars_stand_for_the_frames_that_they_were_chosen_from():
    """Two exemplars of 10 frames at 1, and two new frames at 4: (10 x 1 + 2 x 4) / 12 = 1.5."""
    strategy = create("icarl", tiny_backbone())
    phi, new = torch.tensor([[4.0], [4.0], [1.0], [1.0]]), torch.tensor([True, True, False, False])
    assert strategy.class_mean(phi, new, 10).tolist() == pytest.approx([1.5])
    assert strategy.class_mean(phi[:2], new[:2], 0).tolist() == pytest.approx([4.0])


def test_icarl_scores_by_the_distance_from_the_mean_of_the_exemplars():
    strategy, _ = taught("icarl", *STREAM, memory=10)
    images = toy_batch([0, 1, 2, 3, 4], seed=9)[0]
    with torch.no_grad():
        phi = F.normalize(strategy.backbone.eval()(images), dim=1)
        kept = F.normalize(strategy.backbone(strategy.frames), dim=1)
    for j, label in enumerate(strategy.classes.tolist()):
        mean = kept[strategy.memory.labels == label].mean(0)
        mean = mean / mean.norm()
        expected = [-float((one - mean).norm()) for one in phi]
        assert strategy.scores(images)[:, j].tolist() == pytest.approx(expected, abs=1e-3)


def test_icarl_leaves_out_the_incomplete_minibatch_of_an_epoch():
    strategy = create("icarl", tiny_backbone(), minibatch=4, epochs_1=3)
    sizes: list[int] = []
    logits = strategy.logits
    strategy.logits = lambda x: sizes.append(len(x)) or logits(x)
    images, labels = toy_batch([0, 1] * 5)[:2]
    strategy.learn(images, labels)
    assert sizes == [4] * 6  # 10 patterns are two minibatches of 4 in each of three epochs
    small = create("icarl", tiny_backbone(), minibatch=16)
    small.learn(images, labels)
    assert len(small.memory) == 10


def test_icarl_learns_more_classes_than_it_has_places():
    strategy, _ = taught("icarl", [0] * 4, [1] * 4, [2] * 4, memory=2)
    assert len(strategy.memory) == 0
    norms = strategy.exemplar_means.mu[:3].norm(dim=1)
    assert norms.tolist() == pytest.approx([1, 1, 1], abs=1e-5)


# all four


def test_they_say_that_they_rehearse():
    for name in NAMES:
        info = strategy_info(name)
        strategy = create(name, tiny_backbone())
        assert not info.rehearsal_free
        assert not strategy.rehearsal_free
        assert "(rehearses)" in info.title
        assert "NOT rehearsal-free" in info.source
    for name, info in STRATEGIES.items():
        assert info.rehearsal_free == create(name, tiny_backbone()).rehearsal_free


@pytest.mark.parametrize("name", NAMES)
def test_stored_bytes_are_those_of_frames_and_never_more_than_the_memory(name):
    """A frame has 16 x 16 x 3 bytes and its label 8; DER++ keeps four bytes per output."""
    strategy, reports = taught(name, *STREAM, memory=10, capacity=8)
    pattern = 16 * 16 * 3 + 8 + (4 * 8 if name == "der++" else 0)
    stored = [report.stored_bytes for report in reports]
    assert max(stored) <= strategy.memory.most_bytes == 10 * pattern
    assert stored[-1] == len(strategy.memory) * pattern > 0
    assert strategy.frames.dtype == torch.uint8


@pytest.mark.parametrize("name", NAMES)
def test_what_is_kept_are_frames_that_were_shown_with_their_labels(name):
    strategy, _ = taught(name, *STREAM, memory=10)
    shown: dict[int, list[torch.Tensor]] = {}
    for k, labels in enumerate(STREAM):
        for image, label in zip(*toy_batch(labels, seed=k), strict=True):
            shown.setdefault(int(label), []).append(image)
    for frame, label in zip(strategy.frames, strategy.memory.labels.tolist(), strict=True):
        assert any(frame.equal(other) for other in shown[label])


@pytest.mark.parametrize("name", NAMES)
def test_frames_are_read_once_per_batch(name, monkeypatch):
    """No frame is fetched one by one: a batch on a GPU would wait for each."""
    strategy, _ = taught(name, [0, 1] * 10)
    reads = []

    def counted(frames, indices, device):
        reads.append(len(indices))
        return read_frames(frames, indices, device)

    monkeypatch.setattr("primavista.strategies.rehearsal.frame_rehearsal.read_frames", counted)
    strategy.learn(*toy_batch([2, 3] * 10, seed=1))
    assert sorted(reads) == [1, 20]  # the first alone, to check its size


@pytest.mark.parametrize("name", NAMES)
def test_frames_of_another_size_are_refused(name):
    strategy, _ = taught(name, [0, 1] * 4)
    before = {key: value.clone() for key, value in strategy.state_dict().items()}
    with pytest.raises(InputError, match="16 x 16"):
        strategy.learn(torch.zeros(2, 24, 24, 3, dtype=torch.uint8), torch.tensor([0, 1]))
    assert all(value.equal(before[key]) for key, value in strategy.state_dict().items())


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_is_evaluated_with_the_stored_bytes_beside_the_accuracy(name):
    sessions = [Session(label, k, 6 * n, 6 * n + 6) for n, (label, k) in enumerate(ORDER)]
    frames = torch.cat([toy_batch([label] * 6, seed=k)[0] for label, k in ORDER])
    train, test = [s for s in sessions if s.number < 3], [s for s in sessions if s.number == 3]
    data = DataSet("toy", frames, tuple(train), tuple(test), ("a", "b", "c"), (0, 1, 2))
    stream = nicv2(data, run=0, first=[0, 1])
    strategy = create(name, tiny_backbone(), memory=10)
    steps = list(evaluate(strategy, stream))
    assert len(steps) == len(stream) >= 2
    for step in steps:
        assert 0 < step.report.stored_bytes <= strategy.memory.most_bytes
        assert 0 <= step.accuracy <= 100
    assert steps[-1].report.stored_bytes == strategy.memory.bytes
    assert steps[-1].state_bytes < strategy.memory.bytes  # what is stored is not counted again


def small_learner(name):
    return Learner(name, weights="random", width=0.0625, size=32, memory=20)


def lesson(label):
    return toy_batch([label] * 6, seed=label)[0].numpy()


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_learner_forgets_undoes_saves_and_refuses_to_merge(name, tmp_path):
    learner = small_learner(name)
    for label in range(3):
        learner.learn(lesson(label), f"object {label}")
    memory = learner.strategy.strategy.memory
    labels, frames = memory.labels.clone(), memory.fields["frames"].clone()
    learner.forget("object 1")
    assert set(learner.strategy.strategy.memory.labels.tolist()) == {0, 2}
    learner.undo()
    assert torch.equal(learner.strategy.strategy.memory.labels, labels)
    assert torch.equal(learner.strategy.strategy.memory.fields["frames"], frames)
    learner.save(tmp_path / "one.pv")
    loaded = Learner.load(tmp_path / "one.pv")
    for one in (learner, loaded):
        one.learn(lesson(3), "object 3")
    learner.save(tmp_path / "a.pv")
    loaded.save(tmp_path / "b.pv")
    assert (tmp_path / "a.pv").read_bytes() == (tmp_path / "b.pv").read_bytes()
    other = small_learner(name)
    other.learn(lesson(5), "object 5")
    with pytest.raises(InputError, match="cannot be merged; those that can are"):
        learner.merge(other)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_with_patterns_of_a_class_that_is_not_known_is_refused(name, tmp_path):
    learner = small_learner(name)
    learner.learn(lesson(0), "object 0")
    learner.strategy.strategy.memory.labels[0] = 40
    learner.save(tmp_path / "altered.pv")
    with pytest.raises(FileError, match="class 40"):
        Learner.load(tmp_path / "altered.pv")


def slow_crop(frame, down, right, mirrored):
    """The frame moved down and to the right, black elsewhere, and mirrored afterwards."""
    side = len(frame)
    out = torch.zeros_like(frame)
    for i in range(side):
        for j in range(side):
            if 0 <= i - down < side and 0 <= j - right < side:
                out[i, side - 1 - j if mirrored else j] = frame[i - down, j - right]
    return out


@pytest.mark.parametrize("flip", [False, True])
def test_augmented_frames_are_shifted_by_an_eighth_at_most_and_half_are_mirrored(flip):
    x = torch.arange(1, 1 + 8 * 8 * 3, dtype=torch.uint8).reshape(1, 8, 8, 3).repeat(400, 1, 1, 1)
    out = augmented(x, flip, generator(5))
    assert (out.dtype, out.shape) == (x.dtype, x.shape)
    cases = {
        (down, right, mirrored): slow_crop(x[0], down, right, mirrored)
        for down in (-1, 0, 1)
        for right in (-1, 0, 1)
        for mirrored in ((False, True) if flip else (False,))
    }
    found = Counter(key for frame in out for key, case in cases.items() if frame.equal(case))
    assert sum(found.values()) == 400  # each frame is one of the cases, and only one
    assert set(found) == set(cases)
    assert max(found.values()) < 3 * 400 / len(cases)
    if flip:
        assert 160 < sum(count for key, count in found.items() if key[2]) < 240


@pytest.mark.parametrize("name", NAMES)
def test_augmentation_is_of_training_only_and_a_function_of_the_seed(name):
    few = {"epochs_1": 2} if name == "gdumb" else {}
    plain, crops, again = (
        taught(name, [0, 1] * 6, [2] * 9, memory=6, augment=augment, **few)[0]
        for augment in ("none", "crop+flip", "crop+flip")
    )
    for one in (plain, crops, again):
        one.scores(toy_batch([0])[0])  # gdumb trains when it is asked
    weights = [torch.cat([p.flatten() for p in one.parameters()]) for one in (plain, crops, again)]
    assert weights[1].equal(weights[2])
    assert not weights[0].equal(weights[1])
    shown = [*toy_batch([0, 1] * 6)[0], *toy_batch([2] * 9, seed=1)[0]]
    assert all(any(frame.equal(one) for one in shown) for frame in crops.frames)


def test_there_is_no_other_augmentation():
    with pytest.raises(InputError, match="augment"):
        create("er", tiny_backbone(), augment="rotate")

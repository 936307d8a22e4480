"""`compat="caffe"` against the authors' release, of which this file has a second version.

The second version follows two repositories, from which the comments name files and lines:
lrzpellegrini/Fine-Grained-Continual-Learning (Python; its folder `Project Source`, and the
prototxt files in `NIC_v2`) and lrzpellegrini/CI-Customized-BVLC-caffe-docker (the C++ of its
Caffe). Strategies and second version learn the same batches in float64; all that they hold must
agree to 1e-12. Gradients of convolutions are torch's; everything else is written out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from primavista.nn.renorm import norm_layers
from primavista.strategies import caffe
from primavista.strategies.ar1 import AR1, AR1Options
from primavista.strategies.conformance import tiny_backbone, toy_batch
from primavista.strategies.creation import create
from primavista.strategies.options import SWITCHES

MINIBATCH, CLASSES = 8, 7
# several classes at first, then few, known and new ones mixed; not multiples of the minibatch
BATCHES = [
    toy_batch([0, 1, 2, 3] * 5 + [0, 0, 1], 1),
    toy_batch([0] * 6 + [4] * 5, 2),
    toy_batch([5] * 9, 3),
    toy_batch([4, 1] * 8, 4),
    toy_batch([0, 5, 5, 2, 2] * 3, 5),
]
EPOCHS = 2
TOLERANCE = 1e-12
# of the tiny backbone: layer, stride, padding, groups
CONVOLUTIONS = ((0, 2, 1, 1), (3, 1, 1, 8), (6, 1, 0, 1))


@dataclass
class NormSetting:
    """`batch_renorm_param` of a prototxt."""

    fraction: float = 0.99  # the default, caffe.proto, BatchReNormParameter
    step_to_init: int = 0
    step_to_max: int = 1
    r_max: float = 1.5
    d_max: float = 2.5


class BatchReNorm:
    """batch_renorm_layer.cpp: a mean, a variance, the weight of the past, an iteration counter."""

    EPS = 1e-5

    def __init__(self, channels):  # LayerSetUp, 30-46: all four blobs start at 0
        self.mean, self.variance = torch.zeros(2, channels).double()
        self.past_weight, self.iter = 0.0, 0

    def forward(self, x, setting):
        """Forward_cpu in the phase TRAIN."""
        mean = x.mean((0, 2, 3), keepdim=True)
        top = x - mean
        variance = top.square().mean((0, 2, 3), keepdim=True)
        std = (variance + self.EPS).sqrt()
        renormalises = self.iter >= setting.step_to_init
        if renormalises:
            r, d = self.r_and_d(mean.detach().flatten(), std.detach().flatten(), setting)
        self.average(mean.detach().flatten(), variance.detach().flatten(), x, setting.fraction)
        top = top / std
        return top * r[:, None, None] + d[:, None, None] if renormalises else top

    def average(self, mean, variance, x, fraction):
        """169-177: sums, in which all of the past counts `past_weight` times."""
        m = x.numel() // x.shape[1]
        self.past_weight = self.past_weight * fraction + 1
        self.mean = mean + fraction * self.mean
        self.variance = variance * m / (m - 1) + fraction * self.variance

    def r_and_d(self, mean, std, setting):
        """From the moments before this step; the limits grow with the iterations."""
        past_mean, past_std = self.moments()
        steps = self.iter - setting.step_to_init + 1
        ramp = setting.step_to_max - setting.step_to_init
        r_max = max(1, min(1 + steps * (setting.r_max - 1) / ramp, setting.r_max))
        d_max = max(0, min(steps * setting.d_max / ramp, setting.d_max))
        return (
            (std / past_std).clamp(1 / r_max, r_max),
            ((mean - past_mean) / past_std).clamp(-d_max, d_max),
        )

    def moments(self):
        return (
            self.mean / self.past_weight,
            (self.variance / self.past_weight + self.EPS).sqrt(),
        )

    def set_past_weight(self, weight):
        """cwr.py, 108-116: set_brn_past_weight."""
        scale = weight / self.past_weight
        self.mean, self.variance, self.past_weight = (
            self.mean * scale,
            self.variance * scale,
            weight,
        )


class BatchNorm(BatchReNorm):
    """Caffe's batch_norm_layer.cpp: the same sums, without r and d.

    It starts from the moments in the file of the pretrained network. The file is not part of the
    release; here its sums have the weight that they converge to, 1 / (1 - 0.999).
    """

    def __init__(self, pretrained):
        self.past_weight, self.iter = 1 / (1 - 0.999), 0
        self.mean = pretrained.running_mean.double() * self.past_weight
        self.variance = pretrained.running_var.double() * self.past_weight

    def forward(self, x, setting):
        pure = NormSetting(fraction=0.999, step_to_init=2**31)  # caffe.proto: 0.999 by default
        return super().forward(x, pure)

    def set_past_weight(self, weight):
        """It concerns layers of the type BatchReNorm alone (cwr.py, 111)."""


class Net:
    """The tiny backbone as a Caffe net, with the fully connected layer mid_fc7."""

    def __init__(self, norm, mid_fc7):
        backbone = tiny_backbone()
        body = backbone.double().body
        self.params, self.norms = {}, {}
        for k, *_ in CONVOLUTIONS:
            old = body[k + 1]
            self.params[f"{k}.weight"] = body[k].weight.detach().clone()
            self.params[f"{k + 1}.weight"] = old.weight.detach().clone()
            self.params[f"{k + 1}.bias"] = old.bias.detach().clone()
            self.norms[k] = BatchNorm(old) if norm == "bn" else BatchReNorm(old.num_features)
        self.params["fc.weight"] = mid_fc7
        self.params["fc.bias"] = torch.zeros(CLASSES).double()
        # the prototxt: norm scales, shifts and the bias do not decay; the bias has lr_mult 2
        self.lr_mult = dict.fromkeys(self.params, 1.0) | {"fc.bias": 2.0}
        self.decay_mult = {name: float(p.ndim > 1) for name, p in self.params.items()}
        self.setting = NormSetting()

    def features(self, images, params, phase):
        x = images.permute(0, 3, 1, 2).double() / 127.5 - 1
        for k, stride, padding, groups in CONVOLUTIONS:
            x = F.conv2d(x, params[f"{k}.weight"], None, stride, padding, 1, groups)
            if phase == "TRAIN":
                x = self.norms[k].forward(x, self.setting)
            else:
                mean, std = self.norms[k].moments()
                x = (x - mean[:, None, None]) / std[:, None, None]
            x = x * params[f"{k + 1}.weight"][:, None, None]
            x = F.relu6(x + params[f"{k + 1}.bias"][:, None, None])  # the backbone's; Caffe: ReLU
        return x.mean((2, 3))

    def forward(self, images, phase="TRAIN", params=None):
        params = params or self.params
        z = self.features(images, params, phase)
        return z @ params["fc.weight"].T + params["fc.bias"]

    def gradient(self, images, target, end=None):
        """Forward and backward, the latter perhaps to the layer `end` alone."""
        leaves = {name: p.clone().requires_grad_() for name, p in self.params.items()}
        # multinomial_logistic_loss_target_layer.cpp: the mean over the minibatch
        logp = self.forward(images, "TRAIN", leaves).log_softmax(1)
        found = torch.autograd.grad(-(target * logp).sum() / len(images), list(leaves.values()))
        diff = dict(zip(leaves, found, strict=True))
        if end is None:
            for norm in self.norms.values():
                norm.iter += 1  # the end of Backward_cpu
        # the prototxt: a parameter with lr_mult 0 has no gradient
        fixed = [name for name in diff if self.lr_mult[name] == 0]
        return diff | {name: torch.zeros_like(diff[name]) for name in fixed}


class Solver:
    """sgd_solver.cpp with the numbers of the solver prototxt."""

    MOMENTUM, WEIGHT_DECAY = 0.9, 0.0005

    def __init__(self, net, base_lr, regularization_type="L2", momentum2=0.0):
        self.net, self.base_lr = net, base_lr
        self.regularization_type, self.momentum2 = regularization_type, momentum2
        self.history = {name: torch.zeros_like(p) for name, p in net.params.items()}
        self.ewc = None  # (theta*, F)

    def regularize(self, name, diff):
        """Regularize, 176-222: nothing where decay_mult is 0, the pull of EWC included."""
        local_decay = self.WEIGHT_DECAY * self.net.decay_mult[name]
        if not local_decay:
            return diff
        theta = self.net.params[name]
        diff = diff + local_decay * theta
        if self.regularization_type == "L2ewc":
            previous, fisher = (part[name] for part in self.ewc)
            diff = diff + self.momentum2 * fisher * (theta - previous)
        if self.regularization_type == "L2ewcMod":
            diff = diff * (1 - self.ewc[1][name] / self.momentum2)
        return diff

    def apply_update(self, diff):
        """ComputeUpdateValue, 302-315; Net::Update subtracts the diff, which is the history now."""
        net = self.net
        for name, g in diff.items():
            rate = self.base_lr * net.lr_mult[name]
            self.history[name] = (
                rate * self.regularize(name, g) + self.MOMENTUM * self.history[name]
            )
            net.params[name] = net.params[name] - self.history[name]
        return dict(self.history)


def pad_data_single(x):
    """train_utils.py, 194-210: the first patterns once more, in front."""
    missing = len(x) % MINIBATCH
    return torch.cat([x[: MINIBATCH - missing], x]) if missing else x


def shuffle_in_unison(dataset):
    """train_utils.py, 115-124, with the seed 0 of inc_training_Core50.py."""
    shuffled = []
    for x in dataset:
        np.random.seed(0)
        shuffled.append(torch.from_numpy(np.random.permutation(x.numpy())))
    return shuffled


class Release:
    """inc_training_Core50.py: main_Core50, one call of `learn` per batch.

    Args:
        strategy: `naive`, `lwf`, `ewc`, `cwr+` (the paper's CWR*) or `ar1` (AR1*).
        net: the network.
        conf: base_lr of both solvers, cwr_lr_mult, lwf_weight, and `momentum2`: lambda of EWC,
            max_F of AR1*; ewc_clip_to; the norm settings of the two prototxt files.
    """

    def __init__(self, strategy, net, **conf):
        self.strategy, self.net, self.conf, self.batch = strategy, net, conf, 0
        names = net.params
        self.ewc = ({}, {})
        self.total = {name: torch.zeros_like(names[name]) for name in names}
        if strategy in ("cwr+", "ar1"):
            net.lr_mult["fc.bias"] = 0.0  # cwr.py, 127-136
            # cwr.py, 149-160: consolidated weights and biases 0; those of the net 0 and 1
            self.cons_w = torch.zeros_like(net.params["fc.weight"])
            self.cons_b = torch.zeros(CLASSES).double()
            self.class_updates = np.zeros(CLASSES)
            self.reset_weights()

    def learn(self, images, labels):
        """One turn of the loop over batches; self.batch counts from 0."""
        net, conf = self.net, self.conf
        self.begin_solver()
        target = F.one_hot(labels, CLASSES).double()
        train_x, train_y, target_y = map(pad_data_single, (images, labels, target))
        if self.batch > 0 and self.strategy == "lwf":
            target_y = self.update_target_vectors(train_x, target_y, conf["lwf_weight"])
        if self.batch > 0 and self.strategy in ("cwr+", "ar1"):
            self.reset_weights()
            present = train_y.unique()  # cwr.py, 37-43: load_weights_nic
            net.params["fc.weight"][present] = self.cons_w[present]
            net.params["fc.bias"][present] = self.cons_b[present]
        train_x, train_y, target_y = shuffle_in_unison((train_x, train_y, target_y))
        if self.batch > 0:
            self.solver.ewc = self.ewc
        start = dict(net.params)  # syn.py, 115: init_batch
        trajectory = dict.fromkeys(net.params, 0.0)
        for _ in range(EPOCHS):
            for x, y in zip(train_x.split(MINIBATCH), target_y.split(MINIBATCH), strict=True):
                self.step(x, y, trajectory)
        if self.strategy in ("cwr+", "ar1"):
            self.consolidate_weights_cwr_plus(train_y)
        if self.strategy == "ewc":
            self.update_fisher(train_x, target_y)
        if self.strategy == "ar1":
            self.update_syn(start, trajectory)
        self.batch += 1

    def begin_solver(self):
        """A solver for batch 0 and one for all others, 161-198: momentum goes on from batch 1."""
        net, conf = self.net, self.conf
        if self.batch == 0:
            net.setting = conf["first"]
            self.solver = Solver(net, conf["base_lr_first"])
        if self.batch == 1:
            net.setting = conf["later"]
            kind = {"ewc": "L2ewc", "ar1": "L2ewcMod"}.get(self.strategy, "L2")
            self.solver = Solver(net, conf["base_lr"], kind, conf.get("momentum2", 0.0))
            # the prototxt of later batches: all convolutions but the 1x1 ones are frozen
            net.lr_mult |= {"0.weight": 0.0, "3.weight": 0.0}
            if self.strategy == "cwr+":  # cwr.py, 139-146
                net.lr_mult |= {name: 0.0 for name in net.params if name != "fc.weight"}
            net.lr_mult["fc.weight"] = conf.get("cwr_lr_mult", 1.0)
            for norm in net.norms.values():
                norm.set_past_weight(10000)  # line 198

    def step(self, x, y, trajectory):
        old = dict(self.net.params)
        end = "mid_fc7" if self.strategy == "cwr+" and self.batch > 0 else None
        stored = self.solver.apply_update(self.net.gradient(x, y, end))
        for name, old_theta in old.items():
            # syn.py, 124-135: the gradient that it reads is the history, see apply_update
            moved = self.net.params[name] - old_theta
            trajectory[name] = trajectory[name] + stored[name] * moved

    def reset_weights(self):
        """cwr.py, 156-160."""
        self.net.params["fc.weight"] = torch.zeros_like(self.net.params["fc.weight"])
        self.net.params["fc.bias"] = torch.ones(CLASSES).double()

    def consolidate_weights_cwr_plus(self, train_y):
        """cwr.py, 88-98; then its line 29, load_weights, for the test."""
        params = self.net.params
        present, freq = np.unique(train_y.numpy(), return_counts=True)
        globavg = params["fc.weight"][present].mean()
        for c, count in zip(present, freq, strict=True):
            prev_weight = np.sqrt(self.class_updates[c] / count)
            w = params["fc.weight"][c] - globavg
            self.cons_w[c] = (self.cons_w[c] * prev_weight + w) / (prev_weight + 1)
            self.cons_b[c] = params["fc.bias"][c]
        self.class_updates[present] += freq
        params["fc.weight"], params["fc.bias"] = self.cons_w.clone(), self.cons_b.clone()

    def update_target_vectors(self, train_x, onehot, weight):
        """lwf.py, 14-28: the net in the phase TRAIN, before the patterns are shuffled."""
        with torch.no_grad():
            probs = torch.cat([self.net.forward(x).softmax(1) for x in train_x.split(MINIBATCH)])
        return (1 - weight) * onehot + weight * probs

    def update_fisher(self, train_x, target_y):
        """ewc.py, 85-113: of the net in the phase TRAIN."""
        minibatches = list(zip(train_x.split(MINIBATCH), target_y.split(MINIBATCH), strict=True))
        for x, y in minibatches:
            for name, g in self.net.gradient(x, y).items():
                self.total[name] = self.total[name] + g.square() / len(minibatches)
        fisher = {name: total / (self.batch + 1) for name, total in self.total.items()}
        self.keep(fisher)

    def update_syn(self, start, trajectory):
        """syn.py, 139-154, over the layers that extract_grad_in_cwr (85) does not leave out."""
        for name in self.total:
            if name.startswith("fc.") or self.net.params[name].ndim == 1:
                continue
            moved = (self.net.params[name] - start[name]).square() + 1e-7
            self.total[name] = self.total[name] + 0.5 * trajectory[name] / moved
        self.keep({name: -total for name, total in self.total.items()})

    def keep(self, importance):
        clip_to = self.conf["ewc_clip_to"]
        clipped = {name: f.clamp(max=clip_to) for name, f in importance.items()}
        self.ewc = (dict(self.net.params), clipped)


FIRST = NormSetting(step_to_init=4, step_to_max=8, r_max=3, d_max=5)
LATER = NormSetting(fraction=0.9999)
SETTINGS = {
    "naive": ("naive", {}, {}),
    "lwf": ("lwf", {"lam": 0.3}, {"lwf_weight": 0.3}),
    "ewc": ("ewc", {"lam": 500.0, "max_f": 0.01}, {"momentum2": 500.0, "ewc_clip_to": 0.01}),
    "cwr*": ("cwr+", {}, {}),
    "ar1*": (
        "ar1",
        {"lr_head": 0.3, "max_f": 0.6},
        {"cwr_lr_mult": 10.0, "momentum2": 0.6, "ewc_clip_to": 0.6},
    ),
}


def make(name, norm="brn", compat="caffe"):
    """Return a strategy as released, and its second version."""
    kind, options, conf = SETTINGS[name]
    shared = {
        "epochs_1": EPOCHS,
        "epochs": EPOCHS,
        "minibatch": MINIBATCH,
        "capacity": CLASSES,
        "startup": 4,
        "norm": norm,
        "lr_1": 0.2,
        "lr": 0.03,
    }
    strategy = create(name, tiny_backbone(), seed=3, compat=compat, **shared, **options).double()
    strategy.backbone.scale.fill_(1 / 127.5)  # not the float32 nearest to it
    net = Net(norm, torch.zeros(CLASSES, 16).double())
    if kind in ("naive", "lwf", "ewc"):  # the random numbers of the MSRA filler
        net.params["fc.weight"] = strategy.head.weight.detach().clone()
    first = {"base_lr_first": 0.2, "base_lr": 0.03, "first": FIRST, "later": LATER}
    return strategy, Release(kind, net, **first, **conf)


def far(found, expected):
    """Return the largest difference, relative to the largest value if that is above 1."""
    if found.shape != expected.shape:
        return float("inf")
    return ((found - expected).abs().max() / max(1.0, expected.abs().max().item())).item()


def differences(strategy, release):
    """Return what differs by more than 1e-12, with by how much."""
    own, params = strategy.state_dict(), release.net.params
    pairs = {n: (own[f"backbone.body.{n}"], p) for n, p in params.items() if n[:2] != "fc"}
    for layer, norm in zip(norm_layers(strategy.backbone), release.net.norms.values(), strict=True):
        moments = (
            layer.moments()
            if hasattr(layer, "moments")
            else (layer.running_mean, (layer.running_var + layer.eps).sqrt())
        )
        for part, one, other in zip(("mu", "sigma"), moments, norm.moments(), strict=True):
            pairs[f"{part} {len(pairs)}"] = (one, other)
    head = strategy.head
    pairs["head"] = (head.cw if hasattr(head, "cw") else head.weight, params["fc.weight"])
    pairs["bias"] = (getattr(head, "bias", torch.zeros(CLASSES)), params["fc.bias"])
    if hasattr(head, "past"):
        pairs["past"] = (head.past, torch.from_numpy(release.class_updates))
    if strategy.importance is not None:
        values = zip(strategy.importance.names, strategy.importance.clipped(), strict=True)
        for name, f in values:
            short = name.replace("backbone.body", "").replace("head", "fc").lstrip(".")
            pairs[f"F {short}"] = (f, release.ewc[1][short])
    images = toy_batch(list(range(CLASSES)), 9)[0]
    pairs["scores"] = (strategy.scores(images), release.net.forward(images, "TEST"))
    found = {name: far(*pair) for name, pair in pairs.items()}
    return {name: value for name, value in found.items() if not value < TOLERANCE}


@pytest.mark.parametrize("norm", ["brn", "bn"])
@pytest.mark.parametrize("name", SETTINGS)
def test_caffe_is_the_release(name, norm):
    strategy, release = make(name, norm)
    for images, labels in BATCHES:
        strategy.learn(images, labels)
        release.learn(images, labels)
        assert differences(strategy, release) == {}
    if strategy.importance is not None:  # the guard has something to do
        assert 0.05 < strategy.importance.saturated() < 0.95


# where each switch shows
SHOWS = {
    "all_outputs": ("naive", "cwr*"),
    "bias_rate": ("naive", "lwf", "ewc"),
    "keep_momentum": ("naive", "cwr*"),
    "shuffle_once": ("naive",),
    "pad_batch": ("naive", "cwr*"),
    "train_mode_passes": ("lwf", "ewc"),
    "moments_from_zero": ("naive",),
    "bn_decay": ("naive",),
    "displacement": ("ar1*",),
}


def test_a_class_that_is_called_by_itself_follows_the_release_too():
    """`strategies/ar1.py` does not import the release; whoever imports a strategy has it."""
    for given in ({"compat": "pad_batch"}, {"options": AR1Options(compat="pad_batch")}):
        strategy = AR1(tiny_backbone(), **given)
        assert isinstance(strategy, AR1)
        assert isinstance(strategy, caffe.PadBatch)
        assert not isinstance(strategy, caffe.KeepMomentum)
    assert type(AR1(tiny_backbone())) is AR1


@pytest.mark.slow
@pytest.mark.parametrize("switch", SWITCHES)
def test_without_any_one_switch_it_is_not_the_release(switch):
    others = "+".join(name for name in SWITCHES if name != switch)
    for name in SHOWS[switch]:
        strategy, release = make(name, "bn" if switch == "bn_decay" else "brn", others)
        for images, labels in BATCHES:
            strategy.learn(images, labels)
            release.learn(images, labels)
        assert max(differences(strategy, release).values()) > 1e-6, name

"""The two sides of `peers.py`: our strategies and Avalanche's, with the same settings.

Matched rows have the same start (MobileNet v1 with the same ImageNet weights, the same head), the
same epochs, learning rates, momentum (0 at the start of each batch), weight decay (of convolutions
and the head), moments and normalisation, and all weights learn. Every batch fits into a minibatch,
so there is no randomness: Naive and CWR* reach the same weights on both sides.

Three differences remain: our LwF distils all outputs, Avalanche's only those of earlier classes;
Avalanche's EWC also guards norms and biases; Avalanche's AR1 keeps its first convolution fixed.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import primavista as pv
from primavista.networks.base import Backbone
from primavista.nn.renorm import set_limits

SIZE, CLASSES = 64, 8
Batches = list[tuple[Tensor, Tensor]]
PLAIN: dict[str, Any] = {"norm": "bn", "freeze": "none", "capacity": CLASSES}


@dataclass(frozen=True)
class Row:
    """One row of the table.

    Args:
        theirs: the name of Avalanche's strategy here; empty if it has none.
        ours: the name of our strategy.
        options: its options.
    """

    theirs: str
    ours: str
    options: dict[str, Any]


# F is not clipped, as in Avalanche; lambda is small enough for steps to be stable without it
EWC = {**PLAIN, "lam": 2000.0, "max_f": 1e6}
# the rules and limits of Avalanche's AR1: a penalty, and one learning rate
AR1 = {
    **PLAIN,
    "norm": "brn",
    "moments": "pretrained",
    "guard": "penalty",
    "lr_head": None,
    "w_1": 1.0,
    "w_i": 1.0,
}
ROWS = {
    "StreamingLDA / dslda": Row("slda", "dslda", {}),
    "CWR*": Row("cwr", "cwr*", {**PLAIN, "features": "fixed"}),
    "Naive": Row("naive", "naive", PLAIN),
    "Naive, renormalised": Row("naive", "naive", {**PLAIN, "norm": "brn"}),
    "LwF": Row("lwf", "lwf", PLAIN),
    "EWC": Row("ewc", "ewc", EWC),
    "AR1": Row("ar1", "ar1*", AR1),
    "Naive, our defaults": Row("naive", "naive", {}),
    "LwF, our defaults": Row("lwf", "lwf", {}),
    "EWC, our defaults": Row("ewc", "ewc", {}),
    "AR1, our defaults": Row("ar1", "ar1*", {}),
    "prima": Row("", "prima", {}),
}


def our_strategy(row: Row) -> Any:
    """Make our strategy of a row."""
    return pv.create(row.ours, _backbone(), **row.options)


def matched_row(theirs: str) -> Row:
    """Return the first row of one of Avalanche's strategies: the one with its settings."""
    return next(row for row in ROWS.values() if row.theirs == theirs)


class Ours:
    """One of our strategies."""

    def __init__(self, row: Row) -> None:
        self.strategy = our_strategy(row)

    def learn(self, i: int, x: Tensor, y: Tensor) -> None:
        """Learn batch `i`."""
        self.strategy.learn(x, y)

    def answers(self, x: Tensor) -> Tensor:
        """Return the class of each frame."""
        found: Tensor = self.strategy.classes[self.strategy.scores(x).argmax(1)]
        return found


class Theirs:
    """One of Avalanche's strategies, with the settings of ours.

    Args:
        name: its name in `ROWS`.
        batches: all batches; Avalanche needs them before the first is learned.
    """

    def __init__(self, name: str, batches: Batches) -> None:
        self.name = name
        self.ours = our_strategy(matched_row(name))
        self.experiences = _experiences(batches)
        self.known = 0
        make = {"slda": self._slda, "ar1": self._ar1}.get(name, self._gradient)
        self.strategy: Any = make()

    def learn(self, i: int, x: Tensor, y: Tensor) -> None:
        """Learn batch `i`."""
        strategy = self.strategy
        self.known = max(self.known, int(y.max()) + 1)
        if self.name == "ar1":
            # its minibatches have room for replayed patterns; smaller batches divide by 0
            strategy.train_mb_size = min(self.ours.options.minibatch, len(y))
        elif self.name != "slda":
            self._set_rates(i)
        strategy.train(self.experiences[i - 1], num_workers=0)

    def answers(self, x: Tensor) -> Tensor:
        """Return the class of each frame, among the classes so far, which are the first columns."""
        z = self.strategy.model.eval()(x)
        scores = self.strategy.predict(z) if self.name == "slda" else z
        return scores[:, : self.known].argmax(1)  # type: ignore[no-any-return]

    def _set_rates(self, i: int) -> None:
        o, optimizer = self.ours.options, self.strategy.optimizer
        self.strategy.train_epochs = self.ours.epochs_of(i)
        set_limits(self.strategy.model, self.ours.renorm.at(i, 0, 1))
        optimizer.state.clear()
        share = 1 - o.lam if self.name == "lwf" and i > 1 else 1
        for group in optimizer.param_groups:
            group["lr"] = share * (o.lr_1 if i == 1 else o.lr)
        if self.name == "ewc":  # the mean over batches; Avalanche has the sum
            (plugin,) = (p for p in self.strategy.plugins if hasattr(p, "ewc_lambda"))
            plugin.ewc_lambda = o.lam / 2 / max(i - 1, 1)

    def _gradient(self) -> Any:
        from avalanche.training import supervised

        o, body = self.ours.options, _backbone()
        head = nn.Linear(body.dim, CLASSES, bias=self.name != "cwr")
        with torch.no_grad():
            for name, start in head.named_parameters():
                start.copy_(getattr(self.ours.head, "cw" if self.name == "cwr" else name))
        model = nn.Sequential(body, head)
        groups: list[dict[str, Any]] = [
            {"params": [p for p in model.parameters() if p.ndim > 1]},
            {"params": [p for p in model.parameters() if p.ndim == 1], "weight_decay": 0.0},
        ]
        settings = {
            **_common(),
            "model": model,
            "optimizer": torch.optim.SGD(groups, o.lr_1, o.momentum, weight_decay=o.weight_decay),
            "criterion": nn.CrossEntropyLoss(),
        }
        if self.name == "cwr":
            return supervised.CWRStar(cwr_layer_name="1", **settings)
        if self.name == "lwf":  # (1 - lambda) (CE + alpha distillation)
            return supervised.LwF(alpha=o.lam / (1 - o.lam), temperature=1.0, **settings)
        if self.name == "ewc":
            return supervised.EWC(ewc_lambda=0.0, mode="online", decay_factor=1.0, **settings)
        return supervised.Naive(**settings)

    def _slda(self) -> Any:
        from avalanche.training.supervised import StreamingLDA

        body = _backbone()
        return StreamingLDA(
            slda_model=body,
            criterion=nn.CrossEntropyLoss(),
            input_size=body.dim,
            num_classes=CLASSES,
            shrinkage_param=1e-4,
            **_common(),
        )

    def _ar1(self) -> Any:
        from avalanche.training.supervised import ar1

        o = self.ours.options
        ar1.MobilenetV1 = _Halves  # its own code would download other weights
        return ar1.AR1(
            lr=o.lr_1,
            inc_lr=o.lr,
            momentum=o.momentum,
            l2=o.weight_decay,
            train_epochs=o.epochs,
            init_update_rate=1 - self.ours.renorm.decay_1,
            inc_update_rate=1 - o.moments_decay,
            max_r_max=o.r_max,
            max_d_max=o.d_max,
            rm_sz=1,  # no replay; with 0 it fails
            latent_layer_num=0,
            freeze_below_layer="end_features.0.0.conv",
            ewc_lambda=o.lam,
            **_common(),
        )


class _Halves(nn.Module):
    """Our MobileNet v1 with the interface of Avalanche's: the parts before and after the latents.

    Args:
        pretrained: True.
        latent_layer_num: 0; the latents are the output of the first convolution.
    """

    def __init__(self, pretrained: bool, latent_layer_num: int) -> None:
        super().__init__()
        backbone = _backbone()
        body: Any = copy.deepcopy(backbone.body)
        for module in body.modules():
            if isinstance(module, nn.BatchNorm2d):
                assert module.running_var is not None
                module.running_var += module.eps  # Avalanche's renormalisation leaves it out
        self.lat_features = nn.Sequential(body.stem)
        self.end_features = nn.Sequential(*body.blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.output = nn.Linear(backbone.dim, CLASSES, bias=False)
        self.scale, self.shift = backbone.scale, backbone.shift

    def forward(
        self, x: Tensor, latent_input: Tensor | None = None, return_lat_acts: bool = False
    ) -> Any:
        with torch.set_grad_enabled(latent_input is None and torch.is_grad_enabled()):
            latents = self.lat_features(x.permute(0, 3, 1, 2) * self.scale + self.shift)
        both = latents if latent_input is None else torch.cat([latents, latent_input])
        logits = self.output(self.end_features(both))
        return (logits, latents) if return_lat_acts else logits


def _backbone() -> Backbone:
    return pv.build_backbone("mobilenet_v1", "imagenet", size=SIZE)


def _common() -> dict[str, Any]:
    from avalanche.training.plugins import EvaluationPlugin

    return {"evaluator": EvaluationPlugin(loggers=[]), "train_mb_size": 128}


def _experiences(batches: Batches) -> list[Any]:
    """Return the batches as experiences, with task labels and the classes so far, for plugins."""
    from avalanche.benchmarks import benchmark_from_datasets, with_classes_timeline
    from avalanche.benchmarks.utils import DataAttribute
    from avalanche.benchmarks.utils.classification_dataset import TaskAwareClassificationDataset
    from torch.utils.data import TensorDataset

    parts = []
    for x, y in batches:
        marks = [
            DataAttribute(y.tolist(), "targets"),
            DataAttribute([0] * len(y), "targets_task_labels", use_in_getitem=True),
        ]
        parts.append(TaskAwareClassificationDataset([TensorDataset(x, y)], data_attributes=marks))
    return list(with_classes_timeline(benchmark_from_datasets(train=parts)).train_stream)

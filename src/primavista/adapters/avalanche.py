"""Avalanche's benchmarks as streams of this package, and our strategies in Avalanche's loop.

`docs/guides/avalanche.md` shows both directions. This module imports Avalanche, and no other module
of the package imports this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from primavista.errors import InputError, require_extra
from primavista.strategies.base import Strategy
from primavista.streams.dataset import DataSet, Session, Stream

require_extra("avalanche", "avalanche")

from avalanche.training.templates import SupervisedTemplate  # noqa: E402

__all__ = ["AvalancheStrategy", "stream_of", "to_frames"]


def to_frames(x: Tensor) -> Tensor:
    """Turn a minibatch of Avalanche into frames.

    Args:
        x: uint8, N x H x W x 3 or N x C x H x W; or float from 0 to 1, N x C x H x W, as returned
            by torchvision's `ToTensor`. C is 1 or 3.

    Returns:
        uint8, N x H x W x 3.

    Raises:
        InputError: If the values are not those of pictures, for example after `Normalize`.
    """
    if x.ndim == 4 and x.dtype == torch.uint8 and x.shape[3] == 3:
        return x
    if x.ndim != 4 or x.shape[1] not in (1, 3):
        raise InputError(f"pictures must be N x 3 x H x W or N x 1 x H x W; got {tuple(x.shape)}")
    if x.is_floating_point():
        low, high = (float(limit) for limit in x.aminmax())
        if not (low >= 0 and high <= 1):
            raise InputError(
                f"pictures as floats go from 0 to 1; got {low:.3g} to {high:.3g}. Make the "
                "benchmark without Normalize: the backbone normalises by itself"
            )
        x = (x * 255).round().to(torch.uint8)
    return x.expand(-1, 3, -1, -1).permute(0, 2, 3, 1)


class ExperienceFrames:
    """The pictures of some Avalanche data sets, one after the other, read on demand.

    Args:
        datasets: Data sets whose items begin with a picture.
        order: For each frame, the number of its data set and its index there, F x 2.
    """

    def __init__(self, datasets: Sequence[Any], order: np.ndarray[Any, Any]) -> None:
        self.datasets, self.order = datasets, order

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, indices: Tensor) -> Tensor:
        chosen = self.order[np.asarray(indices)]
        pictures = [torch.as_tensor(self.datasets[k][i][0]) for k, i in chosen.tolist()]
        return to_frames(torch.stack(pictures))


def stream_of(benchmark: Any, *, name: str = "avalanche", classes: Sequence[str] = ()) -> Stream:
    """Turn an Avalanche benchmark into a stream for `evaluate`.

    Each experience of `benchmark.train_stream` is a batch; the frames of one class in it are a
    session. The test set consists of all experiences of `benchmark.test_stream`. Pictures are read
    on demand, with the transforms of evaluation.

    Args:
        benchmark: An object with `train_stream` and `test_stream`, whose experiences have a
            `dataset`.
        name: The name of the data set in results.
        classes: The names of the classes; by default their numbers.

    Returns:
        The stream, in the order of the benchmark.

    Raises:
        InputError: If there are fewer names than classes.
    """
    parts = [list(benchmark.train_stream), list(benchmark.test_stream)]
    datasets = [experience.dataset.eval() for part in parts for experience in part]
    order: list[tuple[int, int]] = []
    met: dict[int, int] = {}
    batches = [_sessions(k, dataset, order, met) for k, dataset in enumerate(datasets)]
    count = max(met) + 1
    names = tuple(classes) or tuple(str(label) for label in range(count))
    if len(names) < count:
        raise InputError(f"the benchmark has {count} classes, but there are {len(names)} names")
    train = batches[: len(parts[0])]
    data = DataSet(
        name,
        ExperienceFrames(datasets, np.array(order)),
        tuple(session for batch in train for session in batch),
        tuple(session for batch in batches[len(train) :] for session in batch),
        names,
        tuple(range(len(names))),
    )
    return Stream(data, train, name, 0, "avalanche")


def _sessions(
    k: int, dataset: Any, order: list[tuple[int, int]], met: dict[int, int]
) -> list[Session]:
    """Return the sessions of data set k, and append its frames to `order`, class by class."""
    labels = np.array([int(label) for label in dataset.targets], np.int64)
    found = []
    for label in np.unique(labels).tolist():
        own = np.flatnonzero(labels == label).tolist()
        met[label] = met.get(label, 0) + 1
        found.append(Session(label, met[label], len(order), len(order) + len(own)))
        order.extend((k, index) for index in own)
    return found


class _Scores(nn.Module):
    """The scores of a strategy as a model; Avalanche's `train()` and `to()` do not reach it."""

    def __init__(self, strategy: Strategy) -> None:
        super().__init__()
        self.held = (strategy,)  # not a submodule

    def forward(self, x: Tensor) -> Tensor:
        """Return one column per label up to the largest; unknown classes get the lowest score."""
        (strategy,) = self.held
        labels = strategy.classes.cpu()
        if not len(labels):
            return torch.zeros(len(x), 1)
        scores = strategy.scores(to_frames(x.cpu())).float().cpu()
        lowest = scores.amin(1, keepdim=True) - 1
        result = lowest.repeat(1, int(labels.max()) + 1)
        result[:, labels] = scores
        return result


class AvalancheStrategy(SupervisedTemplate):  # type: ignore[misc]
    """A strategy of this package with Avalanche's interface: `train(experience)`, `eval(stream)`.

    An experience is learned as one batch. Avalanche's plugins, metrics and loggers see it as one
    epoch with one iteration. Its optimiser, criterion and model are not used for learning.

    Args:
        strategy: The strategy, such as `pv.create("cwr*", backbone)`; it is not copied.
        **settings: Arguments of Avalanche's `SupervisedTemplate`, such as `eval_mb_size` (64 if it
            is not given), `evaluator` and `plugins`.
    """

    def __init__(self, strategy: Strategy, **settings: Any) -> None:
        self.strategy = strategy
        size = settings.setdefault("eval_mb_size", 64)
        super().__init__(
            model=_Scores(strategy), optimizer=None, criterion=_loss, train_mb_size=size, **settings
        )

    def training_epoch(self, **kwargs: Any) -> None:
        """Learn the whole experience as one batch; Avalanche calls it once per experience."""
        minibatches = [tuple(part[:3]) for part in self.dataloader]
        x, y, tasks = (torch.cat(values).cpu() for values in zip(*minibatches, strict=True))
        self.mbatch = [x, y, tasks]
        self._before_training_iteration(**kwargs)
        self._before_forward(**kwargs)
        self._before_update(**kwargs)
        self.strategy.learn(to_frames(x), y)
        self._after_update(**kwargs)
        self.mb_output = self.model(x)
        self._after_forward(**kwargs)
        self.loss = _loss(self.mb_output, y)
        self._after_training_iteration(**kwargs)

    def make_optimizer(self, **kwargs: Any) -> None:
        """Do nothing: the strategy has its own optimiser."""

    def check_model_and_optimizer(self, **kwargs: Any) -> None:
        """Do nothing: the strategy adds its classes itself."""


def _loss(scores: Tensor, y: Tensor) -> Tensor:
    """Compute the cross-entropy of the scores for Avalanche's metrics; nothing learns from it.

    A label beyond the columns has not been learned. Columns are added for it, with the lowest score
    of the frame.
    """
    missing = int(y.max()) + 1 - scores.shape[1]
    if missing > 0:
        scores = torch.cat([scores, scores.amin(1, keepdim=True).repeat(1, missing)], 1)
    return nn.functional.cross_entropy(scores, y)

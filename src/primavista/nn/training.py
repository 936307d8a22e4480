"""One training step: the loss, its gradient, the step down it, the path of Synaptic Intelligence."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from primavista.engine.cuda_graph import CapturedFunction
from primavista.nn.guards import SynapticIntelligence
from primavista.nn.sgd import SGD


class Trainer:
    """g = dL_cross / dtheta;  theta <- SGD(theta, g);  L_cross of the columns, or of soft targets

    The step is recorded on a GPU, so everything that it touches stays in place from batch to batch: `restart` puts new
    values there.
    """

    def __init__(
        self, logits: Callable[[Tensor], Tensor], sgd: SGD, si: SynapticIntelligence | None
    ) -> None:
        self.sgd, self.si, self._logits = sgd, si, logits
        self._loss = torch.zeros((), device=sgd.theta[0].device)
        self.step = CapturedFunction(self._step)

    def _step(self, x: Tensor, goal: Tensor, rate: Tensor | None = None) -> None:
        sgd = self.sgd
        with torch.enable_grad():  # whoever calls may be in no_grad
            loss = F.cross_entropy(self._logits(x), goal)
        g = torch.autograd.grad(loss, sgd.theta, allow_unused=True, materialize_grads=True)
        dtheta = sgd.step(g, rate)
        if self.si is not None:
            self.si.add([g[k] for k in sgd.guarded], [dtheta[k] for k in sgd.guarded])
        self._loss += loss.detach() * len(x)

    def epoch_loss(self, count: int) -> Tensor:
        """The mean over the `count` patterns since it was last asked for."""
        mean = self._loss / count
        self._loss.zero_()
        return mean

"""The building block of both networks: convolution, norm, ReLU6, with either of the two paddings in use."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Padding = Literal["same", "symmetric"]


def global_average_pool(x: Tensor) -> Tensor:
    """N x C x H x W to N x C: the mean over the map, at least in float32."""
    return x.mean((2, 3), dtype=torch.promote_types(x.dtype, torch.float32))


class Conv(nn.Conv2d):
    """A convolution without bias; `padding="same"` is TensorFlow's.

    TensorFlow pads max((ceil(n / s) - 1) s + k - n, 0) in all, the odd pixel at the right and the bottom: at stride 2 and
    an even side only there. Weights trained so lose 8 to 18 points of accuracy under symmetric padding.
    """

    def __init__(
        self, inputs: int, outputs: int, kernel: int, stride: int, groups: int, padding: Padding
    ) -> None:
        symmetric = kernel // 2 if padding == "symmetric" or stride == 1 else 0
        super().__init__(inputs, outputs, kernel, stride, symmetric, groups=groups, bias=False)
        self.pads_like_tensorflow = padding == "same" and stride > 1

    def forward(self, x: Tensor) -> Tensor:
        """N x C x H x W to N x C' x ceil(H / s) x ceil(W / s)."""
        if self.pads_like_tensorflow:
            x = F.pad(x, (*self._pads(x.shape[3]), *self._pads(x.shape[2])))
        return super().forward(x)

    def _pads(self, n: int) -> tuple[int, int]:
        stride, kernel = self.stride[0], self.kernel_size[0]
        total = max((-(-n // stride) - 1) * stride + kernel - n, 0)
        return total // 2, total - total // 2


class ConvNorm(nn.Module):
    """ReLU6(BN(conv(x))); without the ReLU6 where `linear`."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        *,
        stride: int = 1,
        groups: int = 1,
        padding: Padding = "same",
        eps: float = 1e-3,
        linear: bool = False,
    ) -> None:
        super().__init__()
        self.conv = Conv(inputs, outputs, kernel, stride, groups, padding)
        self.bn = nn.BatchNorm2d(outputs, eps=eps)
        self.linear = linear

    def forward(self, x: Tensor) -> Tensor:
        """Convolve, normalise, clip to [0, 6]."""
        x = self.conv(x)
        if self.linear:
            return self.bn(x)  # type: ignore[no-any-return]
        in_one = getattr(self.bn, "relu6", None)  # batch renormalisation has it
        return F.relu6(self.bn(x)) if in_one is None else in_one(x)

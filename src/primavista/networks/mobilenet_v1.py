"""MobileNet v1 (Howard et al. 2017), in the form that fits the weights of TensorFlow-Slim.

Its building block (convolution, norm and ReLU6, with either padding) is also used by
EfficientNet-Lite0.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Padding = Literal["same", "symmetric"]

# (name in Caffe, output channels at width 1, stride) of the 13 depthwise separable blocks
BLOCKS = (
    ("conv2_1", 64, 1),
    ("conv2_2", 128, 2),
    ("conv3_1", 128, 1),
    ("conv3_2", 256, 2),
    ("conv4_1", 256, 1),
    ("conv4_2", 512, 2),
    ("conv5_1", 512, 1),
    ("conv5_2", 512, 1),
    ("conv5_3", 512, 1),
    ("conv5_4", 512, 1),
    ("conv5_5", 512, 1),
    ("conv5_6", 1024, 2),
    ("conv6", 1024, 1),
)
# The depthwise (dw) and the pointwise (sep) half of each block, by their names in Caffe.
LAYERS = {
    f"{name}/{half}": f"blocks.{k}.{j}"
    for k, (name, _, _) in enumerate(BLOCKS)
    for j, half in enumerate(("dw", "sep"))
}


def global_average_pool(x: Tensor) -> Tensor:
    """Return the mean over each map, computed in float32 or wider.

    Args:
        x: N x C x H x W.

    Returns:
        N x C, float32 or wider.
    """
    return x.mean((2, 3), dtype=torch.promote_types(x.dtype, torch.float32))


class Conv(nn.Conv2d):
    """A convolution without bias, padded like TensorFlow or symmetrically.

    TensorFlow pads max((ceil(n / s) - 1) s + k - n, 0) pixels in total. If this number is odd, the
    extra pixel is at the right and at the bottom; with stride 2 and an even side, all padding is
    there. Weights trained in this way lose 8 to 18 points of accuracy under symmetric padding.

    Args:
        inputs: Number of input channels.
        outputs: Number of output channels.
        kernel: Side of the kernel.
        stride: Step of the kernel in pixels.
        groups: Number of groups of channels; `inputs` for a depthwise convolution.
        padding: "same" for TensorFlow's padding, or "symmetric".
    """

    def __init__(
        self, inputs: int, outputs: int, kernel: int, stride: int, groups: int, padding: Padding
    ) -> None:
        symmetric = kernel // 2 if padding == "symmetric" or stride == 1 else 0
        super().__init__(inputs, outputs, kernel, stride, symmetric, groups=groups, bias=False)
        self.pads_like_tensorflow = padding == "same" and stride > 1

    def forward(self, x: Tensor) -> Tensor:
        """Convolve N x C x H x W to N x C' x ceil(H / s) x ceil(W / s)."""
        if self.pads_like_tensorflow:
            x = F.pad(x, (*self._pads(x.shape[3]), *self._pads(x.shape[2])))
        return super().forward(x)

    def _pads(self, n: int) -> tuple[int, int]:
        stride, kernel = self.stride[0], self.kernel_size[0]
        total = max((-(-n // stride) - 1) * stride + kernel - n, 0)
        return total // 2, total - total // 2


class ConvNorm(nn.Module):
    """y = ReLU6(BN(conv(x))), or BN(conv(x)) if `linear`.

    Args:
        inputs: Number of input channels.
        outputs: Number of output channels.
        kernel: Side of the kernel.
        stride: Step of the kernel in pixels.
        groups: Number of groups of channels.
        padding: "same" for TensorFlow's padding, or "symmetric".
        eps: Added to the variance by the norm.
        linear: True to omit the ReLU6.
    """

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
        """Convolve N x C x H x W, normalise, and clip to [0, 6] unless the block is linear."""
        x = self.conv(x)
        if self.linear:
            return self.bn(x)  # type: ignore[no-any-return]
        fused = getattr(self.bn, "relu6", None)  # only batch renormalisation has it
        return F.relu6(self.bn(x)) if fused is None else fused(x)


class MobileNetV1(nn.Module):
    """N x 3 x H x W to N x 1024 at width 1.

    The network consists of one full convolution, 13 depthwise separable blocks, and the mean over
    the map. It has 27 norms, 14 convolutions that are not pointwise (13 depthwise and the first),
    13 pointwise convolutions, and 3.2 million weights.

    Args:
        width: Multiplies the number of channels of every layer; each has at least 8.
        padding: "same" for the weights of TensorFlow, or "symmetric" for those of timm.
        eps: Added to the variance by the norms.

    >>> MobileNetV1(width=0.25)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 256])
    """

    def __init__(self, width: float = 1.0, padding: Padding = "same", eps: float = 1e-3) -> None:
        super().__init__()

        def channels(n: int) -> int:
            return max(8, round(n * width))

        inputs = channels(32)
        self.stem = ConvNorm(3, inputs, 3, stride=2, padding=padding, eps=eps)
        self.blocks = nn.ModuleList()
        for _, n, stride in BLOCKS:
            depthwise = ConvNorm(
                inputs, inputs, 3, stride=stride, groups=inputs, padding=padding, eps=eps
            )
            pointwise = ConvNorm(inputs, channels(n), 1, padding=padding, eps=eps)
            self.blocks.append(nn.Sequential(depthwise, pointwise))
            inputs = channels(n)

    def forward(self, x: Tensor) -> Tensor:
        """Return the features, the mean of the last map, of N x 3 x H x W images."""
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return global_average_pool(x)

"""EfficientNet-Lite0, the variant of EfficientNet (Tan & Le 2019) for small devices.

It has no squeeze-and-excitation layers, and its activation is ReLU6.
"""

from __future__ import annotations

from torch import Tensor, nn

from primavista.networks.mobilenet_v1 import ConvNorm, global_average_pool

# (repeats, kernel, stride of the first block, expansion, output channels) of the seven stages
STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)


class InvertedResidual(nn.Module):
    """y = x + project(depthwise(expand(x))).

    The sum is omitted if the shape changes, and `expand` is omitted for expansion 1.

    Args:
        inputs: Number of input channels.
        outputs: Number of output channels.
        kernel: Side of the depthwise kernel.
        stride: Step of the depthwise kernel in pixels.
        expansion: Factor of the number of channels inside.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        self.expand = ConvNorm(inputs, hidden, 1) if expansion > 1 else nn.Identity()
        self.depthwise = ConvNorm(hidden, hidden, kernel, stride=stride, groups=hidden)
        self.project = ConvNorm(hidden, outputs, 1, linear=True)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """Map N x C x H x W to N x C' x H' x W'."""
        y: Tensor = self.project(self.depthwise(self.expand(x)))
        return x + y if self.residual else y


class EfficientNetLite0(nn.Module):
    """N x 3 x H x W to N x 1280, with 3.4 million weights.

    The network consists of a full convolution, 16 inverted residual blocks in seven stages, a
    pointwise convolution and the mean over the map.

    >>> import torch
    >>> EfficientNetLite0()(torch.zeros(2, 3, 64, 64)).shape
    torch.Size([2, 1280])
    """

    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvNorm(3, 32, 3, stride=2)
        self.blocks = nn.ModuleList()
        inputs = 32
        for repeats, kernel, stride, expansion, outputs in STAGES:
            for step in (stride, *[1] * (repeats - 1)):
                self.blocks.append(InvertedResidual(inputs, outputs, kernel, step, expansion))
                inputs = outputs
        self.head = ConvNorm(inputs, 1280, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the features, the mean of the last map, of N x 3 x H x W images."""
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return global_average_pool(self.head(x))

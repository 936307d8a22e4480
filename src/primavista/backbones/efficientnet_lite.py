"""EfficientNet-Lite0 (Tan & Le 2019, the variant for small devices: no squeeze-and-excitation, ReLU6)."""

from __future__ import annotations

from torch import Tensor, nn

from primavista.backbones.layers import ConvNorm, global_average_pool

# (repeats, kernel, stride of the first, expansion, output channels) of the seven stages
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
    """x + project(depthwise(expand(x))); without the sum where the shape changes, without `expand` at expansion 1."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        self.expand = ConvNorm(inputs, hidden, 1) if expansion > 1 else nn.Identity()
        self.depthwise = ConvNorm(hidden, hidden, kernel, stride=stride, groups=hidden)
        self.project = ConvNorm(hidden, outputs, 1, linear=True)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """N x C x H x W to N x C' x H' x W'."""
        y: Tensor = self.project(self.depthwise(self.expand(x)))
        return x + y if self.residual else y


class EfficientNetLite0(nn.Module):
    """N x 3 x H x W to N x 1280: 3.4 million weights in the body.

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
            for repeat in range(repeats):
                self.blocks.append(
                    InvertedResidual(inputs, outputs, kernel, 1 if repeat else stride, expansion)
                )
                inputs = outputs
        self.head = ConvNorm(inputs, 1280, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Features: the mean of the last map."""
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return global_average_pool(self.head(x))

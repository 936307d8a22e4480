"""MobileNet v1 (Howard et al. 2017), as the ImageNet weights of TensorFlow-Slim need it."""

from __future__ import annotations

from torch import Tensor, nn

from primavista.backbones.layers import ConvNorm, Padding, global_average_pool

# (output channels at width 1, stride) of the 13 depthwise separable blocks
BLOCKS = (
    (64, 1),
    (128, 2),
    (128, 1),
    (256, 2),
    (256, 1),
    (512, 2),
    (512, 1),
    (512, 1),
    (512, 1),
    (512, 1),
    (512, 1),
    (1024, 2),
    (1024, 1),
)
BLOCK_NAMES = (
    "conv2_1",
    "conv2_2",
    "conv3_1",
    "conv3_2",
    "conv4_1",
    "conv4_2",
    "conv5_1",
    "conv5_2",
    "conv5_3",
    "conv5_4",
    "conv5_5",
    "conv5_6",
    "conv6",
)
# the depthwise (dw) and the pointwise (sep) half of each block, by the name in the Caffe network
LAYERS = {
    f"{name}/{half}": f"blocks.{k}.{j}"
    for k, name in enumerate(BLOCK_NAMES)
    for j, half in enumerate(("dw", "sep"))
}


class MobileNetV1(nn.Module):
    """N x 3 x H x W to N x 1024 at width 1.

    One full convolution, 13 depthwise separable blocks, and the mean over the map: 27 norms, 14
    non-pointwise convolutions (13 depthwise and the first), 13 pointwise ones, 3.2 million weights.

    Args:
        width: Multiplies the number of channels of every layer; each has at least 8.
        padding: "same" as the weights of TensorFlow need it, or "symmetric" as those of timm.
        eps: Added to the variance by the norms.

    >>> import torch
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
        for n, stride in BLOCKS:
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

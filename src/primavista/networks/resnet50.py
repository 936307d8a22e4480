"""ResNet-50 (He et al. 2016); its weights have the names of torchvision and timm."""

from __future__ import annotations

from typing import Literal, get_args

import torch.nn.functional as F
from torch import Tensor, nn

from primavista.errors import InputError
from primavista.networks.mobilenet_v1 import global_average_pool

Strided = Literal["3x3", "1x1"]

# (blocks, channels inside a block, stride of the first block) of the four stages
STAGES = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))
EXPANSION = 4  # a block returns so many times the channels inside it


class Bottleneck(nn.Module):
    """y = ReLU(s(x) + BN(conv3(ReLU(BN(conv2(ReLU(BN(conv1(x)))))))))

    conv1 and conv3 are pointwise, conv2 is 3 x 3. The shortcut s is the identity, or a pointwise
    convolution with a norm if the shape changes.

    Args:
        inputs: Number of input channels.
        channels: Number of channels of conv1 and conv2.
        stride: Step in pixels.
        strided: The convolution that takes the step: "3x3" or the first "1x1".
        eps: Added to the variance by the norms.
    """

    def __init__(
        self, inputs: int, channels: int, stride: int, strided: Strided, eps: float
    ) -> None:
        super().__init__()
        outputs = EXPANSION * channels
        first, second = (stride, 1) if strided == "1x1" else (1, stride)
        self.conv1 = nn.Conv2d(inputs, channels, 1, first, bias=False)
        self.bn1 = nn.BatchNorm2d(channels, eps)
        self.conv2 = nn.Conv2d(channels, channels, 3, second, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels, eps)
        self.conv3 = nn.Conv2d(channels, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs, eps)
        self.downsample = nn.Sequential()
        if stride > 1 or inputs != outputs:
            shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(outputs, eps))

    def forward(self, x: Tensor) -> Tensor:
        """Map N x C x H x W to N x C' x ceil(H / s) x ceil(W / s)."""
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.downsample(x) + self.bn3(self.conv3(y)))


class ResNet50(nn.Module):
    """N x 3 x H x W to N x 2048, with 23.5 million weights.

    The network consists of a full convolution, a maximum over 3 x 3 pixels, 16 bottleneck blocks in
    four stages, and the mean over the map.

    Args:
        strided: The convolution of a block that takes the step: "3x3" for the weights of
            torchvision and timm, "1x1" for those of the paper and Keras.
        eps: Added to the variance by the norms: 1e-5, or 1e-3 for the weights of Keras.

    Raises:
        InputError: If `strided` is something else.

    >>> import torch
    >>> ResNet50()(torch.zeros(2, 3, 64, 64)).shape
    torch.Size([2, 2048])
    """

    def __init__(self, strided: Strided = "3x3", eps: float = 1e-5) -> None:
        super().__init__()
        if strided not in get_args(Strided):
            raise InputError(f"strided is {' or '.join(get_args(Strided))}; got {strided!r}")
        self.conv1 = nn.Conv2d(3, 64, 7, 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64, eps)
        inputs = 64
        for number, (blocks, channels, stride) in enumerate(STAGES, 1):
            stage = nn.Sequential()
            for step in (stride, *[1] * (blocks - 1)):
                stage.append(Bottleneck(inputs, channels, step, strided, eps))
                inputs = EXPANSION * channels
            self.add_module(f"layer{number}", stage)

    def forward(self, x: Tensor) -> Tensor:
        """Return the features, the mean of the last map, of N x 3 x H x W images."""
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, padding=1)
        for number in range(1, len(STAGES) + 1):
            x = self.get_submodule(f"layer{number}")(x)
        return global_average_pool(x)

"""Rendered data sets as tensors."""

from __future__ import annotations

from dataclasses import replace

import torch

from primavista.streams.dataset import DataSet
from primavista.streams.rendered.dataset import rendered
from primavista.streams.rendered.scene import Scene


def materialise(scene: Scene) -> DataSet:
    """Render the whole data set of a scene into one tensor."""
    data = rendered(scene)
    return replace(data, frames=data.frames[torch.arange(len(data.frames))])

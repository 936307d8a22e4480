"""Finds objects in a frame with the network and the head of a learner."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image

from primavista.backbones.places import Floats
from primavista.errors import InputError
from primavista.learner.coach import NOTHING
from primavista.learner.locating import Judged, Level, Located, find, level_sizes
from primavista.learner.prediction import is_known
from primavista.learner.state import LearnerState
from primavista.strategies.base import is_frozen
from primavista.strategies.open_set import judge_windows


def locate(state: LearnerState, picture: Image.Image, threshold: float) -> list[Located]:
    """Find what was taught in a picture.

    Args:
        state: The state that looks, which knows at least one object.
        picture: The whole picture, RGB.
        threshold: The least familiarity, or without one confidence, with which a window counts.

    Returns:
        What was found, the best first.

    Raises:
        InputError: If the strategy trains its representation, or its network has no maps.
    """
    strategy = state.strategy
    if not is_frozen(strategy):
        raise InputError(
            "this strategy trains its network with every lesson, so it cannot locate: "
            "use prima, or another strategy with a frozen network"
        )
    representation = strategy.representation
    reader = representation.map_reader().reader
    levels = []
    for size in level_sizes(*picture.size, reader.size):
        resized = np.array(picture.resize(size, Image.Resampling.BILINEAR))
        scale = picture.width / size[0], picture.height / size[1]
        levels.append(Level(representation.maps(resized), size, scale))
    classes = strategy.classes.tolist()
    columns = [j for j, i in enumerate(classes) if i in state.names]
    names = [state.names[classes[j]] for j in columns]

    def judge(z: Floats) -> Judged:
        judged = judge_windows(strategy, torch.from_numpy(z).to(strategy.device))
        shares = (judged.scores[:, columns] / judged.temperature).float().softmax(1)
        familiarity = judged.familiarity
        return Judged(
            shares.cpu().numpy(), None if familiarity is None else familiarity.cpu().numpy()
        )

    def known(confidence: float, familiarity: float | None) -> bool:
        return is_known(confidence, len(names), familiarity, threshold)

    return [
        Located(names[window.column], box, window.confidence, window.familiarity)
        for window, box in find(levels, reader, judge, known)
        if names[window.column] != NOTHING
    ]

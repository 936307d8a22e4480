"""A strategy that trains its network, on a machine without torch: it predicts from a graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn, Self

import numpy as np

from primavista.backbones.onnx import INPUT, NetworkGraph, weighted_session
from primavista.backbones.places import WindowReader
from primavista.errors import MissingExtraError
from primavista.learner.prediction import CONFIDENCE_THRESHOLD
from primavista.learner.strategy import (
    BACKBONE,
    Arrays,
    Settings,
    TaughtStrategy,
    check_ids,
)
from primavista.learner.verdict import Verdict
from primavista.media.frames import Frames, chunks, frames_at

CHUNK = 8  # frames per pass


class ExportedStrategy(TaughtStrategy):
    """Predicts from the graph that `primavista export --format portable` put into the file.

    Everything that changes what it knows needs torch; names can be changed.

    Args:
        settings: Its name, options, backbone and seed.
        graph: How it computes features and scores.
    """

    engine = "onnx"
    device = "cpu"
    threshold = CONFIDENCE_THRESHOLD

    def __init__(self, settings: Settings, graph: NetworkGraph, graph_arrays: Arrays) -> None:
        self.settings = settings
        self._graph, self._graph_arrays = graph, graph_arrays
        self._arrays: Arrays = {}

    @property
    def classes(self) -> list[int]:
        """The class ids, in the order of the columns of the scores."""
        return [int(i) for i in self._arrays["classes"]]

    @property
    def features_from(self) -> object:
        """None: lessons train the representation."""
        return None

    def judge(self, frames: Frames) -> Verdict:
        """Compute the scores of frames."""
        parts = [
            self._session.run(["scores"], {INPUT: np.ascontiguousarray(frames_at(frames, one))})[0]
            for one in chunks(len(frames), CHUNK)
        ]
        return Verdict(np.concatenate(parts), 1.0, None)

    def arrays(self, *, network: bool = True) -> Arrays:
        """Return the arrays of the state as they were in the file."""
        return {n: x for n, x in self._arrays.items() if network or not n.startswith(BACKBONE)}

    def restore(self, arrays: Mapping[str, Any], frames: Mapping[int, int]) -> None:
        """Take over the arrays of a file, and make the session of its graph."""
        self._arrays = dict(arrays)
        check_ids(self.classes, frames)
        weights = {
            name.removeprefix(BACKBONE): array
            for name, array in arrays.items()
            if name.startswith(BACKBONE)
        }
        self._session = weighted_session(self._graph, weights, {}, 1)

    def draft(self) -> Self:
        """Return itself, since it does not change."""
        return self

    def graphs(self) -> Arrays:
        """Return the arrays of the graph that the file has."""
        return self._graph_arrays

    def free_cache(self) -> None:
        """Free nothing: nothing is computed from the state."""

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Say that this needs torch."""
        raise MissingExtraError(
            f"{self.settings.strategy} trains its network, so only predictions work without torch: "
            'pip install "primavista[train]"'
        )

    untaught = learn = learn_features = features = judge_features = _refuse
    judge_windows = maps = forget = merge = _refuse

    def window_reader(self) -> WindowReader:
        """Refuse: a strategy that trains its network cannot locate."""
        self._refuse()

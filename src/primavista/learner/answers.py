"""The answers of a state: predictions by name, and the count of right ones before a lesson."""

from __future__ import annotations

import torch
from torch import Tensor

from primavista.coach import HeldOutTests, count_answers, frames_to_test
from primavista.frames import Frames, read_frames
from primavista.learner.prediction import Prediction, is_known
from primavista.learner.state import LearnerState
from primavista.strategies.base import Strategy
from primavista.strategies.open_set import Judgement, judge, judge_features


def named_predictions(state: LearnerState, judged: Judgement, threshold: float) -> list[Prediction]:
    """Turn scores and familiarity into predictions, by the names of a state.

    Args:
        state: The state that has judged.
        judged: The scores of its classes for each frame, and the familiarity if it can tell.
        threshold: That of the learner, for `known`.
    """
    classes = state.strategy.classes.tolist()
    # compat="caffe" has columns for classes that were not taught yet
    columns = [j for j, i in enumerate(classes) if i in state.names]
    names = [state.names[classes[j]] for j in columns]
    scores = judged.scores if len(columns) == len(classes) else judged.scores[:, columns]
    shares = (scores / judged.temperature).float().softmax(1).tolist()
    familiarities: list[float | None] = [None] * len(shares)
    if judged.familiarity is not None:
        familiarities = judged.familiarity.tolist()
    found = []
    for row, familiarity in zip(shares, familiarities, strict=True):
        confidence = max(row)
        known = is_known(confidence, len(names), familiarity, threshold)
        label = names[row.index(confidence)]
        by_name = dict(zip(names, row, strict=True))
        found.append(Prediction(label, confidence, known, by_name, familiarity))
    return found


def held_out_tests(
    state: LearnerState,
    draft: Strategy,
    images: Frames,
    features: Tensor | None,
    labels: Tensor,
    threshold: float,
) -> HeldOutTests:
    """Predict some frames of known objects, which have not been learned yet, and count.

    Args:
        state: The state before the lesson.
        draft: The strategy that is about to learn the lesson.
        images: The frames of the lesson.
        features: Their features; None if the lesson trains the representation.
        labels: The id of the object of each frame.
        threshold: That of the learner, for `known`.
    """
    chosen = torch.tensor(frames_to_test(labels.tolist(), state.names), dtype=torch.int64)
    if not len(chosen):
        return {}
    if features is None:
        # by the draft, whose network no other thread uses
        judged = judge(draft, read_frames(images, chosen, draft.device))
    else:
        judged = judge_features(state.strategy, features[chosen.to(features.device)])
    ids = {name: i for i, name in state.names.items()}
    found = named_predictions(state, judged, threshold)
    answers = [ids[prediction.label] for prediction in found if prediction.label is not None]
    known = [prediction.known for prediction in found]
    return count_answers(labels[chosen].tolist(), answers, known)

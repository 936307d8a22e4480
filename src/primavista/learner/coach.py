"""The coach: how held-out lessons were answered, and what to teach next.

A lesson of an object that is known already is first predicted and then learned. At that moment its
frames are held out: the learner has not seen them. So each lesson after the first one gives an
honest accuracy of its object, and the objects that it is confused with, for nothing. This module
counts and advises; it knows neither frames nor strategies. Objects are class ids, which outlive a
renaming.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, TypeAlias, get_args

from primavista.storage.manifest import AnswerCount

NOTHING = "nothing"  # the name of lessons that show the background
TEST_FRAMES = 10  # of each object of a lesson, evenly spaced
TESTS = 3  # of each object, the last ones: earlier ones tested a learner that knew less
ENOUGH = 0.8  # the share of held-out frames that must be right
CONFUSED = 0.2  # the share of held-out frames of two objects that were taken for the other one
SEEN_AS_KNOWN = 0.5  # the share of held-out frames that must be known

# The rules, urgent ones first.
Kind = Literal[
    "second object", "confused", "another side", "another place", "once more", "good enough"
]
ORDER: tuple[Kind, ...] = get_args(Kind)


# How one lesson of one object was answered before it was learned, by ascending id.
HeldOutTest: TypeAlias = tuple[AnswerCount, ...]
# The last tests of each object, oldest first. An object that was not tested is not in it.
HeldOutTests: TypeAlias = Mapping[int, tuple[HeldOutTest, ...]]


@dataclass(frozen=True)
class Advice:
    """A suggestion of what to teach next about one object, or about two that are confused.

    Args:
        labels: The name of the object, or both names.
        kind: The rule that gave the advice; docs/guides/live.md has the table of them.
        text: The advice in plain English.
        lessons: How many lessons tested these objects before they were learned; only the last
            three of each object are kept.
        frames: How many held-out frames these lessons had.
        right: How many of them were answered with the right name.
        known: How many of them counted as known, whatever the name.
        taken_for: What the other frames were taken for, and how often; the most frequent first.
    """

    labels: tuple[str, ...]
    kind: Kind
    text: str
    lessons: int
    frames: int
    right: int
    known: int
    taken_for: dict[str, int]

    @property
    def accuracy(self) -> float | None:
        """The share of held-out frames that were right, from 0 to 1; None if there were none."""
        return self.right / self.frames if self.frames else None


def frames_to_test(labels: Sequence[int], known: Collection[int]) -> list[int]:
    """Choose the frames of a lesson that are predicted before it is learned.

    Args:
        labels: The class id of each frame.
        known: The class ids that the learner knows. There must be two of them at least: with one,
            every answer is right.

    Returns:
        The positions of at most ten frames of each known object, evenly spaced, in order.

    >>> frames_to_test([7] * 4 + [5] * 100, known={5, 6})
    [9, 19, 29, 39, 49, 59, 69, 79, 89, 99]
    >>> frames_to_test([5] * 4, known={5})
    []
    """
    if len(known) < 2:
        return []
    positions: dict[int, list[int]] = {}
    for position, label in enumerate(labels):
        if label in known:
            positions.setdefault(label, []).append(position)
    chosen: list[int] = []
    for own in positions.values():
        count = min(TEST_FRAMES, len(own))
        # the middle of each of `count` equal parts
        chosen += [own[(2 * k + 1) * len(own) // (2 * count)] for k in range(count)]
    return sorted(chosen)


def lessons_to_test(labels: Sequence[str]) -> list[bool]:
    """Choose the lessons of a series that are predicted before they are learned.

    Only the last three tests of each object are kept. Testing earlier lessons of the series would
    cost one solution each and would not change the advice.

    Args:
        labels: The name of the object of each lesson, in the order in which they are taught.

    Returns:
        True for the last three lessons of each object.

    >>> lessons_to_test(["mug", "mug", "cup", "mug", "mug"])
    [False, True, True, True, True]
    """
    later: Counter[str] = Counter()
    found = []
    for label in reversed(labels):
        found.append(later[label] < TESTS)
        later[label] += 1
    return found[::-1]


def count_answers(
    labels: Iterable[int], answers: Iterable[int], known: Iterable[bool]
) -> dict[int, tuple[HeldOutTest, ...]]:
    """Count how the held-out frames of one lesson were answered.

    Args:
        labels: The right class id of each frame.
        answers: The class id that it was taken for.
        known: Whether it counted as known.

    Returns:
        One test of each object in the lesson.

    >>> count_answers([5, 5, 5], answers=[6, 5, 5], known=[True, True, False])
    {5: ((AnswerCount(id=5, frames=2, known=1), AnswerCount(id=6, frames=1, known=1)),)}
    """
    frames: Counter[tuple[int, int]] = Counter()
    as_known: Counter[tuple[int, int]] = Counter()
    for label, answer, is_known in zip(labels, answers, known, strict=True):
        frames[label, answer] += 1
        as_known[label, answer] += int(is_known)
    tests: dict[int, list[AnswerCount]] = {}
    for (label, answer), count in sorted(frames.items()):
        one = AnswerCount(id=answer, frames=count, known=as_known[label, answer])
        tests.setdefault(label, []).append(one)
    return {label: (tuple(test),) for label, test in tests.items()}


def with_tests(before: HeldOutTests, new: HeldOutTests) -> dict[int, tuple[HeldOutTest, ...]]:
    """Append tests to the earlier ones of each object; the last three of each are kept.

    Args:
        before: The tests so far.
        new: The tests that follow: those of a lesson, or all those of another learner.
    """
    ids = sorted({*before, *new})
    return {i: (*before.get(i, ()), *new.get(i, ()))[-TESTS:] for i in ids}


def with_ids(tests: HeldOutTests, ids: Mapping[int, int]) -> dict[int, tuple[HeldOutTest, ...]]:
    """Give other class ids to all objects, and leave out those that have none.

    Frames that were taken for an object that is left out are left out too: it is not known what
    they would have been taken for without it.

    Args:
        tests: The tests of each object.
        ids: The new class id of each id that stays.
    """
    kept: dict[int, tuple[HeldOutTest, ...]] = {}
    for i, of_object in tests.items():
        own = [_answers_with_ids(test, ids) for test in of_object]
        if i in ids and any(own):
            kept[ids[i]] = tuple(test for test in own if test)
    return dict(sorted(kept.items()))


def _answers_with_ids(test: HeldOutTest, ids: Mapping[int, int]) -> HeldOutTest:
    moved = [one.model_copy(update={"id": ids[one.id]}) for one in test if one.id in ids]
    return tuple(sorted(moved, key=lambda one: one.id))


def from_records(
    records: Mapping[int, Iterable[Iterable[AnswerCount]]],
) -> dict[int, tuple[HeldOutTest, ...]]:
    """Return the tests that a manifest holds.

    Args:
        records: The tests of each class id in the file. Answers that name another id are left out:
            that object may have been forgotten.
    """
    tests = {i: tuple(map(tuple, found)) for i, found in records.items()}
    return with_tests({}, with_ids(tests, {i: i for i in records}))


def advise(tests: HeldOutTests, names: Mapping[int, str]) -> list[Advice]:
    """Say what to teach next: one advice per confused pair and per other object, urgent ones first.

    The rules are those of the table in docs/guides/live.md, and the first one that fits decides.

    Args:
        tests: The last tests of each object.
        names: The name of each known class id.
    """
    told = {i: _counted(i, tests.get(i, ())) for i in names}
    if len(names) == 1:
        return [_advice("second object", told.values(), names)]
    pairs = [pair for pair in combinations(told.values(), 2) if _confusion(*pair) >= CONFUSED]
    pairs.sort(key=lambda pair: -_confusion(*pair))
    found = [_advice("confused", pair, names) for pair in pairs]
    in_pairs = {one.id for pair in pairs for one in pair}
    found += [_advice(_kind(one), [one], names) for one in told.values() if one.id not in in_pairs]
    return sorted(found, key=lambda advice: ORDER.index(advice.kind))


@dataclass(frozen=True)
class _Counted:
    """The sums over all tests of one object: frames by answer, and how many were known."""

    id: int
    lessons: int
    answers: Counter[int]
    known: int

    @property
    def frames(self) -> int:
        return self.answers.total()

    @property
    def right(self) -> int:
        return self.answers[self.id]


def _counted(i: int, tests: Sequence[HeldOutTest]) -> _Counted:
    given = [one for test in tests for one in test]
    answers: Counter[int] = Counter()
    for one in given:
        answers[one.id] += one.frames
    return _Counted(i, len(tests), answers, sum(one.known for one in given))


def _confusion(a: _Counted, b: _Counted) -> float:
    """Return the share of the held-out frames of two objects that were taken for the other one."""
    frames = a.frames + b.frames
    return (a.answers[b.id] + b.answers[a.id]) / frames if frames else 0.0


def _kind(one: _Counted) -> Kind:
    """Return the rule for an object that is not in a confused pair."""
    if not one.frames:
        return "once more"
    if one.right < ENOUGH * one.frames:
        return "another side"
    if one.known < SEEN_AS_KNOWN * one.frames:
        return "another place"
    return "good enough"


def _advice(kind: Kind, about: Iterable[_Counted], names: Mapping[int, str]) -> Advice:
    about = list(about)
    labels = tuple(names[one.id] for one in about)
    frames = sum(one.frames for one in about)
    right = sum(one.right for one in about)
    known = sum(one.known for one in about)
    taken_for: Counter[str] = Counter()
    for one in about:
        taken_for += Counter({names[i]: n for i, n in one.answers.items() if i != one.id})
    told = f"{right} of {frames} new frames"
    said = ["the empty background" if label == NOTHING else label for label in labels]
    first, last = said[0], said[-1]
    texts: dict[Kind, str] = {
        "second object": f"teach a second object: with {first} alone every answer is right",
        "confused": f"{first} and {last} are confused: show both once more",
        "another side": f"show {first} from another side: only {told} were recognised",
        "another place": f"show {first} in another place: it is often called unknown",
        "once more": f"show {first} once more, somewhere else",
        "good enough": f"{first} is good enough: {told} were recognised",
    }
    lessons = sum(one.lessons for one in about)
    return Advice(
        labels, kind, texts[kind], lessons, frames, right, known, dict(taken_for.most_common())
    )

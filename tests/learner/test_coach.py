"""The coach: held-out counts worked by hand, and what every change of a learner makes of them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from primavista import Advice, FileError, InputError, Learner
from primavista.engine.representation import Representation
from primavista.learner import teaching
from primavista.learner.coach import (
    TESTS,
    advise,
    count_answers,
    frames_to_test,
    from_records,
    with_ids,
    with_tests,
)
from primavista.media.video import Clip, Lesson
from primavista.storage.manifest import AnswerCount, parse_manifest

RED, BLUE, GREEN = (220, 40, 40), (40, 40, 220), (40, 220, 40)
NAMES = {0: "mug", 1: "cup", 2: "pot"}


def count(i: int, frames: int, known: int) -> AnswerCount:
    return AnswerCount(id=i, frames=frames, known=known)


def clip(colour: tuple[int, int, int], seed: int, count: int = 10) -> np.ndarray:
    """A noisy video of one colour; another seed is another video."""
    noise = np.random.default_rng(seed).integers(-20, 20, (count, 32, 32, 3))
    return (np.array(colour) + noise).clip(0, 255).astype(np.uint8)


def tiny(strategy: str = "ncm") -> Learner:
    return Learner(strategy, weights="random", width=0.125, size=32, device="cpu")


def taught(strategy: str = "ncm") -> Learner:
    """Mug is red and cup is blue, one lesson each."""
    learner = tiny(strategy)
    learner.learn(clip(RED, 0), "mug")
    learner.learn(clip(BLUE, 1), "cup")
    return learner


def seven_of_ten() -> Learner:
    """As `taught`; then mug was tested with 7 red frames and 3 blue ones."""
    learner = taught()
    learner.learn(np.concatenate([clip(RED, 2, 7), clip(BLUE, 3, 3)]), "mug")
    return learner


def on(learner: Learner, label: str) -> Advice:
    return next(one for one in learner.advice() if label in one.labels)


def numbers(advice: Advice) -> tuple[int, int, int, dict[str, int]]:
    return advice.lessons, advice.frames, advice.right, advice.taken_for


def test_frames_to_test_are_evenly_spaced_and_of_known_objects():
    assert frames_to_test([0] * 30, known={0, 1}) == [1, 4, 7, 10, 13, 16, 19, 22, 25, 28]
    assert frames_to_test([0] * 3, known={0, 1}) == [0, 1, 2]
    assert frames_to_test([0, 7, 1, 7, 0], known={0, 1}) == [0, 2, 4]  # 7 is new
    assert len(frames_to_test([0, 1] * 50, known={0, 1})) == 20  # ten of each
    assert len(set(frames_to_test([0] * 11, known={0, 1}))) == 10
    assert frames_to_test([0] * 5, known={0}) == []  # every answer would be right
    assert frames_to_test([5] * 5, known={0, 1}) == []


def test_answers_are_counted_by_object():
    counted = count_answers(
        labels=[0, 0, 0, 0, 1, 1],
        answers=[0, 2, 1, 2, 1, 0],
        known=[True, True, False, False, True, True],
    )
    assert counted == {
        0: ((count(0, 1, 1), count(1, 1, 0), count(2, 2, 1)),),
        1: ((count(0, 1, 1), count(1, 1, 1)),),
    }


def test_only_the_last_tests_are_kept():
    tests = {}
    for k in range(50):
        worst = tuple(count(1000 + k + i, 1, 1) for i in range(10))  # ten frames, ten answers
        tests = with_tests(tests, {0: (worst,)})
    assert len(tests[0]) == TESTS == 3
    assert [test[0].id for test in tests[0]] == [1047, 1048, 1049]
    assert (
        len(
            json.dumps(
                [[one.model_dump() for one in test] for test in tests[0]], separators=(",", ":")
            )
        )
        < 1100
    )


def test_an_object_that_goes_takes_the_frames_along_that_were_taken_for_it():
    tests = {
        0: ((count(0, 6, 5), count(1, 4, 2)), (count(1, 10, 0),)),
        1: ((count(1, 9, 9),),),
    }
    assert with_ids(tests, {0: 0}) == {0: ((count(0, 6, 5),),)}
    assert with_ids(tests, {0: 7, 1: 3}) == {
        3: ((count(3, 9, 9),),),
        7: ((count(3, 4, 2), count(7, 6, 5)), (count(3, 10, 0),)),
    }


def test_records_are_what_they_were():
    tests = {0: ((count(0, 6, 5), count(1, 4, 2)),), 1: ((count(1, 9, 9),),)}
    records = {i: [list(test) for test in of_object] for i, of_object in tests.items()}
    assert from_records(records) == tests
    assert from_records({0: records[0], 2: []}) == {0: ((count(0, 6, 5),),)}


@pytest.mark.parametrize(
    ("tests", "about_mug"),
    [
        ({}, ["once more"]),
        ({0: ((count(0, 8, 8), count(1, 1, 0), count(2, 1, 0)),)}, ["good enough"]),  # 80 %
        ({0: ((count(0, 4, 4), count(1, 1, 0), count(2, 1, 0)),)}, ["another side"]),  # 67 %
        ({0: ((count(0, 10, 4),),)}, ["another place"]),
        ({0: ((count(0, 10, 5),),)}, ["good enough"]),
        ({0: ((count(0, 8, 8), count(1, 2, 2)),)}, ["confused"]),  # 2 of 10
        # 3 + 0 of 20 are too few for a pair, and 7 of 10 too few for mug
        ({0: ((count(0, 7, 7), count(1, 3, 3)),), 1: ((count(1, 10, 10),),)}, ["another side"]),
        # 3 + 1 of 20
        (
            {
                0: ((count(0, 7, 7), count(1, 3, 3)),),
                1: ((count(0, 1, 1), count(1, 9, 9)),),
            },
            ["confused"],
        ),
        # two lessons together: 4 of 20 for each of the others
        (
            {0: ((count(0, 2, 2), count(1, 4, 4), count(2, 4, 4)), (count(0, 10, 10),))},
            ["confused", "confused"],
        ),
    ],
)
def test_the_rules(tests, about_mug):
    found = advise(tests, NAMES)
    assert [one.kind for one in found if "mug" in one.labels] == about_mug
    assert {label for one in found for label in one.labels} == {"mug", "cup", "pot"}


def test_texts_and_numbers_and_urgent_things_first():
    tests = {
        0: ((count(0, 7, 6), count(1, 3, 1)), (count(0, 4, 4), count(1, 6, 0))),
        1: ((count(0, 1, 1), count(1, 9, 9)),),
        2: ((count(2, 10, 10),),),
    }
    found = advise(tests, {**NAMES, 3: "jug"})
    assert [one.text for one in found] == [
        "mug and cup are confused: show both once more",
        "show jug once more, somewhere else",
        "pot is good enough: 10 of 10 new frames were recognised",
    ]
    pair, jug, pot = found
    assert (pair.labels, pair.lessons, pair.frames, pair.right, pair.known) == (
        ("mug", "cup"),
        3,
        30,
        20,
        21,
    )
    assert pair.taken_for == {"cup": 9, "mug": 1}
    assert pair.accuracy == pytest.approx(2 / 3)
    assert (jug.accuracy, pot.accuracy) == (None, 1.0)
    assert advise({}, {}) == []
    background = advise({}, {0: "mug", 1: "nothing"})[1]
    assert background.text == "show the empty background once more, somewhere else"
    (alone,) = advise({}, {0: "mug"})
    assert alone.text == "teach a second object: with mug alone every answer is right"


def test_a_lesson_of_a_known_object_is_predicted_before_it_is_learned():
    learner = taught()
    assert [one.kind for one in learner.advice()] == ["once more", "once more"]
    learner.learn(clip(BLUE, 2), "mug")  # so far all blue things are cups
    assert numbers(on(learner, "mug")) == (1, 10, 0, {"cup": 10})
    assert on(learner, "mug").text == "mug and cup are confused: show both once more"
    learner = seven_of_ten()
    assert numbers(on(learner, "mug")) == (1, 10, 7, {"cup": 3})


def test_known_is_what_predict_says():
    learner = taught()
    frames = np.concatenate([clip(RED, 2, 5), clip(GREEN, 3, 5)])
    before = learner.predict(frames)
    learner.learn(frames, "mug")
    advice = on(learner, "mug")
    assert advice.known == sum(one.known for one in before)
    assert advice.right == sum(one.label == "mug" for one in before)


@pytest.mark.parametrize("strategy", ["naive", "ar1*", "cwr*", "dslda", "prima"])
def test_any_strategy(strategy):
    """Also those whose representation trains, and those that tell no strangers."""
    learner = taught(strategy)
    frames = np.concatenate([clip(RED, 2, 9), clip(GREEN, 3, 5)])
    expected = [learner.predict(frames[k]) for k in frames_to_test([0] * 14, {0, 1})]
    learner.learn(frames, "mug")
    advice = on(learner, "mug")
    assert advice.frames == 10
    assert advice.right == sum(one.label == "mug" for one in expected)
    assert advice.known == sum(one.known for one in expected)


@pytest.mark.parametrize("strategy", ["ar1*", "cwr*", "prima"])
def test_what_is_learned_does_not_depend_on_the_test(strategy):
    learners = taught(strategy), taught(strategy)
    for learner, coach in zip(learners, (True, False), strict=True):
        learner.learn(clip(GREEN, 2), "mug", coach=coach)
        learner.learn(clip(RED, 3), "cup", coach=coach)
    (one, _), (other, _) = (learner.content() for learner in learners)
    assert one.keys() == other.keys()
    assert all(one[name].tobytes() == other[name].tobytes() for name in one)


@pytest.mark.parametrize("buffered", [False, True])
def test_no_frame_goes_through_a_frozen_network_twice(monkeypatch, buffered):
    learner = taught()
    seen = []
    forward = Representation.some_features
    monkeypatch.setattr(
        Representation,
        "some_features",
        lambda self, f, i, **how: seen.append(len(i)) or forward(self, f, i, **how),
    )
    frames = clip(RED, 2, 40)
    lesson = learner.open_lesson() if buffered else frames
    if buffered:
        for frame in frames:
            lesson.add(frame)
    learner.learn(lesson, "mug")
    assert sum(seen) == 40
    assert numbers(on(learner, "mug")) == (1, 10, 10, {})


def test_several_names_in_one_lesson():
    learner = taught()
    frames = np.concatenate([clip(RED, 2, 4), clip(BLUE, 3, 4), clip(GREEN, 4, 4)])
    learner.learn(frames, ["mug"] * 4 + ["cup"] * 4 + ["pot"] * 4)
    assert numbers(on(learner, "mug")) == (1, 4, 4, {})
    assert numbers(on(learner, "cup")) == (1, 4, 4, {})
    assert on(learner, "pot").kind == "once more"


def test_what_is_no_test():
    learner = tiny()
    for seed in (0, 1):
        learner.learn(clip(RED, seed), "mug")
    assert [one.kind for one in learner.advice()] == ["second object"]
    learner.learn(clip(BLUE, 2), "cup")
    learner.learn(clip(RED, 1), "mug")  # these frames were learned already
    learner.learn(clip(RED, 3), "mug", coach=False)
    assert on(learner, "mug").kind == "once more"
    with pytest.raises(InputError):
        learner.learn(clip(RED, 4), "")
    assert on(learner, "mug").frames == 0


def test_undo_rename_and_forget(tmp_path):
    learner = seven_of_ten()
    learner.undo()
    assert on(learner, "mug").kind == "once more"
    learner = seven_of_ten()
    learner.rename("cup", "beaker")
    assert on(learner, "mug").labels == ("mug", "beaker")
    assert on(learner, "mug").taken_for == {"beaker": 3}
    learner.rename("mug", "tankard")
    assert numbers(on(learner, "tankard")) == (1, 10, 7, {"beaker": 3})
    learner.learn(clip(GREEN, 9), "pot")
    learner.forget("beaker")
    assert numbers(on(learner, "tankard")) == (1, 7, 7, {})
    learner.save(tmp_path / "a.pv")
    learner = Learner.load(tmp_path / "a.pv", device="cpu")
    assert numbers(on(learner, "tankard")) == (1, 7, 7, {})
    learner.undo()
    assert numbers(on(learner, "tankard")) == (1, 10, 7, {"beaker": 3})
    learner.forget("tankard")
    assert all(one.kind == "once more" for one in learner.advice())


def test_save_and_load_also_the_state_before(tmp_path):
    learner = seven_of_ten()
    learner.learn(clip(RED, 5), "mug")
    learner.save(tmp_path / "a.pv")
    again = Learner.load(tmp_path / "a.pv", device="cpu")
    assert again.advice() == learner.advice()
    assert again.to_bytes() == learner.to_bytes()
    again.undo()
    assert again.advice() == seven_of_ten().advice()
    assert again.without_undo().advice() == again.copy().advice() == seven_of_ten().advice()
    assert again.untaught().advice() == []


def test_a_merge_adds_the_counts_of_both(tmp_path):
    """The ids of the two learners differ: cup and mug are taught in the other order."""
    ours, theirs = seven_of_ten(), tiny()
    theirs.learn(clip(BLUE, 11), "cup")
    theirs.learn(clip(RED, 12), "mug")
    theirs.learn(np.concatenate([clip(RED, 13, 9), clip(BLUE, 14, 1)]), "mug")
    theirs.learn(clip(BLUE, 15, 4), "cup")
    theirs.save(tmp_path / "theirs.pv")
    ours.merge(tmp_path / "theirs.pv")
    assert numbers(on(ours, "cup")) == (1, 4, 4, {})
    assert numbers(on(ours, "mug")) == (2, 20, 16, {"cup": 4})
    ours.undo()
    assert numbers(on(ours, "mug")) == (1, 10, 7, {"cup": 3})


def test_parts_that_are_learned_apart_are_not_tests(monkeypatch):
    monkeypatch.setattr(teaching, "open_frames", lambda source, size: Clip(clip(*source), ""))
    lessons = [
        Lesson(name, (colour, seed))
        for seed, (name, colour) in enumerate([("mug", RED), ("cup", BLUE)] * 3)
    ]
    empty = tiny()
    data, outcomes = teaching._learn_part(empty.to_bytes(), empty.engine, {}, lessons, (), {})
    assert [one.status for one in outcomes] == ["learned"] * 6
    learner = tiny()
    learner.merge(Learner.from_bytes(data))
    assert [one.kind for one in learner.advice()] == ["once more", "once more"]


@pytest.mark.parametrize(
    "held_out",
    [
        [[{"id": 0, "frames": 1, "known": 2}]],
        [[{"id": 0, "frames": 0, "known": 0}]],
        [[{"id": 0, "frames": 10**9, "known": 0}]],
        [[{"id": -1, "frames": 1, "known": 0}]],
        [[{"id": 0, "frames": 1, "known": 0, "more": 1}]],
        [[]] * 1000,
        [[{"id": k, "frames": 1, "known": 0} for k in range(1000)]],
        "x",
    ],
)
def test_impossible_counts_are_refused(held_out):
    _, manifest = seven_of_ten().content()
    manifest["classes"][0]["held_out"] = held_out
    with pytest.raises(FileError, match=r"invalid manifest field classes\.0\.held_out"):
        parse_manifest(manifest, "kitchen.pv")


def test_answers_that_name_a_forgotten_object_are_left_out():
    answers = [count(0, 4, 4), count(9, 6, 6)]
    assert from_records({0: [answers]}) == {0: ((count(0, 4, 4),),)}

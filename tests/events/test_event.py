"""Events: the moment at which one comes, and its fields."""

from __future__ import annotations

from primavista.events.event import ChangeDetector, ObjectEvent, SceneDetector, event_record
from primavista.learner.locating import Located
from primavista.learner.prediction import Prediction
from primavista.media.boxes import Box

MUG = Prediction("mug", 0.91, "known", {"mug": 0.91, "cup": 0.09}, 0.95)
CUP = Prediction("cup", 0.8, "known", {"mug": 0.2, "cup": 0.8}, 0.9)
STRANGE = Prediction("cup", 0.6, "unknown", {"mug": 0.4, "cup": 0.6}, 0.1)
LIKELY = Prediction("cup", 0.7, "likely", {"mug": 0.3, "cup": 0.7}, 0.7)
TABLE = Prediction("nothing", 0.99, "known", {"nothing": 0.99, "cup": 0.01}, 0.9)


def events(answers: list[tuple[float, Prediction]], hold: float) -> list[ObjectEvent]:
    detector = ChangeDetector("door", hold)
    found = [detector.update(answer, at) for at, answer in answers]
    return [event for event in found if event is not None]


def test_one_event_per_change_and_none_per_frame() -> None:
    answers = [(0.1 * i, MUG) for i in range(30)] + [(3 + 0.1 * i, CUP) for i in range(30)]
    first, second = events(answers, 0.5)
    assert (first.label, first.before, first.seconds) == ("mug", None, 0.5)
    assert (second.label, second.before, second.seconds) == ("cup", "mug", 3.5)
    assert (second.confidence, second.familiarity) == (0.8, 0.9)


def test_a_flicker_is_not_an_event() -> None:
    answers = [(0.1 * i, CUP if i == 12 else MUG) for i in range(30)]
    assert [event.label for event in events(answers, 0.3)] == ["mug"]
    assert [event.label for event in events(answers, 0)] == ["mug", "cup", "mug"]


def test_two_answers_in_turns_are_no_event() -> None:
    answers = [(0.1 * i, MUG) for i in range(10)]
    answers += [(1 + 0.1 * i, (CUP, STRANGE)[i % 2]) for i in range(20)]
    assert [event.label for event in events(answers, 0.3)] == ["mug"]


def test_strangers_and_the_background_are_nothing() -> None:
    answers = [(0.0, MUG), (1.0, STRANGE), (2.0, TABLE), (3.0, MUG)]
    assert [(event.before, event.label) for event in events(answers, 0)] == [
        (None, "mug"),
        ("mug", None),
        (None, "mug"),
    ]
    assert events(answers, 0)[1].confidence == 0


def test_the_start_is_said_even_if_nothing_is_seen() -> None:
    (event,) = events([(0.0, STRANGE), (1.0, STRANGE), (2.0, STRANGE)], 0.5)
    assert (event.label, event.before, event.seconds) == (None, None, 1.0)


def test_the_fields_of_an_event() -> None:
    (event,) = events([(1.23456, MUG)], 0)
    record = event_record(event)
    assert record.pop("time").endswith("Z")
    assert record == {
        "event": "object",
        "camera": "door",
        "label": "mug",
        "before": None,
        "confidence": 0.91,
        "familiarity": 0.95,
        "seconds": 1.235,
        "answer": "known",
        "likely": None,
    }


def test_a_likely_object_is_an_event_and_not_a_recognised_object() -> None:
    answers = [(0.0, STRANGE), (1.0, LIKELY), (2.0, LIKELY), (3.0, CUP), (4.0, LIKELY)]
    told = events(answers, 0)
    assert [(event.answer, event.label, event.likely, event.before) for event in told] == [
        ("unknown", None, None, None),
        ("likely", None, "cup", None),
        ("known", "cup", None, None),
        ("likely", None, "cup", "cup"),
    ]
    assert [event.confidence for event in told] == [0, 0.7, 0.8, 0.7]
    assert [event.labels for event in told] == [set(), set(), {"cup"}, set()]
    maybe_nothing = Prediction("nothing", 0.6, "likely", {"nothing": 0.6, "cup": 0.4}, 0.7)
    (event,) = events([(0.0, maybe_nothing)], 0)
    assert (event.answer, event.likely, event.confidence) == ("unknown", None, 0)


def found(*labels: str, left: float = 16) -> list[Located]:
    """The objects that are located in a picture of 64 x 48 pixels."""
    return [
        Located(label, Box(left, 12, 48, 36), 0.9 - 0.1 * k, 0.95) for k, label in enumerate(labels)
    ]


def scenes(pictures: list[list[Located]], hold: float = 0.5) -> list[ObjectEvent]:
    """The events of pictures that come ten times per second."""
    detector = SceneDetector("door", hold)
    told = [detector.update(one, (64, 48), k / 10) for k, one in enumerate(pictures)]
    return [event for event in told if event is not None]


def test_a_scene_has_an_event_when_other_objects_are_there() -> None:
    told = scenes([found("mug")] * 20 + [found("mug", "cup")] * 20 + [[]] * 20)
    assert [event.labels for event in told] == [{"mug"}, {"mug", "cup"}, set()]
    assert [event.label for event in told] == ["mug", "mug", None]
    assert [event.before for event in told] == [None, "mug", "mug"]
    # five of the last ten pictures show the cup at 2.4 s, and four at 4.5 s; then half a second
    assert [event.seconds for event in told] == [0.5, 2.9, 5.0]


def test_an_object_that_is_missed_in_some_pictures_is_still_there() -> None:
    flicker = [found("mug") if k % 3 else [] for k in range(40)]
    assert [event.labels for event in scenes(flicker)] == [{"mug"}]
    rare = [found("mug") if k % 4 == 0 else [] for k in range(1, 40)]
    assert [event.labels for event in scenes(rare)] == [set()]


def test_boxes_of_a_scene_are_shares_and_of_the_newest_picture() -> None:
    (event,) = scenes([found("mug", left=0)] * 3 + [found("mug", "mug")] * 3)
    record = event_record(event)
    assert record["objects"] == (
        {
            "label": "mug",
            "box": {"left": 0.25, "top": 0.25, "right": 0.75, "bottom": 0.75},
            "confidence": 0.9,
            "familiarity": 0.95,
        },
    )
    assert (record["label"], record["confidence"]) == ("mug", 0.9)


def test_a_scene_starts_anew_after_the_camera_was_lost() -> None:
    detector = SceneDetector("door", 0)
    assert detector.update(found("mug"), (64, 48), 0.0) is not None
    detector.reset()
    again = detector.update(found("cup"), (64, 48), 0.1)
    assert again is not None
    assert again.labels == {"cup"}  # the mug of before does not count

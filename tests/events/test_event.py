"""When an event comes, and what it says."""

from __future__ import annotations

from primavista.events.event import ChangeDetector, ObjectEvent, event_record
from primavista.learner.prediction import Prediction

MUG = Prediction("mug", 0.91, True, {"mug": 0.91, "cup": 0.09}, 0.95)
CUP = Prediction("cup", 0.8, True, {"mug": 0.2, "cup": 0.8}, 0.9)
STRANGE = Prediction("cup", 0.6, False, {"mug": 0.4, "cup": 0.6}, 0.1)
TABLE = Prediction("nothing", 0.99, True, {"nothing": 0.99, "cup": 0.01}, 0.9)


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
    }

"""The coach of the page gives the advice of Python's, from the same tests of lessons."""

from __future__ import annotations

import random
from dataclasses import asdict

import pytest
from web_support import node

from primavista.learner.coach import AnswerCount, advise, with_tests

NAMES = {3: "mug", 4: "kettle", 7: "ball", 9: "nothing"}


@pytest.mark.parametrize("seed", range(4))
def test_what_is_kept_and_advised_is_that_of_python(seed):
    draw = random.Random(seed)
    tests = []
    for _ in range(14):
        answers = sorted(draw.sample(sorted(NAMES), 2))
        counts = [(i, draw.randint(1, 10)) for i in answers]
        test = tuple(AnswerCount(id=i, frames=n, known=draw.randint(0, n)) for i, n in counts)
        tests.append((draw.choice([3, 4, 7]), test))
    held: dict = {}
    for i, test in tests:
        held = with_tests(held, {i: (test,)})
    given = {
        "tests": [(i, [one.model_dump() for one in test]) for i, test in tests],
        "names": list(NAMES.items()),
    }
    found = node("cases.mjs", "coach", given=given)
    assert found["held"] == [
        [i, [[one.model_dump() for one in test] for test in own]] for i, own in held.items()
    ]
    assert found["advice"] == [
        {**asdict(one), "labels": list(one.labels)} for one in advise(held, NAMES)
    ]

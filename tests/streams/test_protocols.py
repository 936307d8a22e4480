"""Protocols: what every order promises, over many shapes of data set, and the statistics of the
official orders.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from primavista.errors import InputError
from primavista.streams.dataset import DataSet, Session, Stream
from primavista.streams.nicv2 import paper_order
from primavista.streams.open import stream as open_stream
from primavista.streams.protocols import (
    blurry,
    class_incremental,
    domain_incremental,
    nc,
    ni,
    nic,
    nicv2,
    parse_protocol,
)

TRAINING = (1, 2, 4, 5, 6, 8, 9, 11)
MAX_START = {79: 68, 196: 165, 391: 340}


def shaped(
    counts: list[int], categories: list[int] | None = None, numbers: tuple[int, ...] | None = None
) -> DataSet:
    """A data set whose class i has counts[i] training sessions of two frames, and a test one."""
    train, test, place = [], [], 0
    for label, count in enumerate(counts):
        for k in range(count):
            train.append(Session(label, numbers[k] if numbers else k + 1, place, place + 2))
            place += 2
        test.append(Session(label, 100, place, place + 1))
        place += 1
    random.Random(0).shuffle(train)
    frames = torch.zeros(1, 1, 1, 3, dtype=torch.uint8).expand(max(place, 1), 1, 1, 3)
    names = tuple(f"class {i}" for i in range(len(counts)))
    return DataSet(
        "shaped", frames, tuple(train), tuple(test), names, tuple(categories or range(len(counts)))
    )


CORE50 = shaped([8] * 50, [i // 5 for i in range(50)], TRAINING)


def places(batches: object) -> dict[int, list[int]]:
    """The batches of each class' sessions, in order."""
    found: dict[int, list[int]] = defaultdict(list)
    for i, batch in enumerate(batches):  # type: ignore[call-overload]
        for session in batch:
            found[session.label].append(i)
    return found


def ks(a: list[int], b: list[int]) -> float:
    """The Kolmogorov-Smirnov distance of two samples."""
    x, y = np.sort(a), np.sort(b)
    both = np.concatenate([x, y])
    return float(
        np.abs(
            np.searchsorted(x, both, "right") / len(x) - np.searchsorted(y, both, "right") / len(y)
        ).max()
    )


def check_each_once(stream: Stream) -> None:
    used = Counter(session for batch in stream.batches for session in batch)
    assert used == Counter(stream.data.train)
    assert not set(used) & set(stream.data.test)


def check_nicv2(stream: Stream, opening: list[int], last: int | None) -> None:
    check_each_once(stream)
    rest = len(stream.data.train) - len(opening)
    sizes = [len(batch) for batch in stream.batches]
    assert sizes[0] == len(opening)
    assert set(sizes[1:]) <= {rest // (len(sizes) - 1), -(-rest // (len(sizes) - 1))}
    assert [session.label for session in stream.batches[0]] == opening
    for label in {session.label for session in stream.data.train}:
        own = [
            session.number
            for batch in stream.batches
            for session in batch
            if session.label == label
        ]
        assert own == sorted(own)
    if last is not None:
        starts = [
            where[0] for label, where in places(stream.batches).items() if label not in opening
        ]
        assert max(starts, default=0) <= last


@pytest.mark.parametrize("batches", [79, 196, 391])
def test_nicv2_on_core50_s_shape(batches: int) -> None:
    for run in range(60):
        stream = nicv2(CORE50, batches, run)
        assert stream.name == f"nicv2-{batches}"
        check_nicv2(stream, list(range(0, 50, 5)), MAX_START[batches])
        assert {len(batch) for batch in stream.batches[1:]} == {390 // (batches - 1)}
        assert {session.number for session in stream.batches[0]} == {1}
        assert min(where[0] for label, where in places(stream.batches).items() if label % 5) >= 2


def official(shared: Path, batches: int) -> list[list[list[Session]]]:
    orders = json.loads((shared / "data" / "nicv2_official_orders.json").read_text())["orders"][
        str(batches)
    ]
    return [
        [[Session(thing - 1, number, 0, 1) for number, thing in batch] for batch in order]
        for order in orders
    ]


@pytest.mark.parametrize(("batches", "gap_limit"), [(79, 0.06), (196, 0.03), (391, 0.03)])
def test_nicv2_has_the_statistics_of_the_official_orders(
    shared: Path, batches: int, gap_limit: float
) -> None:
    def collect(orders: list[list[list[Session]]]) -> tuple[list[int], list[int], list[int]]:
        found = [where for order in orders for where in places(order).values()]
        starts = [where[0] for where in found if where[0]]
        return (
            starts,
            [int(gap) for where in found for gap in np.diff(where)],
            [where[-1] for where in found],
        )

    theirs = collect(official(shared, batches))
    ours = collect(
        [[list(batch) for batch in nicv2(CORE50, batches, run).batches] for run in range(200)]
    )
    uniform = list(range(2, MAX_START[batches] + 1))
    distances = [ks(a, b) for a, b in zip(theirs, ours, strict=True)]
    assert ks(ours[0], uniform) < 0.04
    assert (
        ks(theirs[0], uniform) < 0.07
    )  # 400 official introductions; 1% of uniform samples are beyond 0.081
    assert distances[0] < 0.08
    assert distances[1] < gap_limit  # between a class' sessions
    assert distances[2] < 0.12  # of a class' last session
    assert max(ours[0]) == max(theirs[0]) == MAX_START[batches]
    print(
        f"nicv2-{batches}: KS of introductions, gaps, last sessions",
        [round(d, 3) for d in distances],
    )


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_nicv2_over_any_shape(data: st.DataObject) -> None:
    counts = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=14))
    grouped = data.draw(st.booleans())
    categories = [i // 3 for i in range(len(counts))] if grouped else None
    opening = sorted(data.draw(st.sets(st.integers(0, len(counts) - 1), min_size=1)))
    rest = sum(counts) - len(opening)
    if not rest:
        with pytest.raises(InputError, match="no session remains"):
            nicv2(shaped(counts, categories), first=opening)
        return
    batches = data.draw(st.integers(2, rest + 1))
    last = data.draw(st.none() | st.integers(-1, batches + 1))
    run = data.draw(st.integers(0, 10**6))
    try:
        stream = nicv2(shaped(counts, categories), batches, run, first=opening, max_start=last)
    except InputError as error:
        low = int(str(error).removeprefix("max_start must lie from ").split()[0])
        assert last is not None
        assert not low <= last < batches
        check_nicv2(
            nicv2(shaped(counts, categories), batches, run, first=opening, max_start=low),
            opening,
            low,
        )
        return
    assert len(stream) == batches
    check_nicv2(stream, opening, last if len(opening) < len(counts) else None)


def test_a_late_max_start_is_mended_not_refused() -> None:
    data = shaped([2] * 30)  # so tight that hardly any draw fits
    for run in range(50):
        check_nicv2(nicv2(data, run=run, first=[0, 1], max_start=57), [0, 1], 57)


def test_the_least_max_start_by_hand() -> None:
    data = shaped(
        [3, 3, 3, 3]
    )  # 11 sessions after batch 1, one a batch; 3 new classes from batch 2 on
    with pytest.raises(InputError, match=r"from 4 .* to 11"):
        nicv2(data, first=[0], max_start=3)
    order = nicv2(data, first=[0], max_start=4).batches
    assert [batch[0].number for batch in order[1:5]] == [2, 1, 1, 1]


def test_ni_on_core50_s_shape() -> None:
    orders = set()
    for run in range(100):
        stream = ni(CORE50, run)
        check_each_once(stream)
        assert [len(batch) for batch in stream.batches] == [50] * 8
        numbers = [{session.number for session in batch} for batch in stream.batches]
        assert all(len(number) == 1 for number in numbers)
        orders.add(tuple(number.pop() for number in numbers))
    assert len(orders) > 95


def test_nc_on_core50_s_shape() -> None:
    for run in range(100):
        stream = nc(CORE50, run)
        check_each_once(stream)
        classes = [{session.label for session in batch} for batch in stream.batches]
        assert [len(labels) for labels in classes] == [10] + [5] * 8
        assert len(set().union(*classes)) == 50
        assert {label // 5 for label in classes[0]} == set(range(10))  # one of each category


def test_nc_takes_what_remains_last() -> None:
    assert [len({s.label for s in b}) for b in nc(shaped([2] * 11), first=3, each=3).batches] == [
        3,
        3,
        3,
        2,
    ]
    with pytest.raises(InputError, match="from 1 to 11"):
        nc(shaped([2] * 11), first=12)


def test_nic_on_core50_s_shape() -> None:
    late = []
    for run in range(60):
        stream = nic(CORE50, run)
        check_each_once(stream)
        assert [session.label for session in stream.batches[0]] == list(range(0, 50, 5))
        assert [len(batch) for batch in stream.batches] == [10] + [5] * 78
        assert all(len({session.label for session in batch}) == 5 for batch in stream.batches[1:])
        late += [where[0] for where in places(stream.batches).values()]
    # the paper: almost all classes come in the first 10 to 15 batches
    assert 0.75 < np.mean(np.array(late) < 15) < 0.95


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=2, max_size=12), st.integers(0, 50), st.integers(1, 5))
def test_simple_protocols_over_any_shape(counts: list[int], run: int, classes: int) -> None:
    data = shaped(counts)
    for stream in (ni(data, run), nc(data, run)):
        check_each_once(stream)
    try:
        stream = nic(data, run, classes=classes)
    except InputError as error:
        top = int(str(error).rsplit(" ", 1)[1])
        assert top < classes
        stream = nic(data, run, classes=top)
    check_each_once(stream)
    sizes = [len(batch) for batch in stream.batches[1:]]
    assert max(sizes, default=0) - min(sizes, default=0) <= 1
    assert all(len({session.label for session in batch}) == len(batch) for batch in stream.batches)


def test_the_published_pseudocode_dead_ends_with_the_published_values() -> None:
    for batches, expected in ((79, 60), (196, 60), (391, 59)):
        dead = 0
        for run in range(60):
            try:
                nicv2(CORE50, batches, run, method="paper")
            except InputError as error:
                dead += "loops for ever" in str(error)
        assert dead >= expected


def test_the_published_pseudocode_to_the_letter() -> None:
    stream = nicv2(CORE50, 79, 3, max_start=30, method="paper")
    used = Counter(session for batch in stream.batches for session in batch)
    assert max(used.values()) == 1
    assert {s for s in CORE50.train if s.label % 5} == {s for s in used if s.label % 5}
    assert {s for s in used if s.label % 5 == 0} == set(
        stream.batches[0]
    )  # the other 70 are never placed
    assert len(stream.batches[0]) == 10
    assert all(1 <= len(batch) <= 5 for batch in stream.batches[1:])


def test_the_published_pseudocode_fills_the_last_batch() -> None:
    """Three sessions of a new class for batches 2, 3 and 4: each has room for one."""
    first = Session(0, 1, 0, 2)
    new = [Session(1, k, 2 * k, 2 * k + 2) for k in (1, 2, 3)]
    orders = set()
    for run in range(20):
        order = paper_order({0: [first], 1: new}, [0], 4, 2, random.Random(run))
        assert [len(batch) for batch in order] == [1, 1, 1, 1]
        assert order[0] == [first]
        orders.add(tuple(batch[0].number for batch in order[1:]))
    assert all(sorted(order) == [1, 2, 3] for order in orders)
    assert len(orders) > 1


@pytest.mark.parametrize(
    "name",
    [
        "ni",
        "nc",
        "nic",
        "nicv2-79",
        "nicv2-196",
        "nicv2-391",
        "nicv2-14",
        "NICv2_79",
        "nicv2",
        "blurry",
    ],
)
def test_protocols_by_name_are_functions_of_the_run(name: str) -> None:
    one, two, other = (open_stream(CORE50, name, run).batches for run in (3, 3, 4))
    assert one == two
    assert one != other
    reordered = DataSet(
        "x", CORE50.frames, CORE50.train[::-1], (), CORE50.classes, CORE50.categories
    )
    assert open_stream(reordered, name, 3).batches == one


@pytest.mark.parametrize("wrong", ["", "nicv3", "nicv2-", "nicv2-x", "ni-8", "nicv2-99999999999"])
def test_unknown_protocols_are_named(wrong: str) -> None:
    with pytest.raises(InputError, match="no protocol"):
        open_stream(CORE50, wrong)


def test_impossible_parameters_name_the_bound() -> None:
    for batches in (-1, 0, 1, 392, 10**9):
        with pytest.raises(InputError, match="from 2 to 391"):
            nicv2(CORE50, batches)
    for last in (-1, 0, 1, 391):
        with pytest.raises(InputError, match="to 390"):
            nicv2(CORE50, 391, max_start=last)
    with pytest.raises(InputError, match="from 1 to 391"):
        nicv2(CORE50, 391, max_start=392, method="paper")
    with pytest.raises(InputError, match=r"\[50\]"):
        nicv2(CORE50, first=[0, 50])
    for first in ([], [1, 1]):
        with pytest.raises(InputError, match="each once"):
            nicv2(CORE50, first=first)
    with pytest.raises(InputError, match="method"):
        nicv2(CORE50, method="other")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no training sessions"):
        ni(shaped([0]))


def test_without_categories_batch_1_has_a_fifth_of_the_classes() -> None:
    stream = nicv2(shaped([4] * 43))
    assert [session.label for session in stream.batches[0]] == list(range(8))
    assert len(stream) == 43 * 4 - 8 + 1


def test_slices() -> None:
    stream = nicv2(CORE50, 79, 1)
    part = stream[5:7]
    assert part.batches == (stream.batches[5], stream.batches[6])
    assert part[0].labels.tolist() == stream[5].labels.tolist()


def test_train_and_test_frames_are_disjoint() -> None:
    stream = nicv2(CORE50, 196, 0)
    trained = np.concatenate([stream[i].images.indices for i in range(len(stream))])
    assert len(trained) == len(np.unique(trained)) == 800
    assert not set(trained.tolist()) & set(stream.test().images.indices.tolist())


def test_a_data_set_without_test_sessions_says_so() -> None:
    data = DataSet("bare", CORE50.frames, CORE50.train, (), CORE50.classes, CORE50.categories)
    with pytest.raises(InputError, match="bare"):
        ni(data).test()


def labels_of(stream: Stream) -> list[set[int]]:
    return [{session.label for session in batch} for batch in stream.batches]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 4), min_size=2, max_size=30),
    st.integers(1, 12),
    st.integers(1, 12),
    st.sampled_from(["random", "given", "icarl"]),
    st.integers(0, 3),
)
def test_class_incremental_brings_each_class_once_and_whole(
    counts: list[int], each: int, first: int, order: str, run: int
) -> None:
    data = shaped(counts)
    each, first = min(each, len(counts)), min(first, len(counts))
    made = class_incremental(data, run, classes_per_batch=each, first=first, order=order)
    check_each_once(made)
    groups = labels_of(made)
    assert len(groups[0]) == first
    assert all(len(group) == each for group in groups[1:-1])
    assert sum(map(len, groups)) == len(counts)  # no class comes twice
    if order == "given":
        assert sorted(groups[0]) == list(range(first))


def test_class_incremental_by_default_has_a_tenth_of_the_classes_per_batch() -> None:
    assert [len(group) for group in labels_of(class_incremental(shaped([1] * 100)))] == [10] * 10
    assert [len(group) for group in labels_of(class_incremental(shaped([1] * 5)))] == [2, 2, 1]
    other = labels_of(class_incremental(shaped([1] * 100), run=1))
    assert other != labels_of(class_incremental(shaped([1] * 100)))


def test_the_order_of_icarl_is_the_published_one() -> None:
    """The first classes of CIFAR-100 as iCaRL's followers print them (seed 1993)."""
    made = class_incremental(shaped([1] * 100), classes_per_batch=1, order="icarl")
    first = [batch[0].label for batch in made.batches[:10]]
    assert first == [68, 56, 78, 8, 23, 84, 90, 65, 74, 76]


def test_domain_incremental_brings_all_classes_of_a_session_number() -> None:
    made = domain_incremental(CORE50)
    check_each_once(made)
    assert [{s.number for s in batch} for batch in made.batches] == [{n} for n in TRAINING]
    assert all(len(batch) == 50 for batch in made.batches)
    pairs = domain_incremental(CORE50, domains_per_batch=3)
    assert [len({s.number for s in batch}) for batch in pairs.batches] == [3, 3, 2]
    orders = {
        tuple(b[0].number for b in domain_incremental(CORE50, run, order="random").batches)
        for run in range(5)
    }
    assert len(orders) == 5
    assert all(sorted(order) == list(TRAINING) for order in orders)


def test_nicv2_takes_the_number_of_classes_of_batch_1() -> None:
    made = nicv2(CORE50, 50, first=20)
    check_each_once(made)
    labels = [session.label for session in made.batches[0]]
    assert Counter(label // 5 for label in labels) == dict.fromkeys(range(10), 2)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("NICv2_391", "nicv2-391"),
        ("nicv2:batches=391", "nicv2-391"),
        ("nicv2-50:max_start=40,first=20", "nicv2-50:first=20,max_start=40"),
        ("nc:each=5,first=10", "nc:first=10,each=5"),
        ("class-incremental:first=50, classes_per_batch=10", None),
        ("domain-incremental:order=random", "domain-incremental:order=random"),
        ("ni", "ni"),
        ("my.module_of_a_test:Drift", "my.module_of_a_test:Drift"),
        ("my_module_of_a_test:drift:z=a, a=2", "my_module_of_a_test:drift:a=2,z=a"),
    ],
)
def test_a_protocol_has_one_text(text: str, canonical: str | None) -> None:
    found = str(parse_protocol(text))
    assert found == (canonical or "class-incremental:classes_per_batch=10,first=50")
    assert str(parse_protocol(found)) == found


def test_the_text_of_a_protocol_says_what_its_function_is_given() -> None:
    by_text = open_stream(CORE50, "class-incremental:first=20,classes_per_batch=15", 3)
    by_call = class_incremental(CORE50, 3, first=20, classes_per_batch=15)
    assert by_text.batches == by_call.batches
    assert [len(group) for group in labels_of(by_text)] == [20, 15, 15]
    assert (
        open_stream(CORE50, "nc:first=20,each=15").batches == nc(CORE50, first=20, each=15).batches
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nicv3", "no protocol 'nicv3': there are ni, nc, nic, nicv2, class-incremental"),
        ("ni:first=3", "the protocol ni has no parameter 'first'; it has none"),
        ("nc:frist=3", "no parameter 'frist'; it has first, each"),
        (
            "class-incremental:first=many",
            "first of class-incremental is a whole number; got 'many'",
        ),
        ("class-incremental:order=3", "order of class-incremental is a word; got 3"),
        ("class-incremental:first=3,first=4", "gives first twice"),
        ("nicv2-3:batches=4", "gives the number of batches twice"),
        ("class-incremental:first=51", "first must lie from 1 to 50"),
        ("class-incremental:classes_per_batch=0", "classes_per_batch must lie from 1 to 50"),
        ("class-incremental:order=mine", "order must be 'random', 'given' or 'icarl'; got 'mine'"),
        ("domain-incremental:domains_per_batch=9", "must lie from 1 to 8, the number of domains"),
        ("domain-incremental:order=icarl", "order must be 'given' or 'random'"),
        ("nicv2:first=0", "first must lie from 1 to 50"),
        ("nicv2:run=3", "no parameter 'run'"),
        ("nicv2:data=3", "no parameter 'data'"),
        ("blurry:tasks=51", "tasks must lie from 1 to 50, the number of classes"),
        ("blurry:disjoint=101", "disjoint must lie from 0 to 100, a percentage"),
        ("blurry:frames=3", "frames must lie from 1 to 2, the length of the longest session"),
        ("blurry:each=401", "each must lie from 1 to 400, the number of pieces"),
        ("nc:first", "first of nc is a whole number"),
        ("my_module_of_a_test:drift", "primavista.register"),
    ],
)
def test_a_wrong_protocol_is_explained(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_stream(CORE50, text)


def test_blurry_without_blur_is_five_tasks_in_random_order() -> None:
    made = blurry(CORE50, 3, disjoint=0, blurred=0)
    check_each_once(made)
    assert [len(batch) for batch in made.batches] == [1] * 400
    tasks = [made.batches[start : start + 80] for start in range(0, 400, 80)]
    labels = [{batch[0].label for batch in task} for task in tasks]
    assert [len(found) for found in labels] == [10] * 5
    assert len(set.union(*labels)) == 50
    # the sessions of a class do not come together
    assert [batch[0].label for batch in tasks[0]] != sorted(batch[0].label for batch in tasks[0])


def test_half_of_the_classes_of_blurry_stay_in_one_task() -> None:
    made = blurry(CORE50, disjoint=50, blurred=10)
    check_each_once(made)
    places: dict[int, list[int]] = defaultdict(list)
    for place, batch in enumerate(made.batches):
        places[batch[0].label].append(place)
    # 200 of 400 sessions are of classes that are not disjoint; 20 of them are moved, 4 per task
    span = {label: found[-1] - found[0] for label, found in places.items()}
    assert sum(length < 84 for length in span.values()) >= 25  # a task has about 80 sessions


def test_everything_moved_comes_in_any_task_evenly() -> None:
    data = shaped([4, 4])
    made = blurry(data, 1, tasks=2, disjoint=0, blurred=100)
    check_each_once(made)
    assert len(made) == 8
    assert {batch[0].label for batch in made.batches[:4]} == {0, 1}


def test_blurry_cuts_sessions_into_frames() -> None:
    data = shaped([2, 3])
    made = blurry(data, tasks=2, frames=1, each=4)
    assert [len(batch) for batch in made.batches] == [4, 4, 2]
    pieces = [one for batch in made.batches for one in batch]
    frames = [frame for one in pieces for frame in range(one.start, one.stop)]
    assert sorted(frames) == sorted(
        frame for one in data.train for frame in range(one.start, one.stop)
    )
    of = {frame: (s.label, s.number) for s in data.train for frame in range(s.start, s.stop)}
    assert all(of[one.start] == (one.label, one.number) for one in pieces)

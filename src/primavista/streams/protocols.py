"""Protocols order the training sessions of a data set into batches.

An order depends only on the data set, the parameters of the protocol and the number of the run.
`ni`, `nc` and `nic` are the protocols of CORe50 (2017); `nicv2` is that of the paper (section 3);
`class_incremental` and `domain_incremental` are used by most of the literature; `blurry` has no
tasks that the strategy could notice. Batches are counted from 0 in this module. A protocol may also
be a function of the user's own.
"""

from __future__ import annotations

import inspect
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from primavista.backbones.spec import OWN_FUNCTIONS
from primavista.errors import InputError
from primavista.storage.references import is_reference, must_be_registered
from primavista.streams.dataset import DataSet, Session, Stream
from primavista.streams.nicv2 import paper_order, sampled_order

# The last batch in which the official orders introduce a class, by the number of batches.
MAX_START = {79: 68, 196: 165, 391: 340}
MAX_START_SHARE = 0.86  # for other numbers of batches, as a fraction of them
ICARL_SEED = 1993  # seed of the class order in iCaRL's code and in papers that compare with it
Queues = dict[int, list[Session]]
Parameter = int | str


@dataclass(frozen=True)
class Protocol:
    """A protocol by name, with its parameters, independent of a data set.

    Plans, results and the command line write it as a text, such as
    "class-incremental:classes_per_batch=10,first=50". Texts with the same meaning have one
    canonical form, `str(self)`.

    Args:
        name: A key of `PROTOCOLS`, or the reference `package.module:function` to a function of your
            own: `function(data, run, **parameters)` returns the batches, each a list of training
            sessions or of parts of them.
        parameters: Arguments of the function with that name: those that were given, or that differ
            from its defaults.
    """

    name: str
    parameters: Mapping[str, Parameter]

    def __str__(self) -> str:
        given = dict(self.parameters)
        name = self.name
        if name == "nicv2" and "batches" in given:
            name = f"nicv2-{given.pop('batches')}"
        values = ",".join(f"{key}={value}" for key, value in given.items())
        return f"{name}:{values}" if values else name

    def stream(self, data: DataSet, run: int = 0) -> Stream:
        """Generate a stream.

        Args:
            data: Any data set.
            run: The number of the random order.

        Returns:
            The stream; equal arguments give equal orders.

        Raises:
            InputError: If a parameter is out of range, or the data set lacks what the protocol
                needs, or if a function of your own is not registered or returns anything else.
        """
        if self.name in PROTOCOLS:
            return PROTOCOLS[self.name](data, run=run, **self.parameters)
        if self.name not in OWN_FUNCTIONS:
            raise InputError(must_be_registered(self.name))
        batches = OWN_FUNCTIONS[self.name](data, run, **self.parameters)
        _check_batches(batches, data, self.name)
        return Stream(data, batches, str(self), run)


def parse_protocol(text: str, /, **parameters: Parameter) -> Protocol:
    """Read the text of a protocol, such as "nicv2-391" or "class-incremental:first=50".

    Args:
        text: The name, in upper or lower case, or the reference to a function of your own,
            optionally followed by a colon and parameters as "key=value", separated by commas.
        **parameters: Further parameters.

    Returns:
        The protocol; its parameters are in the order of the function's arguments.

    Raises:
        InputError: If there is no such protocol or parameter, or if a value has the wrong type.

    >>> str(parse_protocol("Class_Incremental:first=50,classes_per_batch=10"))
    'class-incremental:classes_per_batch=10,first=50'
    >>> str(parse_protocol("nicv2", batches=79))
    'nicv2-79'
    """
    name = name_in(text)
    _, _, rest = text[len(name) if is_reference(name) else 0 :].partition(":")
    given = {**parameters, **written_values(rest, text, parameters)}
    if is_reference(name):
        _check_call(name, given)
        return Protocol(name, dict(sorted(given.items())))
    if match := re.fullmatch(r"nicv2-(\d{1,9})", name):
        if "batches" in given:
            raise InputError(f"the protocol '{text}' gives the number of batches twice")
        name, given = "nicv2", {"batches": int(match[1]), **given}
    if name not in PROTOCOLS:
        raise InputError(
            f"no protocol '{text}': there are {', '.join(PROTOCOLS)}; nicv2-391 has 391 batches, "
            "class-incremental:first=50,classes_per_batch=10 shows how parameters are written, "
            "and my_package.my_module:my_function names one of your own"
        )
    return Protocol(name, _checked(name, given))


def name_in(text: str) -> str:
    """Return the name in the text of a protocol, or the reference to a function of your own.

    Args:
        text: The text, right or wrong.

    >>> name_in("NICv2_391"), name_in("my_module:drifting:speed=2")
    ('nicv2-391', 'my_module:drifting')
    """
    name = text.partition(":")[0].strip().lower().replace("_", "-")
    reference = ":".join(text.split(":", 2)[:2])
    return reference if name not in PROTOCOLS and is_reference(reference) else name


def written_values(
    values: str, text: str, others: Mapping[str, Parameter] | None = None
) -> dict[str, Parameter]:
    """Read values that are written as "key=value", separated by commas.

    Args:
        values: What to read.
        text: The text that contains them, for messages.
        others: Values that are given elsewhere.

    Returns:
        The values, as integers where possible.

    Raises:
        InputError: If a value is given twice.

    >>> written_values("first=50,order=icarl", "class-incremental:first=50,order=icarl")
    {'first': 50, 'order': 'icarl'}
    """
    found: dict[str, Parameter] = {}
    for part in filter(None, values.split(",")):
        key, _, value = (piece.strip() for piece in part.partition("="))
        if key in found or key in (others or {}):
            raise InputError(f"'{text}' gives {key} twice: give it once")
        found[key] = int(value) if re.fullmatch(r"-?\d{1,20}", value) else value
    return found


def _checked(name: str, given: Mapping[str, Parameter]) -> dict[str, Parameter]:
    """Return the parameters in the order of the function's arguments; reject wrong ones."""
    kinds = _parameters(name)
    unknown = [key for key in given if key not in kinds]
    if unknown:
        taken = ", ".join(kinds) or "none"
        raise InputError(
            f"the protocol {name} has no parameter {', '.join(map(repr, unknown))}; it has {taken}"
        )
    for key, value in given.items():
        if type(value) is not kinds[key]:
            kind = "a whole number" if kinds[key] is int else "a word"
            raise InputError(f"the parameter {key} of {name} is {kind}; got {value!r}")
    return {key: given[key] for key in kinds if key in given}


def _check_call(reference: str, given: Mapping[str, Parameter]) -> None:
    """Reject parameters that a function of the user's own, if it is registered, does not have."""
    function = OWN_FUNCTIONS.get(reference)
    if function is not None:
        try:
            inspect.signature(function).bind(None, 0, **given)
        except TypeError as error:
            raise InputError(
                f"the protocol {reference} cannot be called with (data, run"
                f"{''.join(f', {key}={value!r}' for key, value in given.items())}): {error}"
            ) from error


def _check_batches(batches: Sequence[Sequence[Session]], data: DataSet, name: str) -> None:
    """Reject what a function of the user's own returned unless it is batches of training frames."""
    spans: dict[int, list[tuple[int, int]]] = {}
    for session in data.train:
        spans.setdefault(session.label, []).append((session.start, session.stop))
    if not isinstance(batches, Sequence) or not batches or not all(batches):
        raise InputError(f"the protocol {name} must return a list of batches, none of them empty")
    for number, batch in enumerate(batches, 1):
        for one in batch:
            found = spans.get(one.label, []) if isinstance(one, Session) else []
            if not any(start <= one.start < one.stop <= stop for start, stop in found):
                raise InputError(
                    f"batch {number} of the protocol {name} has {one!r}, which is neither a "
                    "training session of the data set nor a part of one"
                )


def _parameters(name: str) -> dict[str, type]:
    """Return the parameters of a protocol that a text can give, with their types."""
    arguments = inspect.signature(PROTOCOLS[name]).parameters.values()
    return {
        one.name: int if str(one.annotation).startswith("int") else str
        for one in arguments
        if one.name not in ("data", "run")
    }


def class_incremental(
    data: DataSet,
    run: int = 0,
    *,
    classes_per_batch: int | None = None,
    first: int | None = None,
    order: Literal["random", "given", "icarl"] = "random",
) -> Stream:
    """Class-incremental learning: each batch holds all training frames of some new classes.

    Unlike `nc`, it does not spread batch 1 over the categories. "50 classes, then 10 at a time" of
    CIFAR-100 is `first=50, classes_per_batch=10`. The last batch takes the remaining classes.

    Args:
        data: Any data set with two classes or more.
        run: The number of the random order.
        classes_per_batch: The number of classes in each batch except the first; by default a tenth
            of the classes, and at least two.
        first: The number of classes in batch 1; `classes_per_batch` by default.
        order: The order of the classes. "random" differs from run to run; "given" is that of the
            data set, in every run; "icarl" is numpy's permutation with the seed 1993 + run, which
            in run 0 is the order of iCaRL (Rebuffi et al. 2017) and of the papers that compare
            with it.

    Returns:
        The stream.

    Raises:
        InputError: If a parameter is out of range.
    """
    queues = _queues(data)
    labels = list(queues)
    tenth = min(len(labels), max(2, len(labels) // 10))
    each = tenth if classes_per_batch is None else classes_per_batch
    opening = each if first is None else first
    _check_range("classes_per_batch", each, len(labels), "the number of classes")
    _check_range("first", opening, len(labels), "the number of classes")
    if order == "random":
        random.Random(f"class-incremental/{run}").shuffle(labels)
    elif order == "icarl":
        positions = np.random.RandomState(ICARL_SEED + run).permutation(len(labels))
        labels = [labels[i] for i in positions.tolist()]
    elif order != "given":
        raise InputError(f"order must be 'random', 'given' or 'icarl'; got {order!r}")
    groups = _groups(labels, opening, each)
    batches = [[session for label in group for session in queues[label]] for group in groups]
    return Stream(data, batches, "class-incremental", run)


def domain_incremental(
    data: DataSet,
    run: int = 0,
    *,
    domains_per_batch: int = 1,
    order: Literal["given", "random"] = "given",
) -> Stream:
    """Domain-incremental learning: each batch holds all classes in some new domain.

    A domain is a session number: a place of CORe50, a period of CLEAR-10.

    Args:
        data: A data set with two session numbers or more.
        run: The number of the random order.
        domains_per_batch: The number of domains in each batch; the last batch takes the rest.
        order: "given" orders the domains by their numbers in every run, for example the periods of
            CLEAR-10 by time; "random" permutes them, like `ni`.

    Returns:
        The stream.

    Raises:
        InputError: If the data set has one session number only, or a parameter is out of range.
    """
    by_number = _by_number(data)
    numbers = sorted(by_number)
    if len(numbers) < 2:
        raise InputError(
            f"the data set '{data.name}' has one session per class, so that it has one domain: "
            "domain-incremental needs two or more. Choose class-incremental, or other data"
        )
    _check_range("domains_per_batch", domains_per_batch, len(numbers), "the number of domains")
    if order == "random":
        random.Random(f"domain-incremental/{run}").shuffle(numbers)
    elif order != "given":
        raise InputError(f"order must be 'given' or 'random'; got {order!r}")
    groups = _groups(numbers, domains_per_batch, domains_per_batch)
    batches = [[session for number in group for session in by_number[number]] for group in groups]
    return Stream(data, batches, "domain-incremental", run)


def ni(data: DataSet, run: int = 0) -> Stream:
    """New instances (NI): each batch holds all classes of one session number.

    Args:
        data: Any data set.
        run: The number of the random order; it permutes the session numbers.

    Returns:
        A stream with as many batches as there are session numbers.
    """
    by_number = _by_number(data)
    numbers = sorted(by_number)
    random.Random(f"ni/{run}").shuffle(numbers)
    return Stream(data, [by_number[number] for number in numbers], "ni", run)


def nc(data: DataSet, run: int = 0, *, first: int | None = None, each: int | None = None) -> Stream:
    """New classes (NC): all sessions of a class come at once.

    Batch 1 has as many categories as possible. The last batch takes the remaining classes.

    Args:
        data: Any data set.
        run: The number of the random order.
        first: The number of classes in batch 1. By default it is the number of categories (10 for
            CORe50), or a fifth of the classes if no category has two.
        each: The number of classes in each later batch; half of `first` by default (5).

    Returns:
        The stream.

    Raises:
        InputError: If `first` or `each` is out of range.
    """
    queues = _queues(data)
    opening = len(_opening(data, queues)) if first is None else first
    step = max(1, opening // 2) if each is None else each
    _check_range("first", opening, len(queues), "the number of classes")
    if step < 1:
        raise InputError(f"each must be 1 or more; got {step}")
    labels = list(queues)
    draw = random.Random(f"nc/{run}")
    draw.shuffle(labels)
    head = _spread(labels, data.categories)[:opening]
    tail = [label for label in labels if label not in set(head)]
    groups = _groups([*head, *tail], opening, step)
    batches = [[s for label in sorted(group) for s in queues[label]] for group in groups]
    return Stream(data, batches, "nc", run)


def nic(data: DataSet, run: int = 0, *, classes: int | None = None) -> Stream:
    """New instances and classes (NIC, 2017): batch 1 as in NICv2, then the other sessions shuffled.

    No batch has two sessions of one class. If the sessions do not divide evenly, batches differ by
    one session, larger ones first.

    Args:
        data: Any data set.
        run: The number of the random order.
        classes: The number of classes in each later batch; by default half of those in batch 1 (5).

    Returns:
        The stream.

    Raises:
        InputError: If `classes` is out of range.
    """
    queues = _queues(data)
    order = [[queues[label].pop(0) for label in _opening(data, queues)]]
    classes = max(1, len(order[0]) // 2) if classes is None else classes
    draw = random.Random(f"nic/{run}")
    for queue in queues.values():
        draw.shuffle(queue)
    rest, longest = sum(map(len, queues.values())), max(map(len, queues.values()))
    if classes < 1:
        raise InputError(f"classes must be 1 or more; got {classes}")
    left = -(-rest // classes)
    if longest > left:
        most = (rest - 1) // (longest - 1) if longest > 1 else rest
        raise InputError(
            f"a class has {longest} sessions after batch 1, more than the {left} batches of "
            f"{classes} classes: choose classes from 1 to {most}"
        )
    for batches in range(left, 0, -1):
        size = -(-sum(map(len, queues.values())) // batches)
        chosen = _distinct(queues, size, batches, draw)
        order.append(sorted((queues[label].pop() for label in chosen), key=_key))
    return Stream(data, order, "nic", run)


def blurry(
    data: DataSet,
    run: int = 0,
    *,
    tasks: int = 5,
    disjoint: int = 50,
    blurred: int = 10,
    frames: int | None = None,
    each: int = 1,
) -> Stream:
    """i-Blurry (Koh et al. 2022): a stream without tasks, because they run into one another.

    The classes are dealt at random to `tasks` tasks. Of the classes that are not disjoint,
    `blurred` percent of the pieces are moved to tasks that are drawn evenly. The pieces of a task
    are shuffled, and the batches are cut from the whole sequence. A piece is a session, or a part
    of one, so that frames of one video need not come together.

    Args:
        data: Any data set.
        run: The number of the random order.
        tasks: The number of tasks.
        disjoint: The percentage of classes that come in one task only (N in i-Blurry-N-M).
        blurred: The percentage of pieces of the other classes that are moved (M).
        frames: Cut each session into pieces of at most so many frames.
        each: The number of pieces in a batch.

    Returns:
        The stream.

    Raises:
        InputError: If a parameter is out of range.
    """
    queues = _queues(data)
    labels = list(queues)
    _check_range("tasks", tasks, len(labels), "the number of classes")
    _check_range("disjoint", disjoint, 100, "a percentage", least=0)
    _check_range("blurred", blurred, 100, "a percentage", least=0)
    longest = max(map(len, data.train))
    size = longest if frames is None else frames
    _check_range("frames", size, longest, "the length of the longest session")
    draw = random.Random(f"blurry/{run}")
    draw.shuffle(labels)
    pieces = {
        label: [
            Session(label, one.number, start, min(start + size, one.stop))
            for one in queues[label]
            for start in range(one.start, one.stop, size)
        ]
        for label in labels
    }
    _check_range("each", each, sum(map(len, pieces.values())), "the number of pieces")
    apart = len(labels) * disjoint // 100
    parts = [
        [one for label in labels[:apart][k::tasks] for one in pieces[label]] for k in range(tasks)
    ]
    mixed = [
        (k, one)
        for k in range(tasks)
        for label in labels[apart:][k::tasks]
        for one in pieces[label]
    ]
    draw.shuffle(mixed)
    moved = len(mixed) * blurred // 100
    for position, (task, one) in enumerate(mixed):
        parts[position % tasks if position < moved else task].append(one)
    for part in parts:
        draw.shuffle(part)
    order = [one for part in parts for one in part]
    batches = [order[start : start + each] for start in range(0, len(order), each)]
    return Stream(data, batches, "blurry", run)


def nicv2(
    data: DataSet,
    batches: int | None = None,
    run: int = 0,
    *,
    first: int | Sequence[int] | None = None,
    max_start: int | None = None,
    method: Literal["statistics", "paper"] = "statistics",
) -> Stream:
    """NICv2 (paper, section 3): batch 1 has one class per category, later batches few sessions.

    If the sessions do not divide evenly, batches differ by one session, spread evenly.

    Args:
        data: Any data set.
        batches: The number of batches. By default each later batch has one session.
        run: The number of the random order.
        first: The labels of batch 1, or how many classes it has, spread over the categories. By
            default it is the first class of each category, or the first fifth of the classes if no
            category has two.
        max_start: The last batch, counted from 0, in which a class may be introduced. With
            `method="paper"` it is the largest insertion point, counted from 1.
        method: "statistics" reproduces the statistics of the official orders (`sampled_order`).
            "paper" is Algorithm 3 to the letter (`paper_order`), which places no later session of
            the classes of batch 1. If `max_start` is the last batch in which the official orders
            introduce a class, it nearly always ends in a state in which no batch has room, which is
            an error here instead of an endless loop.

    Returns:
        The stream. With `method="paper"`, batches that stay empty are left out.

    Raises:
        InputError: If an argument is out of range, or the data set has too few sessions.
    """
    queues = _queues(data)
    opening = _opening(data, queues) if first is None else _check_first(first, queues, data)
    count = _batch_count(batches, queues, opening, data.name)
    last = MAX_START.get(count, round(MAX_START_SHARE * count))
    if max_start is not None:
        last = max_start
    draw = random.Random(f"nicv2/{count}/{run}")
    if method == "paper":
        order = paper_order(queues, opening, count, last, draw)
    elif method == "statistics":
        order = sampled_order(queues, opening, count, last, draw, exact=max_start is not None)
    else:
        raise InputError(f"method must be 'statistics' or 'paper'; got {method!r}")
    return Stream(data, order, f"nicv2-{count}", run)


def _batch_count(batches: int | None, queues: Queues, opening: Sequence[int], name: str) -> int:
    """Return the checked number of batches of NICv2; by default one session per later batch."""
    rest = sum(map(len, queues.values())) - len(opening)
    if not rest:
        raise InputError(
            f"no session remains after batch 1 in the data set '{name}': NICv2 needs more sessions"
        )
    count = rest + 1 if batches is None else batches
    if not 2 <= count <= rest + 1:
        raise InputError(
            f"batches must lie from 2 to {rest + 1}: {rest} sessions remain after batch 1; "
            f"got {count}"
        )
    return count


def _distinct(
    queues: Mapping[int, list[Session]], size: int, batches: int, draw: random.Random
) -> list[int]:
    """Draw `size` different classes, including all that need every remaining batch."""
    forced = [label for label, queue in queues.items() if len(queue) == batches]
    free = [label for label, queue in queues.items() if 0 < len(queue) < batches]
    while len(forced) < size:
        label = draw.choices(free, [len(queues[label]) for label in free])[0]
        free.remove(label)
        forced.append(label)
    return forced


def _spread(labels: Sequence[int], categories: Sequence[int]) -> list[int]:
    """Reorder labels so that each category comes once before any comes twice."""
    rank: dict[int, int] = {}
    turns: list[tuple[int, int]] = []
    for position, label in enumerate(labels):
        rank[categories[label]] = rank.get(categories[label], 0) + 1
        turns.append((rank[categories[label]], position))
    return [labels[position] for _, position in sorted(turns)]


def _groups(items: Sequence[int], first: int, each: int) -> list[list[int]]:
    """Split a sequence: `first` items, then `each` at a time; the last group takes the rest."""
    rest = items[first:]
    return [list(items[:first])] + [list(rest[i : i + each]) for i in range(0, len(rest), each)]


def _check_range(name: str, value: int, most: int, what: str, least: int = 1) -> None:
    if not least <= value <= most:
        raise InputError(f"{name} must lie from {least} to {most}, {what}; got {value}")


def _by_number(data: DataSet) -> dict[int, list[Session]]:
    """Return the training sessions of each session number, by class."""
    found: dict[int, list[Session]] = {}
    for session in _sorted(data):
        found.setdefault(session.number, []).append(session)
    return found


def _key(session: Session) -> tuple[int, int, int]:
    return session.number, session.label, session.start


def _sorted(data: DataSet) -> list[Session]:
    if not data.train:
        raise InputError(
            f"the data set '{data.name}' has no training sessions: a protocol needs at least one"
        )
    return sorted(data.train, key=_key)


def _queues(data: DataSet) -> Queues:
    """Return the training sessions of each class; classes and sessions ascend."""
    queues: Queues = {}
    for session in _sorted(data):
        queues.setdefault(session.label, []).append(session)
    return dict(sorted(queues.items()))


def _opening(data: DataSet, queues: Queues) -> list[int]:
    """Return the first class of each category, or a fifth of the classes if no category has two."""
    firsts: dict[int, int] = {}
    for label in queues:
        firsts.setdefault(data.categories[label], label)
    if len(firsts) == len(queues):
        return list(queues)[: max(2, len(queues) // 5)]
    return list(firsts.values())


def _check_first(first: int | Sequence[int], queues: Queues, data: DataSet) -> list[int]:
    if isinstance(first, int):
        _check_range("first", first, len(queues), "the number of classes")
        return sorted(_spread(list(queues), data.categories)[:first])
    labels = [int(label) for label in first]
    if not labels or len(set(labels)) < len(labels):
        raise InputError(f"first must name at least one class, and each once; got {labels}")
    if missing := [label for label in labels if label not in queues]:
        raise InputError(
            f"first names classes {missing}, which have no training sessions; "
            f"there are {list(queues)}"
        )
    return labels


# By the name that plans, results and the command line use.
PROTOCOLS: dict[str, Callable[..., Stream]] = {
    "ni": ni,
    "nc": nc,
    "nic": nic,
    "nicv2": nicv2,
    "class-incremental": class_incremental,
    "domain-incremental": domain_incremental,
    "blurry": blurry,
}

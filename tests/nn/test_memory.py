"""The bounded memory of patterns: its limit, its bytes, what it forgets and what it refuses."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from primavista.errors import InputError
from primavista.nn.memory import Memory, memories


def numbered(labels: list[int]) -> dict[str, torch.Tensor]:
    """Fields from which each pattern can be told: its frame and its outputs hold its label."""
    values = torch.tensor(labels, dtype=torch.int64)
    return {
        "frames": values.to(torch.uint8)[:, None, None, None].expand(-1, 2, 2, 3).clone(),
        "logits": values[:, None] * torch.tensor([1.0, 10.0, 100.0]),
    }


def made(limit: int = 4) -> Memory:
    frames, logits = torch.zeros(0, 2, 2, 3, dtype=torch.uint8), torch.zeros(0, 3)
    return Memory(limit, per_class=["logits"], frames=frames, logits=logits)


def test_the_bytes_of_a_pattern_are_its_frame_its_outputs_and_its_label():
    """2 x 2 x 3 bytes, three floats of 4 bytes, and a label of 8."""
    memory = made(limit=4)
    assert (len(memory), memory.bytes, memory.most_bytes) == (0, 0, 4 * (12 + 12 + 8))
    memory.store(torch.tensor([5, 6, 5]), **numbered([5, 6, 5]))
    assert (len(memory), memory.bytes) == (3, 3 * 32)


def test_forgetting_removes_the_patterns_of_a_class_and_dropping_its_column():
    memory = made()
    memory.store(torch.tensor([5, 6, 5, 7]), **numbered([5, 6, 5, 7]))
    memory.forget(5)
    memory.drop(1)
    assert memory.labels.tolist() == [6, 7]
    assert memory.fields["frames"][:, 0, 0, 0].tolist() == [6, 7]
    assert memory.fields["logits"].tolist() == [[6, 600], [7, 700]]


@pytest.mark.parametrize(
    ("labels", "fields", "words"),
    [
        ([1] * 5, numbered([1] * 5), "more than the limit of this memory, 4"),
        ([1, 2], numbered([1]), "2 patterns"),
        ([1], {"frames": numbered([1])["frames"]}, "keeps frames, logits"),
        ([1], {**numbered([1]), "more": torch.zeros(1)}, "keeps frames, logits"),
        ([1], {**numbered([1]), "frames": torch.zeros(1, 2, 3, 3)}, "frames has shape"),
        ([1], {**numbered([1]), "logits": torch.zeros(1, 3, 1)}, "logits has shape"),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(labels, fields, words):
    memory = made()
    memory.store(torch.tensor([9]), **numbered([9]))
    with pytest.raises(InputError, match=words):
        memory.store(torch.tensor(labels), **fields)
    assert memory.labels.tolist() == [9]
    assert memory.fields["logits"].tolist() == [[9, 90, 900]]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Memory(0, frames=torch.zeros(0, 2)),
        lambda: Memory(4, frames=torch.zeros(3, 2)),
        lambda: Memory(4, labels=torch.zeros(0)),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(make):
    with pytest.raises(InputError):
        make()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"labels": torch.arange(5), **numbered([1] * 5)}, "5 patterns, and its limit is 4"),
        ({"frames": numbered([1])["frames"]}, "2 patterns"),
        ({"labels": torch.tensor([3, -1])}, "label below 0"),
        ({"logits": torch.zeros(2, 3, 1)}, "logits has shape"),
        ({"labels": torch.tensor(3)}, "limit"),
    ],
)
def test_an_altered_state_is_refused(change, words):
    memory = made()
    memory.store(torch.tensor([5, 6]), **numbered([5, 6]))
    with pytest.raises(InputError, match=words):
        made().load_state_dict({**memory.state_dict(), **change})


def test_a_state_loads_at_any_length_and_any_number_of_classes():
    memory, other = made(), made()
    memory.store(torch.tensor([5, 6]), **{**numbered([5, 6]), "logits": torch.ones(2, 7)})
    other.load_state_dict(memory.state_dict())
    assert other.labels.tolist() == [5, 6]
    assert other.fields["logits"].shape == (2, 7)


def test_patterns_of_unknown_classes_are_found():
    memory = made()
    memory.store(torch.tensor([5, 6]), **numbered([5, 6]))
    memory.check_labels(torch.tensor([6, 1, 5]))
    assert memory.columns(torch.tensor([6, 1, 5])).tolist() == [2, 0]
    with pytest.raises(InputError, match="class 6"):
        memory.check_labels(torch.tensor([5]))


def test_every_memory_of_a_module_tree_is_found():
    tree = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Sequential(made(3)), made(4))
    assert [memory.limit for memory in memories(tree)] == [3, 4]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 8),
    st.lists(st.one_of(st.lists(st.integers(0, 5), max_size=10), st.integers(0, 5)), max_size=12),
)
def test_it_never_holds_more_than_its_limit_nor_anything_forgotten(limit, steps):
    """A list stores so many patterns; a number forgets a class. A plain list is the model."""
    memory, model = made(limit), []
    for step in steps:
        if isinstance(step, int):
            memory.forget(step)
            model = [label for label in model if label != step]
        elif len(step) <= limit:
            memory.store(torch.tensor(step, dtype=torch.int64), **numbered(step))
            model = step
        else:
            with pytest.raises(InputError):
                memory.store(torch.tensor(step), **numbered(step))
        assert memory.labels.tolist() == model
        assert memory.fields["frames"][:, 0, 0, 0].tolist() == model
        assert memory.bytes == 32 * len(model) <= memory.most_bytes == 32 * limit

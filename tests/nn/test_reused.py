"""What later batches use again on a GPU, with tensors that say where they are; no GPU is needed."""

from __future__ import annotations

import copy

import pytest
import torch

from primavista.engine.cuda_graph import ReusedOnGPU


class OnGPU:
    """A tensor of a GPU, as far as the cache looks at it."""

    is_cuda = True

    def __init__(self, address: int) -> None:
        self.address = address

    def data_ptr(self) -> int:
        return self.address


@pytest.fixture
def reused():
    cache = ReusedOnGPU()

    def get(kind, key, *addresses, most=2):
        head = [OnGPU(address) for address in addresses]
        return cache.get_or_make(kind, key, head, lambda: [kind, key], most)

    get.cache = cache
    return get


def test_a_later_batch_gets_what_an_earlier_one_made(reused):
    first = reused("sgd", (1, True), 10, 20)
    assert reused("sgd", (1, True), 10, 20) is first
    assert reused("sgd", (2, True), 10, 20) is not first
    assert reused("fisher", (1, True), 10, 20) is not first


def test_what_belongs_to_other_memory_is_made_again(reused):
    """The rows of a head that grows are elsewhere: a captured step would write to the old ones."""
    first = reused("sgd", (1,), 10, 20)
    assert reused("sgd", (1,), 10, 21) is not first
    assert reused("sgd", (1,), 10, 20) is first


def test_the_oldest_of_a_kind_is_dropped(reused):
    fisher = reused("fisher", (1,), 10, most=1)
    first, second = reused("sgd", (1,), 10), reused("sgd", (2,), 10)
    reused("sgd", (3,), 10)
    assert [key[:2] for key in reused.cache] == [("fisher", 1), ("sgd", 2), ("sgd", 3)]
    assert reused("sgd", (2,), 10) is second
    assert reused("sgd", (1,), 10) is not first
    assert reused("fisher", (1,), 10, most=1) is fisher


def test_on_a_cpu_it_is_always_made_and_nothing_is_kept():
    cache, tensors = ReusedOnGPU(), [torch.zeros(1)]
    made = [cache.get_or_make("sgd", (1,), tensors, object, 2) for _ in range(2)]
    assert made[0] is not made[1]
    assert not cache


def test_a_copy_of_its_owner_starts_with_none(reused):
    reused("sgd", (1,), 10)
    owner = copy.deepcopy({"cache": reused.cache})
    assert type(owner["cache"]) is ReusedOnGPU
    assert not owner["cache"]
    assert reused.cache

"""On a GPU: a recorded step gives the same numbers as one that is launched, and those of the CPU
within a tolerance.
"""

from __future__ import annotations

import pytest
import torch

from primavista.engine import cuda_graph
from primavista.strategies.builtin import STRATEGIES
from primavista.strategies.conformance import tiny_backbone
from primavista.strategies.creation import create

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
GRADIENT = ["naive", "lwf", "ewc", "cwr+", "cwr*", "ar1", "ar1*"]


def learned(name, device, **options):
    strategy = create(name, tiny_backbone(), **options).to(device)
    side = strategy.backbone.spec.size
    for i in range(6):
        generator = torch.Generator().manual_seed(i)
        frames = torch.randint(0, 256, (40, side, side, 3), generator=generator, dtype=torch.uint8)
        labels = torch.arange(40) % 3 if i == 0 else torch.full((40,), i % 4)
        strategy.learn(frames.to(device), labels)
    return {key: tensor.cpu() for key, tensor in strategy.state_dict().items()}, strategy


def captured_steps(strategy):
    """The training steps that were captured as CUDA graphs, each with one of its captures."""
    steps = [made._captured for key, made in strategy.gpu_cache.items() if key[0] == "sgd"]
    return [(step, capture) for step in steps for capture in step.graphs]


@pytest.fixture(autouse=True)
def _plain_arithmetic():
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.allow_tf32 = before


@pytest.mark.parametrize("options", [{}, {"norm": "bn"}, {"compat": "caffe"}], ids=str)
@pytest.mark.parametrize("name", GRADIENT)
def test_a_recorded_step_gives_the_same_bits(name, options, monkeypatch):
    recorded, strategy = learned(name, "cuda", minibatch=10, **options)
    assert captured_steps(strategy), "nothing was captured, so nothing was compared"
    monkeypatch.setattr(cuda_graph, "EAGER", 10**9)
    launched, _ = learned(name, "cuda", minibatch=10, **options)
    for key, tensor in recorded.items():
        assert torch.equal(tensor, launched[key]), key


@pytest.mark.parametrize("name", ["latent-replay-2020", "rehearsal"])
def test_one_graph_serves_all_minibatches_of_one_composition(name, monkeypatch):
    """The memory grows from batch to batch, and the minibatches stay as large as they are."""
    options = {"minibatch": 10, "new_patterns": 3}
    recorded, strategy = learned(name, "cuda", **options)
    assert len(captured_steps(strategy)) == 2  # one for batch 1, and one for the five after it
    monkeypatch.setattr(cuda_graph, "EAGER", 10**9)
    launched, _ = learned(name, "cuda", **options)
    for key, tensor in recorded.items():
        assert torch.equal(tensor, launched[key]), key


@pytest.mark.parametrize("name", sorted(set(STRATEGIES) - {"cumulative"}))
def test_the_gpu_gives_the_numbers_of_the_cpu(name):
    ours, theirs = learned(name, "cuda")[0], learned(name, "cpu")[0]
    for key, tensor in ours.items():
        if "importance" not in key:  # clipped sums of tiny products
            torch.testing.assert_close(tensor, theirs[key], rtol=2e-2, atol=2e-3, msg=key)


@pytest.mark.parametrize("name", GRADIENT)
def test_a_recorded_step_is_one_launch(name):
    """Besides the copies of the minibatch into the place where the recording reads it."""
    _, strategy = learned(name, "cuda", minibatch=10)
    step, capture = captured_steps(strategy)[0]
    inputs = [tensor.clone() for tensor in capture.inputs]
    torch.cuda.synchronize()
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA],
        acc_events=True,  # torch 2.11 warns without it
    ) as seen:
        step(*inputs)
        torch.cuda.synchronize()
    calls = {event.key: event.count for event in seen.key_averages()}
    assert calls.get("cudaGraphLaunch", 0) == 1, calls
    assert calls.get("cudaLaunchKernel", 0) + calls.get("cudaMemcpyAsync", 0) <= len(inputs), calls

"""Learners that version 0.1.0 saved load and continue bit for bit, and new ones learn the same.

`MENDED` lists the variants whose rules of learning changed since 0.1.0, and why. Their files load
and predict the same, and then learn by the rules of today.

The digests of `facts.json` were computed on one processor. On another the last bits of a sum may
differ: `machine()` tells, and then scores are compared with a tolerance and digests are not.
"""

from __future__ import annotations

import importlib.util
import json
import lzma
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from primavista import Learner, Prediction
from primavista.nn.renorm import norm_layers
from primavista.strategies.caffe import ReleasedBatchRenorm

HERE = Path(__file__).parent


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("legacy_make", HERE / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


make = script()
FACTS = json.loads((HERE / "facts.json").read_text())
LEARNERS = FACTS["learners"]
PENALTY = "the penalty goes through the momentum, so that the minimum is that of equation 4"
DECAYED = "norm scales, shifts and biases are not guarded"
RELEASE = "the authors' release is followed in more than version 0.1.0 knew: test_release.py"
MENDED = {
    "ewc": f"{PENALTY}; {DECAYED}",
    "ewc modulate": DECAYED,
    "ar1": PENALTY,
    "ar1 ratio": PENALTY,
    "cumulative": "it is trained until the loss is flat",
    **{f"{name} caffe": RELEASE for name in ("naive", "lwf", "ewc", "cwr*", "ar1*")},
}
# what a new learner has to be told to learn batch 1 as version 0.1.0 did: half of it was start-up,
# which is one of the two iterations of DSLDA here, and two of the four of AR1* (as today)
AS_BEFORE = {
    "ar1* batch 1": {"moments": "pretrained"},
    "dslda tune": {"moments": "pretrained", "startup": 1},
    "prima": {"rule": "frames"},
}
SCORES = 2e-3  # what other orders of additions may make of scores after twenty steps


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def exact() -> bool:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    same = make.machine() == FACTS["machine"]
    torch.set_num_threads(before)
    if not same:
        warnings.warn("other sums than on the machine of the facts: compared roughly", stacklevel=1)
    return bool(same)


def check_scores(found: Prediction, expected: dict[str, float], exact: bool) -> None:
    if exact:
        assert found.scores == expected
    else:
        assert found.scores == pytest.approx(expected, abs=SCORES)


def check_after(learner: Learner, facts: dict[str, object], exact: bool, folder: Path) -> None:
    """Teach the last two lessons and compare everything with the facts."""
    make.teach(learner, make.AFTER)
    found = learner.predict(make.frames(1)[0])
    check_scores(found, facts["scores_after"], exact)  # type: ignore[arg-type]
    learner.save(folder / "after.pv")
    digests = make.array_digests(folder / "after.pv")
    assert digests.keys() == facts["arrays_after"].keys()  # type: ignore[attr-defined]
    if exact:
        assert found.familiarity == facts["familiarity_after"]
        assert digests == facts["arrays_after"]


def has_old_option(content: bytes) -> bool:
    """Return True if the options in a file contain `past`, which is now `moments_decay`."""
    size = int.from_bytes(content[:8], "little")
    manifest = json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["primavista"])
    return "past" in manifest["manifest"]["strategy"]["options"]


def loaded(key: str, folder: Path) -> Learner:
    """Load a file, and check that it warns of nothing but the option that it names by its past."""
    content = lzma.decompress((HERE / make.file_of(key)).read_bytes())
    (folder / "before.pv").write_bytes(content)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        learner = Learner.load(folder / "before.pv", device="cpu", engine="torch")
    deprecated = [str(w.message) for w in told if w.category is DeprecationWarning]
    assert len(told) == len(deprecated)
    assert all("moments_decay" in message for message in deprecated)
    assert bool(deprecated) == has_old_option(content)
    return learner


@pytest.mark.filterwarnings("default:other sums")
@pytest.mark.parametrize("key", [key for key in make.KEPT if key not in MENDED])
def test_a_file_of_version_0_1_continues_bit_for_bit(key: str, exact: bool, tmp_path: Path) -> None:
    learner, facts = loaded(key, tmp_path), LEARNERS[key]
    check_scores(learner.predict(make.frames(1)[0]), facts["scores_before"], exact)
    check_after(learner, facts, exact, tmp_path)


@pytest.mark.filterwarnings("default:other sums")
@pytest.mark.parametrize("key", [key for key in make.KEPT if key in MENDED])
def test_a_file_of_version_0_1_continues_by_the_mended_rules(
    key: str, exact: bool, tmp_path: Path
) -> None:
    learner, facts = loaded(key, tmp_path), LEARNERS[key]
    check_scores(learner.predict(make.frames(1)[0]), facts["scores_before"], exact)
    make.teach(learner, make.AFTER)
    learner.save(tmp_path / "after.pv")
    digests = make.array_digests(tmp_path / "after.pv")
    assert digests.keys() == facts["arrays_after"].keys()
    assert digests != facts["arrays_after"]
    scores = learner.predict(make.frames(3)[0]).scores
    assert scores.keys() == {"mug", "kettle", "plate"}
    again = Learner.load(tmp_path / "after.pv", device="cpu", engine="torch")
    assert again.predict(make.frames(3)[0]).scores == scores


@pytest.mark.parametrize("key", ["ar1* caffe", "cwr* caffe"])
def test_a_minibatch_weighs_a_ten_thousandth_of_the_moments_in_a_file_of_the_release(
    key: str, tmp_path: Path
) -> None:
    """Version 0.1.0 divided by the weight that the moments had in batch 1, which was below 1."""
    learner = loaded(key, tmp_path)
    norm = next(norm_layers(learner.strategy.backbone))
    assert isinstance(norm, ReleasedBatchRenorm)
    before = norm.mu.double()
    ((k, label), *_) = make.AFTER
    lesson = make.frames(k)
    # the first convolution is fixed: its outputs have the same mean in all four epochs. One
    # minibatch of 128: the six frames 21 times, and the first two of them once more
    inputs: list[torch.Tensor] = []
    hook = norm.register_forward_pre_hook(lambda _, x: inputs.append(x[0]))
    learner.strategy.scores(torch.from_numpy(lesson))
    hook.remove()
    weights = torch.tensor([22.0, 22, 21, 21, 21, 21]) / 128
    mean = (torch.cat(inputs).mean((2, 3)) * weights[:, None]).double().sum(0)
    learner.learn(lesson, label)
    after = next(norm_layers(learner.strategy.backbone)).mu.double()
    share = ((after - before) @ (mean - before) / (mean - before).square().sum()).item()
    assert share == pytest.approx(1 - 0.9999**4, rel=1e-3)


@pytest.mark.filterwarnings("default:other sums")
@pytest.mark.filterwarnings("ignore:Cumulative stores every frame")
@pytest.mark.parametrize("key", [key for key in make.VARIANTS if key not in MENDED])
def test_a_new_learner_learns_what_version_0_1_learned(
    key: str, exact: bool, tmp_path: Path
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        learner = make.new_learner(key, **AS_BEFORE.get(key, {}))
    make.teach(learner, make.BEFORE)
    facts = LEARNERS[key]
    check_scores(learner.predict(make.frames(1)[0]), facts["scores_before"], exact)
    check_after(learner, facts, exact, tmp_path)


def test_a_file_of_version_0_1_can_be_undone(tmp_path: Path) -> None:
    content = lzma.decompress((HERE / make.file_of("prima")).read_bytes())
    (tmp_path / "prima.pv").write_bytes(content)
    learner = Learner.load(tmp_path / "prima.pv", device="cpu", engine="torch")
    assert learner.counts == {"mug": 12, "kettle": 6}
    learner.undo()
    assert learner.counts == {"mug": 6, "kettle": 6}

"""Strategies and backbones of the user's own: by reference, by name, in files, and refused."""

from __future__ import annotations

import importlib
import sys
import textwrap

import pytest
import torch
from torch import nn

import primavista as pv
from primavista.backbones.spec import OWN_FUNCTIONS
from primavista.networks.base import Backbone, build
from primavista.strategies import registry
from primavista.strategies.builtin import STRATEGIES
from primavista.strategies.conformance import tiny_backbone, toy_batch
from primavista.strategies.info import OTHER_LOOKS
from primavista.strategies.registry import look_of, register_all, registered

CODE = """
import torch
from torch import nn
from primavista import Look, StrategyInfo, build_backbone
from primavista.strategies.naive import Naive

RAN.append(__name__)


class Plain(Naive):
    pass


class Named(Naive):
    info = StrategyInfo("named-of-a-test", "Named!", look=Look("#123abc", "8"))


def net(width=4, size=0, seed=0):
    assert size
    torch.rand(seed)
    return nn.Sequential(nn.Conv2d(3, width, 3, 2, bias=False), nn.ReLU())


def normalised(size):
    return build_backbone(net(size=size), size=size, mean=(0.1, 0.2, 0.3))


def of_one_size():
    return build_backbone(net(size=32), size=32)


def text():
    return "a network"


def broken():
    raise RuntimeError("no such weights")
"""


@pytest.fixture
def ran(tmp_path, monkeypatch):
    """A module of somebody's own in a folder of modules; the list says how often it was run."""
    found: list[str] = []
    monkeypatch.setitem(sys.modules, "ran_of_a_test", type(sys)("ran_of_a_test"))
    sys.modules["ran_of_a_test"].RAN = found
    text = "from ran_of_a_test import RAN\n" + CODE
    (tmp_path / "code_of_a_test.py").write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield found
    sys.modules.pop("code_of_a_test", None)


REFERENCE = "code_of_a_test:Plain"


def test_a_reference_is_imported_when_it_is_registered_and_not_before(ran):
    assert pv.strategy_info(REFERENCE).title == "Plain"
    with pytest.raises(pv.InputError, match=r"primavista\.register"):
        pv.create(REFERENCE, tiny_backbone())
    with pytest.raises(pv.InputError, match=r"primavista\.register"):
        pv.Learner(strategy=REFERENCE)
    with pytest.raises(pv.InputError, match=r"primavista\.register"):
        build("code_of_a_test:net")
    assert ran == []
    pv.register(REFERENCE)
    assert ran == ["code_of_a_test"]
    strategy = pv.create(REFERENCE, tiny_backbone(), lr=0.5)
    assert type(strategy).__name__ == "Plain"
    assert strategy.options.lr == 0.5


def test_a_class_is_known_by_its_name_and_its_reference(ran):
    made = pv.register("code_of_a_test:Named")
    assert pv.strategy_info("named-of-a-test") is made.info
    assert look_of(pv.strategy_info("code_of_a_test:Named")).colour == "#123abc"
    assert type(pv.create("named-of-a-test", tiny_backbone())) is made
    assert pv.register(made, "other-of-a-test") is made
    assert {"named-of-a-test", "other-of-a-test"} <= set(registry.names())


def test_another_process_registers_the_same_names(ran):
    pv.register("code_of_a_test:Named", "short")
    pv.register("code_of_a_test:net")
    references = {name: text for name, text in registered().items() if "code_of_a" in text}
    registry._OWN.clear()
    OWN_FUNCTIONS.clear()
    register_all(references)
    assert {"short", "code_of_a_test:Named"} <= set(registry.names())
    assert build("code_of_a_test:net", size=32).dim == 4


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("os", "is not a reference"),
        ("no_such_package.part:Plain", "there is no module 'no_such_package'"),
        ("code_of_a_test.part:Plain", "there is no module 'code_of_a_test.part'"),
        ("code_of_a_test:Nothing", "code_of_a_test has no Nothing"),
        ("code_of_a_test:RAN", "neither a strategy class nor a function"),
        ("fractions:Fraction", "neither a strategy class nor a function"),
        ("__main__:Nothing", "a module of its own"),
    ],
)
def test_what_cannot_be_registered_is_refused(ran, what, words):
    with pytest.raises(pv.InputError, match=words):
        pv.register(what)


def test_a_module_that_fails_is_refused_with_its_error(ran, tmp_path):
    (tmp_path / "broken_of_a_test.py").write_text("import no_such_thing_at_all")
    importlib.invalidate_caches()
    with pytest.raises(pv.InputError, match="broken_of_a_test cannot be imported: No module named"):
        pv.register("broken_of_a_test:Plain")


def test_a_module_is_found_in_the_working_folder(ran, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "beside_of_a_test.py").write_text("from code_of_a_test import Plain")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path / "here")
    assert pv.register("beside_of_a_test:Plain").__name__ == "Plain"
    sys.modules.pop("beside_of_a_test")


@pytest.mark.parametrize("name", ["ar1*", "mobilenet_v1", "a:b", ""])
def test_names_that_are_taken_or_not_names_are_refused(ran, name):
    made = pv.register(REFERENCE)
    with pytest.raises(pv.InputError):
        pv.register(made, name)


def test_a_name_cannot_be_taken_from_another_class_but_a_class_can_be_defined_again(ran):
    pv.register("code_of_a_test:Plain", "short")
    with pytest.raises(pv.InputError, match="taken by code_of_a_test:Plain"):
        pv.register("code_of_a_test:Named", "short")
    sys.modules.pop("code_of_a_test")
    again = pv.register("code_of_a_test:Plain", "short")
    assert type(pv.create("short", tiny_backbone())) is again


def test_every_strategy_has_a_colour_of_its_own(ran):
    ours = [look_of(info).colour for info in STRATEGIES.values()]
    others = [look.colour for look in OTHER_LOOKS]
    assert len({*ours, *others}) == len(ours) + len(others)
    names = [f"mine-{k}" for k in range(len(OTHER_LOOKS))]
    for name in names:
        pv.register(type(name, (pv.Strategy,), {"__module__": name}), name)
    assert len({look_of(pv.strategy_info(name)) for name in names}) == len(names)


def test_an_own_strategy_that_rehearses_says_so(ran):
    made = type("Keeps", (pv.Strategy,), {"rehearsal_free": False})
    pv.register(made, "keeps")
    assert pv.strategy_info("keeps").title == "keeps (rehearses)"
    assert not pv.strategy_info("keeps").rehearsal_free


# ---- backbones


def test_a_function_makes_a_backbone_with_its_options_size_and_seed(ran):
    pv.register("code_of_a_test:net")
    one = build("code_of_a_test:net", size=32, width=16, seed=3)  # which is no factor here
    same = build("code_of_a_test:net", size=32, width=16, seed=3)
    other = build("code_of_a_test:net", size=32, width=16, seed=4)
    assert (one.dim, one.spec.name, one.spec.options) == (16, "code_of_a_test:net", {"width": 16})
    frames = toy_batch([0, 1])[0]
    assert one(frames).equal(same(frames))
    assert not one(frames).equal(other(frames))


def test_a_function_may_say_how_frames_are_normalised(ran):
    pv.register("code_of_a_test:normalised")
    made = build("code_of_a_test:normalised", size=48)
    assert isinstance(made, Backbone)
    assert made.spec.mean == (0.1, 0.2, 0.3)
    assert made.spec.size == 48


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("net", {"depth": 3}, "net has no option depth: it has width"),
        ("net", {"weights": "random"}, "gives its module weights itself"),
        ("text", {}, "returned str"),
        ("broken", {}, "RuntimeError: no such weights"),
        ("of_one_size", {"size": 64}, "for 32 px, and the frames have 64 px"),
    ],
)
def test_a_function_that_does_not_serve_is_refused(ran, name, settings, words):
    pv.register(f"code_of_a_test:{name}")
    with pytest.raises(pv.InputError, match=words):
        build(f"code_of_a_test:{name}", **settings)


def test_a_function_takes_the_weights_of_a_file(ran, tmp_path):
    from safetensors.torch import save_file

    pv.register("code_of_a_test:net")
    weight = torch.full((4, 3, 3, 3), 0.25)
    save_file({"0.weight": weight}, tmp_path / "w.safetensors")
    made = build("code_of_a_test:net", str(tmp_path / "w.safetensors"), size=32)
    assert made.body.state_dict()["0.weight"].equal(weight)


# ---- files


@pytest.fixture
def saved(ran, tmp_path):
    """The file of a learner with a strategy and a backbone by reference."""
    pv.register(REFERENCE)
    pv.register("code_of_a_test:net")
    learner = pv.Learner(strategy=REFERENCE, backbone="code_of_a_test:net", size=32)
    frames = toy_batch([0] * 4 + [1] * 4)[0]
    learner.learn(frames[:4], "cup")
    learner.learn(frames[4:], "mug")
    learner.save(tmp_path / "mine.pv")
    return tmp_path / "mine.pv", learner


def test_a_file_is_loaded_with_code_that_was_registered(saved):
    path, learner = saved
    frames = toy_batch([0, 1], seed=5)[0]
    loaded = pv.Learner.load(path)
    ours, theirs = (one.strategy.judge(frames).scores for one in (learner, loaded))
    assert (ours == theirs).all()
    assert loaded.strategy.settings.spec.name == "code_of_a_test:net"


@pytest.mark.parametrize("missing", ["strategy", "backbone"])
def test_a_file_alone_never_imports_code(saved, ran, missing):
    path, _ = saved
    registry._OWN.clear()
    OWN_FUNCTIONS.clear()
    sys.modules.pop("code_of_a_test")
    ran.clear()
    if missing == "backbone":
        pv.register(REFERENCE)
    seen = len(ran)
    with pytest.raises(pv.FileError, match=r'primavista\.register\("code_of_a_test:') as caught:
        pv.Learner.load(path)
    assert "--register code_of_a_test:net" in str(caught.value)
    assert ("--register code_of_a_test:Plain" in str(caught.value)) == (missing == "strategy")
    assert len(ran) == seen


def test_a_file_with_a_backbone_by_reference_loads_with_a_module_too(saved):
    path, learner = saved
    OWN_FUNCTIONS.clear()
    body = nn.Sequential(nn.Conv2d(3, 4, 3, 2, bias=False), nn.ReLU())
    loaded = pv.Learner.load(path, backbone=body)
    assert loaded.labels == learner.labels


def test_a_saved_plan_and_a_result_never_import_code(ran, tmp_path):
    from primavista.bench.plan import Plan, make_plan

    group = {"name": "g", "strategies": [REFERENCE], "protocols": ["nicv2"]}
    table = {"name": "p", "groups": [group], "backbone": {"name": "code_of_a_test:net"}}
    stored = Plan.model_validate(table)
    with pytest.raises(pv.InputError, match=r"primavista\.register"):
        stored.planned()
    made = make_plan(table)
    assert made.backbone.weights == "own"
    assert made.own_code == ["code_of_a_test:Plain", "code_of_a_test:net"]
    assert ran == []
    for reference in made.own_code:
        pv.register(reference)
    assert made.own_code == []
    assert ran == ["code_of_a_test"]

from __future__ import annotations

import pytest
import torch

from primavista.bench.data import open_cell_data
from primavista.bench.evaluate import TestSet
from primavista.bench.features import FeatureCache
from primavista.bench.plan import load_plan, make_plan, shipped
from primavista.errors import InputError
from primavista.strategies import registry
from primavista.strategies.builtin import RENORM
from primavista.strategies.creation import all_options
from primavista.strategies.registry import register, strategy_class
from primavista.streams.core50 import CORe50
from primavista.streams.dataset import DataSet
from primavista.streams.open import stream as open_stream
from primavista.streams.store import pack

GROUP = {"name": "g", "strategies": ["cwr*"], "protocols": ["nicv2-391"]}


def planned(**group):
    return make_plan({"name": "p", "device": "cpu", "groups": [{**GROUP, **group}]}).planned()


def test_a_plan_is_a_grid():
    found = planned(
        strategies=["cwr*", "ar1*"], protocols=["ni", "nic"], runs=3, variants=[{}, {"norm": "bn"}]
    )
    cells = [(p.cell.strategy, p.cell.protocol, p.cell.run, p.cell.options["norm"]) for p in found]
    assert len(cells) == len(set(cells)) == 2 * 2 * 3 * 2
    assert [p.cell.run for p in found] == sorted(p.cell.run for p in found)
    assert len({p.folder for p in found}) == len(found)


def test_options_are_resolved_whole():
    (one,) = planned(options={"lr": 0.5})
    assert one.cell.options["lr"] == 0.5
    assert one.cell.options["epochs"] == 4  # tab:hyper_core50, CWR*
    assert one.cell.options["r_max"] == RENORM["nicv2-391"]["r_max"] == 1.5
    assert one.cell.options["startup"] is None  # 48 iterations are CORe50's
    assert one.title == "cwr*, lr=0.5 on nicv2-391, run 0"
    (one,) = planned(protocols=["nicv2-79"])
    assert (one.cell.options["r_max"], one.cell.options["d_max"]) == (1.25, 0.5)  # table:renormpar


def test_a_cell_that_two_groups_have_is_one_cell():
    plan = make_plan(
        {
            "name": "p",
            "device": "cpu",
            "groups": [
                GROUP,
                {**GROUP, "name": "h", "variants": [{"norm": "brn"}, {"norm": "bn"}]},
            ],
        }
    )
    assert [p.groups for p in plan.planned()] == [["g", "h"], ["h"]]


def test_the_reduced_and_the_full_test_set():
    assert [p.cell.test_thin for p in planned(tests=["reduced", "full"])] == [20, 1]
    plan = make_plan(
        {
            "name": "p",
            "groups": [{**GROUP, "tests": ["reduced", "full"]}],
            "data": {"kind": "core50", "path": "/x"},
        }
    )
    assert [(p.cell.data.test, p.cell.test_thin) for p in plan.planned()] == [
        (None, 1),
        ("full", 1),
    ]  # None: the 1-in-20 list of CORe50


def store_plan(store, **settings):
    return make_plan(
        {
            "name": "p",
            "device": "cpu",
            "test": "reduced",
            "groups": [{**GROUP, **settings}],
            "data": {"kind": "store", "path": str(store)},
        }
    )


def frames_of_test(cell, tmp_path):
    """The pixels of the frames that a cell is tested on."""
    data = open_cell_data(cell.data, tmp_path)
    images = TestSet(open_stream(data, cell.protocol), cell.test_thin, FeatureCache()).patterns
    return images.images[torch.arange(len(images.labels))]


def test_a_packed_core50_is_tested_on_its_own_reduced_list(core50_folder, tmp_path):
    folder = core50_folder(objects=11, frames=4)
    official = CORe50(folder)
    wanted = torch.cat([official.frames[torch.arange(s.start, s.stop)] for s in official.test])
    assert len(wanted) == 7  # 11 objects x 3 test sessions x 4 frames = 132, every 20th
    for test in ("reduced", "full"):
        store = pack(CORe50(folder, test=test), tmp_path / test).path
        (one,) = store_plan(store, protocols=["nicv2-30"]).planned()
        assert torch.equal(frames_of_test(one.cell, tmp_path), wanted)
    both = store_plan(store, protocols=["nicv2-30"], tests=["reduced", "full"])
    frames = [frames_of_test(p.cell, tmp_path) for p in both.planned()]
    assert [len(some) for some in frames] == [7, 132]


def test_the_full_test_set_of_a_reduced_store_is_refused_before_anything_starts(
    core50_folder, tmp_path
):
    folder = core50_folder()
    store = pack(CORe50(folder), tmp_path / "store").path
    with pytest.raises(
        InputError, match=r"group 'g': .*store holds the reduced test set of CORe50"
    ):
        store_plan(store, tests=["reduced", "full"]).planned()
    with pytest.raises(InputError, match=rf"primavista data pack {folder} .* --full-test"):
        store_plan(store, tests=["full"]).planned()


def test_stores_of_other_data_are_thinned_by_session(core50_folder, tmp_path):
    data = CORe50(core50_folder(objects=4, frames=12), test="full")
    other = DataSet("core50", data.frames, data.train, data.test, data.classes, data.categories)
    store = pack(other, tmp_path / "core50.store").path
    cells = [p.cell for p in store_plan(store, tests=["reduced", "full"]).planned()]
    assert [cell.test_thin for cell in cells] == [20, 1]
    (one,) = store_plan(store, protocols=["nicv2-30"]).planned()
    assert len(frames_of_test(one.cell, tmp_path)) == 12  # one per session


def test_cumulative_is_retrained_by_number():
    (one,) = planned(strategies=["cumulative"], retrain=10)
    assert (one.cell.retrain, one.cell.options["every"]) == (10, None)


@pytest.mark.parametrize(
    ("group", "message"),
    [
        (
            {"strategies": ["ar2"]},
            "group 'g', 'ar2': there is no strategy 'ar2': choose from ",
        ),
        ({"options": {"lerning": 1}}, "group 'g', 'cwr\\*': there is no option lerning"),
        ({"options": {"norm": "layer"}}, "norm='layer' is not one of bn, brn"),
        ({"options": {"lr": "fast"}}, "group 'g', 'cwr\\*': .*lr"),
        (
            {"protocols": ["nicv3-391"]},
            "groups.0.protocols.0: Value error, no protocol 'nicv3-391'",
        ),
        ({"strategies": []}, "groups.0.strategies"),
        ({"runs": 0}, "groups.0.runs"),
        ({"tests": ["half"]}, "groups.0.tests.0"),
        ({"colour": "red"}, "groups.0.colour: there is no such key"),
    ],
)
def test_what_is_wrong_is_named_before_anything_starts(group, message):
    with pytest.raises(InputError, match=message):
        planned(**group)


def test_overrides_hold_in_every_group():
    plan = load_plan(
        "paper",
        ["runs=2", "data.frames=4", "limit=3", "options.epochs=1", 'backbone.weights="random"'],
    )
    assert {p.cell.run for p in plan.planned()} == {0, 1}
    assert {p.cell.options["epochs"] for p in plan.planned()} == {1}
    assert {
        (p.cell.data.frames, p.cell.limit, p.cell.backbone.weights) for p in plan.planned()
    } == {(4, 3, "random")}
    core50 = load_plan("paper", ["data.kind=core50", "data.path=/data/core50"])
    assert core50.data.model_dump(exclude_defaults=True) == {
        "kind": "core50",
        "name": "core50",
        "path": "/data/core50",
    }


@pytest.mark.parametrize("text", ["frames", "=3", "data.fames=3", "device=tpu"])
def test_wrong_overrides_are_said(text):
    with pytest.raises(InputError):
        load_plan("quick", [text])


def test_plans_that_are_not_there_or_no_toml(tmp_path):
    with pytest.raises(
        InputError, match=r"no plan 'papre': No such file.*one of claims, paper, quick"
    ):
        load_plan("papre")
    (tmp_path / "bad.toml").write_text("name = ")
    with pytest.raises(InputError, match="is not TOML"):
        load_plan(str(tmp_path / "bad.toml"))


def test_the_paper_plan_is_section_4():
    assert shipped() == ["claims", "paper", "quick"]
    found = load_plan("paper").planned()
    per_group = {}
    for one in found:
        for group in one.groups:
            per_group[group] = per_group.get(group, 0) + 1
    assert per_group == {
        "fig:results": 6 * 3 * 10,
        "fig:results cumulative": 3 * 10,
        "fig:bn_vs_brn": 2 * 3 * 10,
        "fig:NI": 4 * 10,
        "tab:efficiency": 7,
    }
    cumulative = [p for p in found if p.cell.strategy == "cumulative" and len(p.groups) == 2]
    assert [p.groups[1] for p in cumulative] == ["tab:efficiency"]  # the same cell, run once
    ni = [p.cell for p in found if p.cell.protocol == "ni"]
    assert {c.options["freeze"] for c in ni} == {"none", "depthwise", "pointwise", "all"}
    assert {(c.options["epochs_1"], c.options["epochs"], c.options["freeze_from"]) for c in ni} == {
        (1, 1, 1)
    }
    assert {(c.test_thin, c.hyperparameters_chosen_on_run) for c in ni} == {(20, None)}
    assert {c.options["norm"] for c in ni} == {"bn"}  # section 2.3 comes before renormalisation


def test_the_whole_test_set_is_the_default():
    plan = {"name": "p", "device": "cpu", "groups": [GROUP]}
    assert [p.cell.test_thin for p in make_plan(plan).planned()] == [1]
    core50 = {**plan, "data": {"kind": "core50", "path": "/x"}}
    assert [p.cell.data.test for p in make_plan(core50).planned()] == ["full"]
    # a plan that thins its test set, or asks for the reduced one, gets it
    assert [p.cell.test_thin for p in make_plan({**plan, "test_thin": 4}).planned()] == [4]
    assert [p.cell.test_thin for p in make_plan({**plan, "test": "reduced"}).planned()] == [20]


def test_no_cell_says_that_hyperparameters_were_chosen_on_it_unless_the_plan_does():
    plan = {"name": "p", "device": "cpu", "groups": [GROUP]}
    assert [p.cell.hyperparameters_chosen_on_run for p in make_plan(plan).planned()] == [None]
    told = make_plan({**plan, "hyperparameters_chosen_on_run": 2})
    assert [p.cell.hyperparameters_chosen_on_run for p in told.planned()] == [2]


def test_paths_in_a_plan_are_relative_to_its_file(tmp_path, monkeypatch):
    (tmp_path / "plans").mkdir()
    (tmp_path / "elsewhere").mkdir()
    text = 'name = "p"\n[data]\nkind = "folder"\npath = "../toys"\n'
    text += '[[groups]]\nname = "g"\nstrategies = ["ncm"]\nprotocols = ["nicv2"]\n'
    (tmp_path / "plans" / "mine.toml").write_text(text)
    monkeypatch.chdir(tmp_path / "elsewhere")
    plan = load_plan(str(tmp_path / "plans" / "mine.toml"))
    assert plan.data.path == str(tmp_path / "toys")
    assert plan.data.name == "toys"  # not "folder"


def test_options_are_read_off_their_declaration(monkeypatch):
    """No strategy is built for it, and what is missing or wrong is found all the same."""
    monkeypatch.setattr(registry, "_OWN", {})

    class Mine(strategy_class("ncm")):
        def __init__(self, backbone, *, seed=0, rate, flavour="plain"):
            raise AssertionError("it was built")

    register(Mine, "mine-of-a-test")
    given = {"rate": 2}
    assert all_options("mine-of-a-test", "nicv2", given) == {"rate": 2, "flavour": "plain"}
    with pytest.raises(InputError, match=r"do not suit 'mine-of-a-test'.*rate"):
        all_options("mine-of-a-test", "nicv2", {})
    with pytest.raises(InputError, match=r"no option rat: .*did you mean rate"):
        all_options("mine-of-a-test", "nicv2", {"rat": 2})
    assert all_options("ewc", "nicv2-79", {"lam": 1.0})["r_max"] == 1.25  # table:renormpar
    for strategy, wrong in (("ridge", {"balance": 7.0}), ("ewc", {"epochs": -1})):
        with pytest.raises(InputError, match=next(iter(wrong))):
            all_options(strategy, "nicv2", wrong)

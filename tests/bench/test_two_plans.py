"""Several plans, or one plan with other strategies, in one folder of results."""

from __future__ import annotations

import json
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner

from primavista.bench.folder import saved_plan
from primavista.bench.local import Inline
from primavista.bench.run import recorded_states
from primavista.cli.bench import app
from primavista.errors import FileError, InputError
from primavista.report.read import read_results


def groups(out: Any) -> dict[str, list[tuple[str, bool]]]:
    """The strategy of each cell: its groups, and whether they are of a claim."""
    return {
        cell.strategy: [(group.name, group.claim) for group in cell.groups]
        for cell in read_results(out).cells
    }


def test_the_report_has_the_groups_of_both_plans(suite, tmp_path):
    suite("dslda", name="claims", limit=2, group={"name": "claim: wpast", "title": "Past"}).run(
        Inline()
    )
    suite("naive", name="mine", limit=2, group={"name": "fig:results"}).run(Inline())
    assert groups(tmp_path / "out") == {
        "dslda": [("wpast", True)],
        "naive": [("fig:results", False)],
    }
    assert saved_plan(tmp_path / "out", "claims").groups[0].title == "Past"
    assert saved_plan(tmp_path / "out", "mine").groups[0].name == "fig:results"
    assert saved_plan(tmp_path / "out", "other") is None
    for plan, strategy in (("claims", "dslda"), ("mine", "naive")):
        (state,) = recorded_states(tmp_path / "out", plan)
        assert (state.planned.cell.strategy, state.status) == (strategy, "done")
    assert recorded_states(tmp_path / "out", "other") == []


def test_the_same_plan_with_other_strategies_keeps_what_was_begun_and_forgets_what_was_not(
    suite, tmp_path
):
    out = tmp_path / "out"

    def stop(state, event):
        if event.kind == "done":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        suite("dslda", "cwr*", "lwf", limit=2).run(Inline(), stop)
    suite("naive", limit=2).run(Inline())
    assert groups(out) == {"dslda": [("all", False)], "naive": [("all", False)]}
    assert read_results(out).waiting == 0
    assert saved_plan(out, "tiny").groups[0].strategies == ["naive"]
    again = (out / "plan.json").read_bytes()
    suite("naive", limit=2).run(Inline())
    assert (out / "plan.json").read_bytes() == again


def test_a_group_that_a_plan_no_longer_has_stays_as_long_as_its_cells(suite, tmp_path):
    suite("dslda", limit=2, group={"name": "first"}).run(Inline())
    suite("dslda", "naive", limit=2, group={"name": "second"}).run(Inline())
    assert groups(tmp_path / "out")["dslda"] == [("first", False), ("second", False)]


def test_other_data_in_the_same_folder_is_refused_and_changes_nothing(suite, tmp_path):
    suite("dslda", limit=2).run(Inline())
    before = (tmp_path / "out" / "plan.json").read_bytes()
    with pytest.raises(
        InputError, match="holds results with another limit: choose another folder with --out"
    ):
        suite("naive", limit=3).run(Inline())
    assert (tmp_path / "out" / "plan.json").read_bytes() == before


def test_a_plan_that_names_its_test_sessions_may_be_run_again(suite, tmp_path):
    """JSON has no tuples: the settings that were recorded are still those of the plan."""
    for label in ("cup", "mug"):
        for session in ("bench", "garden", "kitchen"):
            place = tmp_path / "toys" / label / session
            place.mkdir(parents=True)
            Image.new("RGB", (32, 32), "red").save(place / "1.png")
    data = {"kind": "folder", "path": str(tmp_path / "toys"), "size": 32, "test": ["garden"]}
    for strategy in ("dslda", "ncm"):
        assert not suite(strategy, data=data, protocol="ni", limit=1).run(Inline())


def test_a_plan_of_another_version_is_in_nobody_elses_way(suite, tmp_path):
    out = tmp_path / "out"
    suite("dslda", name="claims", limit=2, group={"name": "claim: all", "title": "Past"}).run(
        Inline()
    )
    record = json.loads((out / "plan.json").read_text())
    record["plans"]["strange"] = {"name": "strange", "later": 1}
    (out / "plan.json").write_text(json.dumps(record))
    assert groups(out) == {"dslda": [("all", True)]}
    assert saved_plan(out, "claims").groups[0].title == "Past"
    with pytest.raises(FileError, match=r"plan\.json .*\. Restore it, or choose another folder"):
        saved_plan(out, "strange")
    suite("naive", name="mine", limit=2).run(Inline())
    assert json.loads((out / "plan.json").read_text())["plans"]["strange"]["later"] == 1


def test_the_status_is_that_of_the_plan_that_was_asked_for(tmp_path, suite, monkeypatch):
    suite("dslda", "naive", name="one", limit=2).run(Inline())
    suite("cwr*", name="two", limit=2).run(Inline())
    for name in ("one", "two"):
        strategies = '["dslda", "naive"]' if name == "one" else '["cwr*"]'
        text = (
            f'name = "{name}"\n[[groups]]\nname = "all"\n'
            f'strategies = {strategies}\nprotocols = ["nicv2"]\n'
        )
        (tmp_path / f"{name}.toml").write_text(text)
    out = str(tmp_path / "out")
    assert (
        "2 of 2 cells done"
        in CliRunner().invoke(app, ["status", str(tmp_path / "one.toml"), "--out", out]).stdout
    )
    assert (
        "1 of 1 cells done"
        in CliRunner().invoke(app, ["status", str(tmp_path / "two.toml"), "--out", out]).stdout
    )


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"base": 1}', '{"format": 1, "base": {}, "groups": 3, "plans": []}']
)
def test_a_damaged_record_is_said_and_left_alone(suite, tmp_path, text):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "plan.json").write_text(text)
    with pytest.raises((FileError, InputError), match=r"plan\.json|holds results with another"):
        suite("naive", limit=2).run(Inline())
    assert (tmp_path / "out" / "plan.json").read_text() == text

"""Results of version 0.1.0 resume to the same bytes, and its plans can be read."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path

import pytest
from typer.testing import CliRunner

from primavista.bench.cell import RunSettings
from primavista.bench.executors.local import Inline
from primavista.bench.folder import METRICS, read_cell, saved_plan
from primavista.bench.plan import Cell, Plan, load_plan, make_plan
from primavista.bench.run import Suite, counts
from primavista.cli.bench import app

LEGACY = Path(__file__).parents[1] / "legacy" / "bench"


@pytest.fixture
def legacy_plan() -> Plan:
    with pytest.warns(DeprecationWarning, match="'past' is now called 'moments_decay'"):
        return load_plan(str(LEGACY / "plan.toml"))


def cells_of(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob(METRICS)}


# every strategy of the plan has options that version 0.1.0 did not have: its cells are other cells
@pytest.mark.slow
def test_cells_whose_rules_changed_are_run_anew_beside_the_old_ones(legacy_plan, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(LEGACY / "interrupted", out)
    old = cells_of(out)
    assert old
    suite = Suite(legacy_plan, out, settings=RunSettings(tmp_path / "drawn"))
    assert counts(suite.states)["waiting"] == len(suite.states)
    assert not suite.run(Inline())
    after = cells_of(out)
    assert {path: after[path] for path in old} == old
    assert len(after) == len(old) + len(suite.states)


def test_old_cells_are_read_as_they_were_and_are_none_of_the_plan(legacy_plan):
    folders = {planned.folder: planned.cell for planned in legacy_plan.planned()}
    for path in (LEGACY / "interrupted").rglob("run.json"):
        found = read_cell(path.parent).cell
        assert json.loads(path.read_text()) == found.model_dump(mode="json")
        folder = str(path.parent.relative_to(LEGACY / "interrupted"))
        assert folder not in folders


def test_the_commands_say_why_old_cells_are_run_anew(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan, out = str(LEGACY / "plan.toml"), tmp_path / "out"
    shutil.copytree(LEGACY / "interrupted", out)
    (out / "nicv2" / "damaged").mkdir()
    (out / "nicv2" / "damaged" / "run.json").write_text('"nothing"')
    with pytest.warns(DeprecationWarning, match="'past' is now called 'moments_decay'"):
        said = CliRunner().invoke(app, ["status", plan, "--out", str(out)])
    assert said.exit_code == 0, said
    words = " ".join(said.stdout.split())
    assert "5 cells learned by rules of version 0.1: ar1* (moments=pretrained" in words
    assert "prima (rule=frames). A plan runs such cells anew" in words
    with pytest.warns(DeprecationWarning, match="'past' is now called 'moments_decay'"):
        fresh = CliRunner().invoke(app, ["status", plan, "--out", str(tmp_path / "fresh")])
    assert "rules of version 0.1" not in fresh.stdout


def test_an_option_has_its_stored_name_in_files_alone(legacy_plan):
    (cell,) = (p.cell for p in legacy_plan.planned() if "average" in p.groups)
    assert cell.options["moments_decay"] == 0.99
    assert "past" not in cell.options
    assert cell.title == "ar1*, moments_decay=0.99 on nicv2, run 0"
    assert "past=0.99" in cell.folder_name
    assert json.loads(cell.model_dump_json())["options"]["past"] == 0.99
    assert Cell.model_validate(cell.model_dump()) == cell


def test_the_plan_of_a_folder_is_read_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan = saved_plan(LEGACY / "interrupted", "legacy")
    assert plan.groups[1].options == {"moments_decay": 0.99}


@pytest.mark.parametrize("name", ["past", "moments_decay"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_both_names_of_an_option_are_one_in_overrides(name):
    group = {"name": "g", "strategies": ["naive"], "protocols": ["ni"], "options": {"past": 0.5}}
    plan = make_plan({"name": "p", "groups": [group]}, [f"options.{name}=0.25"])
    assert [p.cell.options["moments_decay"] for p in plan.planned()] == [0.25]

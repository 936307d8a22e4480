"""Plans over listed pictures, with protocols that have parameters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from primavista.bench.data import data_settings
from primavista.bench.folder import RUN, read_json, read_result
from primavista.bench.local import Inline
from primavista.bench.plan import Cell, Plan, make_plan
from primavista.bench.run import Suite
from primavista.errors import InputError

from ..streams.official import CIFAR, cifar_bytes, write_cifar

PROTOCOLS = ["class-incremental:classes_per_batch=1,first=2", "nicv2:first=2"]


def plan(path: Path, protocols: list[Any] | None = None, **data: Any) -> Plan:
    return make_plan(
        {
            "name": "p",
            "device": "cpu",
            "groups": [
                {"name": "g", "strategies": ["ncm"], "protocols": protocols or PROTOCOLS},
            ],
            "data": {"kind": "list", "path": str(path), "size": 32, **data},
            "backbone": {"weights": "random", "options": {"width": 0.0625}},
        }
    )


def test_a_plan_runs_over_official_files(tmp_path: Path) -> None:
    suite = Suite(plan(write_cifar(tmp_path, sessions=2)), tmp_path / "out")
    assert not suite.run(Inline())
    cells = [Cell.model_validate(read_json(state.path / RUN)) for state in suite.states]
    assert [cell.protocol for cell in cells] == [
        "class-incremental:classes_per_batch=1,first=2",
        "nicv2:first=2",
    ]
    batches = [
        json.loads((state.path / "result.json").read_text())["batches"] for state in suite.states
    ]
    assert batches == [3, 7]  # two classes and then one each; 2 of 8 sessions and then one each
    facts = read_result(suite.states[0].path).data
    assert (facts.train_frames, facts.test_frames, facts.train_sessions) == (24, 8, 8)
    assert cells[0].data.name == "cifar-100-binary"
    folders = [state.path.parent.name for state in suite.states]
    assert folders == ["class-incremental-classes_per_batch=1-first=2", "nicv2-first=2"]


def test_the_same_protocol_in_other_words_makes_one_cell(tmp_path: Path) -> None:
    both = [*PROTOCOLS[:1], "class_incremental:first=2,classes_per_batch=1"]
    assert len(plan(write_cifar(tmp_path), both).planned()) == 1


def test_a_cell_comes_back_from_its_file(tmp_path: Path) -> None:
    cell = plan(write_cifar(tmp_path)).planned()[0].cell
    assert Cell.model_validate_json(cell.model_dump_json()) == cell


def test_one_changed_pixel_is_another_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = write_cifar(tmp_path / "data")
    before = {one.cell.key for one in plan(path).planned()}
    assert {one.cell.key for one in plan(path).planned()} == before
    pixels = CIFAR["test"]["data"].copy()
    pixels[0, 0] ^= 1
    write_cifar(tmp_path / "data", {"test.bin": cifar_bytes({**CIFAR["test"], "data": pixels})})
    after = {one.cell.key for one in plan(path).planned()}
    assert not before & after


def test_the_command_line_recognises_them(tmp_path: Path) -> None:
    path = write_cifar(tmp_path)
    assert data_settings(str(path), size=64) == {
        "kind": "list",
        "path": str(path.resolve()),
        "size": 64,
    }


@pytest.mark.parametrize(
    ("protocol", "message"),
    [
        ("class-incremental:frist=5", "Value error, .*no parameter 'frist'"),
        ("class-incremental:first=5.5", "Value error, .*first .* is a whole number; got '5.5'"),
        ("class-incremental:text=5", "Value error, .*no parameter 'text'"),
        ({"name": "class-incremental"}, "Input should be a valid string"),
        (7, "Input should be a valid string"),
    ],
)
def test_wrong_protocols_are_named(tmp_path: Path, protocol: Any, message: str) -> None:
    with pytest.raises(InputError, match=rf"groups.0.protocols.0: {message}"):
        plan(tmp_path, [protocol])


def test_what_the_data_does_not_have_is_said_before_anything_runs(tmp_path: Path) -> None:
    suite = Suite(plan(write_cifar(tmp_path), ["domain-incremental"]), tmp_path / "out")
    with pytest.raises(InputError, match="domain-incremental needs two or more"):
        suite.run(Inline())
    assert not list((tmp_path / "out").glob("**/result.json"))


def test_other_keys_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"data\.list\.test: there is no such key"):
        plan(tmp_path, test="full")

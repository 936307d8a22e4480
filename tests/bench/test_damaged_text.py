"""Plans that no reader can take, and lines of results with a damaged end."""

from __future__ import annotations

import json

import pytest

from primavista import InputError
from primavista.bench.folder import read_lines
from primavista.bench.plan import load_plan
from primavista.storage.settings import parse_setting


@pytest.mark.parametrize(
    "text", ["a = " + "[" * 5000 + "]" * 5000, "a = " + "1" * 5001], ids=["brackets", "digits"]
)
def test_plans_that_no_reader_can_take(tmp_path, text):
    (tmp_path / "plan.toml").write_text(text)
    with pytest.raises(InputError, match=r"plan\.toml is not TOML"):
        load_plan(str(tmp_path / "plan.toml"))
    assert parse_setting(text.replace(" ", ""), "a=1")[0] == ["a"]


@pytest.mark.parametrize("name", [".", "..", "...", ".hidden", "a/b", ""])
def test_a_plan_cannot_be_called_like_a_folder_above(name):
    with pytest.raises(InputError, match="name"):
        load_plan("quick", [f"name='{name}'"])


@pytest.mark.parametrize(
    "tail", [b"\0" * 60 + b"\n", b"[1]\n", b"nonsense\n", b"[" * 9999 + b"\n", b'{"batch"']
)
def test_lines_are_read_up_to_the_damage(tmp_path, tail):
    (tmp_path / "t.jsonl").write_bytes(json.dumps({"batch": 1}).encode() + b"\n" + tail)
    assert read_lines(tmp_path / "t.jsonl") == [{"batch": 1}]

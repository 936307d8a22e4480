"""`primavista data`: the commands, what they leave behind, and what they say when something is
wrong.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner, Result

import primavista as pv
from primavista.cli.data import app, open_data
from primavista.media.images import centre_square
from primavista.streams.open import parse_source, scene_of
from primavista.streams.rendered.renderer import Scene
from primavista.streams.store import FRAMES, open_store

from ..streams.scenes import materialise

SCENE = "rendered:categories=2,objects=1,sessions=3,frames=4,size=16"
SMALL = Scene(categories=2, objects=1, sessions=3, frames=4, size=16)
SIZES = ["--categories", "2", "--objects", "1", "--sessions", "3", "--frames", "4", "--size", "16"]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def done(*arguments: object) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def test_every_command_teaches_with_an_example() -> None:
    for name in ("render", "pack", "verify", "sheet", "matrix"):
        assert f"primavista data {name} " in " ".join(done(name, "--help").split())


def test_help_imports_no_torch() -> None:
    show = "app(['--help'], standalone_mode=False)"
    code = f"import sys; from primavista.cli.data import app; {show}\n"
    code += "assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_drawn_packed_verified_and_looked_at(tmp_path: Path) -> None:
    assert "24 frames" in done("pack", SCENE, tmp_path / "store", "--workers", 1)
    data, truth = open_store(tmp_path / "store"), materialise(SMALL)
    assert torch.equal(data.frames[torch.arange(24)], truth.frames[torch.arange(24)])
    assert "all 24 frames" in done("verify", tmp_path / "store")
    done("sheet", tmp_path / "store", tmp_path / "sheet.png")
    with Image.open(tmp_path / "sheet.png") as picture:
        sheet = np.array(picture.convert("RGB"))
    # of the first session of the first class
    middle = centre_square(truth.frames[torch.tensor([2])][0].numpy(), 64)
    corners = np.argwhere((sheet[:-63, :-63] == middle[0, 0]).all(2))
    assert any((sheet[y : y + 64, x : x + 64] == middle).all() for y, x in corners)


def test_written_pictures_are_read_back(tmp_path: Path) -> None:
    done("render", tmp_path / "drawn", *SIZES)
    data = open_data(str(tmp_path / "drawn"), 16)
    truth = materialise(SMALL)
    for mine, theirs in ((data.train, truth.train), (data.test, truth.test)):
        frames = {(data.classes[s.label], s.number): torch.arange(s.start, s.stop) for s in mine}
        assert len(frames) == len(theirs)
        for session in theirs:
            found = data.frames[frames[truth.classes[session.label], session.number]]
            span = torch.arange(session.start, session.stop)
            assert torch.equal(torch.as_tensor(found), truth.frames[span])
    done("pack", tmp_path / "drawn", tmp_path / "store", "--size", 16, "--workers", 1)
    assert len(open_store(tmp_path / "store").frames) == 24


def test_packing_core50_says_which_test_set_the_store_has(
    core50_folder: Callable[..., Path], tmp_path: Path
) -> None:
    folder = core50_folder(objects=2, frames=4)
    assert "the reduced test set (2 frames)" in done("pack", folder, tmp_path / "reduced")
    full = done("pack", folder, tmp_path / "full", "--full-test")
    assert "the full test set (24 frames)" in full  # 2 objects x 3 test sessions x 4 frames


def test_a_folder_of_classes_and_sessions(tmp_path: Path) -> None:
    for name in ("mug", "lamp"):
        for session in ("a", "b", "c"):
            (tmp_path / "own" / name / session).mkdir(parents=True)
            Image.new("RGB", (8, 8), (9, 9, 9)).save(tmp_path / "own" / name / session / "0.png")
    (tmp_path / "own" / "mug" / "a" / "1.png").write_bytes(b"")
    assert isinstance(
        run("pack", tmp_path / "own", tmp_path / "s", "--size", 8).exception, pv.FileError
    )
    output = done(
        "pack",
        tmp_path / "own",
        tmp_path / "t",
        "--size",
        8,
        "--test",
        "b",
        "--skip-bad",
        "--workers",
        1,
    )
    assert "test set: lamp/b, mug/b" in output
    assert [s.number for s in open_store(tmp_path / "t").test] == [2, 2]


def test_the_matrix_of_a_stream(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    output = done(
        "matrix",
        "rendered:objects=2,frames=1,size=8",
        tmp_path / "order.svg",
        "--protocol",
        "nicv2-31",
    )
    assert "nicv2-31, run 0, 31 batches (generated)" in output
    assert "<svg" in (tmp_path / "order.svg").read_text()
    done("matrix", SCENE, tmp_path / "order.png")
    with Image.open(tmp_path / "order.png") as picture:
        assert picture.width > 100


def test_a_damaged_store_fails_its_check(tmp_path: Path) -> None:
    done("pack", SCENE, tmp_path / "store", "--workers", 1)
    with open(tmp_path / "store" / FRAMES, "r+b") as file:
        file.seek(-1, 2)
        byte = file.read(1)[0]
        file.seek(-1, 2)
        file.write(bytes([byte ^ 255]))
    result = run("verify", tmp_path / "store")
    assert result.exit_code == 1
    assert "store is damaged (frames of " in str(result.exception)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["verify", "nowhere"], "is not a packed store"),
        (["pack", "nowhere", "s"], "cannot read the folder nowhere"),
        (["pack", "rendered:colour=2", "s"], "the keys are categories, objects"),
        (["pack", "rendered:frames=0", "s"], "frames must be at least 1"),
        (["sheet", SCENE, "no/such/folder.png"], "cannot write no/such/folder.png"),
        (["matrix", SCENE, "m.svg", "--protocol", "nix"], "no protocol 'nix'"),
    ],
)
def test_errors_are_ours_and_say_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert isinstance(result.exception, pv.PrimavistaError)
    assert result.exit_code == 1
    assert says in str(result.exception)


@pytest.mark.slow
def test_the_whole_command_prints_one_message_and_exits_with_one(tmp_path: Path) -> None:
    code = "import sys; sys.argv[0] = 'primavista'; from primavista.__main__ import main; main()"
    command = [sys.executable, "-c", code, "data", "verify", "nowhere"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert result.returncode == 1
    assert "nowhere is not a packed store" in result.stderr
    assert "Traceback" not in result.stderr


def test_scenes_in_words() -> None:
    assert scene_of(parse_source("rendered")) == Scene()
    assert scene_of(parse_source(SCENE), 64) == SMALL
    assert scene_of(parse_source("rendered:seed=-3"), 32) == Scene(size=32, seed=-3)

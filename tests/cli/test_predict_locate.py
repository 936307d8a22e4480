"""`primavista predict --locate`: boxes as lines, as JSON, in pictures and in videos."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from primavista import Learner
from primavista.cli.annotate import draw_boxes
from primavista.cli.app import app
from primavista.learner.locating import Located
from primavista.media.boxes import Box

from .conftest import on_terminal

av = pytest.importorskip("av")


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny.pv"
    learner = Learner("ncm", weights="random", width=0.25, size=64, device="cpu", threshold=0)
    for name, level in (("dark", 40), ("light", 210)):
        grain = np.random.default_rng(level).integers(-30, 30, (4, 64, 64, 3))
        learner.learn((grain + level).astype(np.uint8), name)
    learner.save(path)
    return path


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    pixels = np.random.default_rng(3).integers(180, 240, (96, 128, 3)).astype(np.uint8)
    pixels[:, :64] //= 4
    Image.fromarray(pixels).save(tmp_path / "two.png")
    return tmp_path / "two.png"


def test_lines_and_json_say_what_the_learner_says(model: Path, picture: Path) -> None:
    found = Learner.load(model, device="cpu").locate(picture)
    assert found
    (row,) = call("predict", model, picture, "--locate", "--json").stdout.splitlines()
    said = json.loads(row)
    assert said["source"] == str(picture)
    assert [one["label"] for one in said["objects"]] == [one.label for one in found]
    assert said["objects"][0]["box"]["left"] == pytest.approx(found[0].box.left)
    text = call("predict", model, picture, "--locate").stdout.splitlines()
    assert len(text) == len(found)
    assert text[0].startswith(f"two.png: {found[0].label} ")


def test_a_copy_of_a_picture_has_boxes_and_never_overwrites(model: Path, picture: Path) -> None:
    target = picture.with_name("out.png")
    said = call("predict", model, picture, "--locate", "--annotate", target)
    assert said.exit_code == 0, said.output
    assert f"wrote {target}" in said.stdout
    before, after = (np.asarray(Image.open(path)) for path in (picture, target))
    assert before.shape == after.shape
    assert (before != after).any()
    again = call("predict", model, picture, "--locate", "--annotate", target)
    assert again.exit_code != 0
    assert "exists" in str(again.exception)


@pytest.fixture
def video(tmp_path: Path) -> Path:
    with av.open(str(tmp_path / "in.mp4"), "w") as container:
        stream = container.add_stream("mpeg4", rate=5)
        stream.width, stream.height = 128, 96
        for level in range(5):
            pixels = np.full((96, 128, 3), 40 * level, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())
    return tmp_path / "in.mp4"


def test_a_copy_of_a_video_has_as_many_frames(model: Path, video: Path) -> None:
    target = video.with_name("out.mp4")
    said = call("predict", model, video, "--locate", "--annotate", target, "--json")
    assert said.exit_code == 0, said.output
    assert len(said.stdout.splitlines()) == 5
    with av.open(str(target)) as container:
        assert sum(1 for _ in container.decode(video=0)) == 5


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
@pytest.mark.parametrize("options", [(), ("--locate",)])
def test_json_on_a_narrow_terminal_is_whole(
    model: Path, video: Path, options: tuple[str, ...]
) -> None:
    target = video.with_name("out.mp4")
    command = ("predict", model, video, "--annotate", target, "--json", *options)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", on_terminal(40, *command).decode())
    told = [json.loads(row) for row in re.split(r"[\r\n]+", shown) if row.startswith("{")]
    assert [one.get("source") for one in told][:5] == [str(video)] * 5


def test_without_x264_a_copy_is_mpeg4(
    model: Path, video: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(av, "codecs_available", av.codecs_available - {"libx264"})
    target = video.with_name("out.mp4")
    said = call("predict", model, video, "--annotate", target)
    assert said.exit_code == 0, said.output
    with av.open(str(target)) as container:
        assert container.streams.video[0].codec_context.name == "mpeg4"
        assert sum(1 for _ in container.decode(video=0)) == 5


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (("--annotate", "x.mp4"), "ends in .png"),
        (("--annotate", "/no/such/x.png"), "cannot write"),
    ],
)
def test_targets_that_cannot_be_written_are_refused(model, picture, extra, words) -> None:
    said = call("predict", model, picture, "--locate", *extra)
    assert said.exit_code != 0
    assert words in str(said.exception)


def test_boxes_are_drawn_where_they_are_told() -> None:
    found = [Located("mug", Box(20, 60, 80, 100), 0.9)]
    drawn = np.asarray(draw_boxes(Image.new("RGB", (160, 120)), found, ["mug"]))
    assert drawn[80, 20].any()  # the left edge
    assert drawn[100, 50].any()  # the lower edge
    assert not drawn[80, 50].any()  # inside
    assert not drawn[110, 140].any()  # outside

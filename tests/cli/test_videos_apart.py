"""No command decodes a video in its own process: N3 of the second review."""

from __future__ import annotations

from pathlib import Path

import av
import pytest
from click.testing import Result
from typer.testing import CliRunner

from primavista.cli.app import app

from ..streams import media

TINY = ("--strategy", "ncm", "--weights", "random", "--option", "width=0.0625", "--size", "32")


@pytest.fixture
def videos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of videos; this process can write videos and cannot read them."""
    for name in ("cup", "can"):
        for number in range(2):
            (tmp_path / "toys" / name).mkdir(parents=True, exist_ok=True)
            media.make_video(tmp_path / "toys" / name / f"{number}.mp4", 6)
    opened = av.open

    def only_write(file: object, mode: str = "r", **options: object) -> object:
        assert mode == "w", f"{file} is decoded in the process of the command"
        return opened(file, mode, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(av, "open", only_write)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*arguments: str) -> Result:
    done = CliRunner().invoke(app, [*arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done


def test_no_command_decodes_a_video_in_its_own_process(videos: Path) -> None:
    video = "toys/cup/0.mp4"
    call("learn", "a.pv", "toys", *TINY)
    assert "2 of 2 frames" in call("predict", "a.pv", video).stdout
    call("predict", "a.pv", video, "--annotate", "copy.mp4")
    assert (videos / "copy.mp4").stat().st_size > 0
    call("evaluate", "a.pv", "toys")
    assert (
        "24 frames"
        in call("data", "pack", "toys", "store", "--size", "16", "--workers", "1").stdout
    )

"""`primavista data`: drawn folders read back, options that a source does not take, stops, bad
pictures, official orders.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner, Result

import primavista as pv
from primavista.cli.data import app, open_data
from primavista.streams.open import stream as open_stream
from primavista.streams.rendered import dataset
from primavista.streams.rendered.renderer import Scene
from primavista.streams.store import open_store, pack

from ..streams.scenes import materialise

SOURCE = "rendered:categories=2,objects=3,sessions=4,frames=4,size=16"
SCENE = Scene(categories=2, objects=3, sessions=4, frames=4, size=16)
OPTIONS = ["--categories", 2, "--objects", 3, "--sessions", 4, "--frames", 4, "--size", 16]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def done(*arguments: object) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


@pytest.mark.slow
@pytest.mark.parametrize("format", ["png", "mp4"])
def test_a_drawn_folder_has_the_objects_frames_and_test_sessions_of_its_scene(
    tmp_path: Path, format: str
) -> None:
    pytest.importorskip("av")
    done("render", tmp_path / "drawn", "--format", format, *OPTIONS)
    truth = materialise(SCENE)
    data = open_data(str(tmp_path / "drawn"), 16, cache=tmp_path / "cache")
    assert sorted(data.classes) == sorted(truth.classes)
    assert {s.number for s in data.test} == {s.number for s in truth.test} == {3}
    starts = {(truth.classes[s.label], s.number): s.start for s in (*truth.train, *truth.test)}
    for session in (*data.train, *data.test):
        start = starts[data.classes[session.label], session.number]
        found = torch.as_tensor(data.frames[np.arange(session.start, session.stop)])
        expected = truth.frames[torch.arange(start, start + len(session))]
        allowed = 1e-9 if format == "png" else 20  # of one session, 16 x 16 pixels in 4:2:0
        assert (found.float() - expected.float()).abs().mean() < allowed


@pytest.fixture
def sources(tmp_path: Path) -> dict[str, str]:
    """One of each kind."""
    core50(tmp_path / "core50")
    for name in ("mug", "lamp"):
        for session in "abc":
            (tmp_path / "own" / name / session).mkdir(parents=True)
            Image.new("RGB", (8, 8)).save(tmp_path / "own" / name / session / "0.png")
    pack(open_data(SOURCE), tmp_path / "store", 1)
    return {
        "rendered": SOURCE,
        **{kind: str(tmp_path / kind) for kind in ("core50", "own", "store")},
    }


def core50(root: Path, objects: int = 10, frames: int = 3) -> Path:
    """A small CORe50 of tiny pictures, whose colour says which session and object they show."""
    for session in range(1, 12):
        for thing in range(1, objects + 1):
            place = root / f"s{session}" / f"o{thing}"
            place.mkdir(parents=True)
            for i in range(frames):
                colour = (session, thing, i)
                Image.new("RGB", (4, 4), colour).save(
                    place / f"C_{session:02d}_{thing:02d}_{i:03d}.png"
                )
    return root


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "options", "says"),
    [
        ("core50", ["--test", "s1"], "--test is for a class/session folder"),
        ("store", ["--test", "s1"], "--test is for a class/session folder"),
        ("rendered", ["--test", "s1"], "--test is for a class/session folder"),
        ("own", ["--full-test"], "--full-test is for a CORe50 folder"),
        ("store", ["--size", "32"], "--size is for rendered videos or a CORe50 folder or"),
        ("rendered", ["--skip-bad"], "--skip-bad is for a CORe50 folder or"),
        ("store", ["--skip-bad"], "is a packed store: leave it out"),
        ("core50", ["--fps", "2"], "--fps is for a class/session folder"),
    ],
)
def test_options_that_a_source_does_not_take_are_refused(
    tmp_path: Path, sources: dict[str, str], kind: str, options: list[str], says: str
) -> None:
    result = run("pack", sources[kind], tmp_path / "out", *options)
    assert isinstance(result.exception, pv.InputError)
    assert says in str(result.exception)


def test_bad_pictures_of_core50_are_skipped_and_counted(tmp_path: Path) -> None:
    root = core50(tmp_path / "core50")
    (root / "s1" / "o2" / "C_01_02_001.png").write_bytes(b"junk")
    for i in range(3):
        (root / "s2" / "o1" / f"C_02_01_00{i}.png").write_bytes(b"")
    with pytest.raises(pv.FileError, match=r"--skip-bad, skip_bad=True"):
        pack(open_data(str(root)), tmp_path / "none", 1)
    output = done(
        "pack", root, tmp_path / "store", "--skip-bad", "--full-test", "--size", 8, "--workers", 1
    )
    assert "skipped 4 that could not be decoded" in output
    data = open_store(tmp_path / "store")
    assert len(data.frames) == 330 - 4
    assert not [s for s in data.train if (s.label, s.number) == (0, 2)]
    for session in (*data.train, *data.test):
        colours = data.frames[torch.arange(session.start, session.stop)][:, 0, 0, :2]
        assert (colours == torch.tensor([session.number, session.label + 1])).all()
        assert len(session) == (2 if (session.label, session.number) == (1, 1) else 3)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes here")
def test_a_pipe_does_not_hang_the_loader(tmp_path: Path) -> None:
    root = core50(tmp_path / "core50", objects=1)
    name = root / "s1" / "o1" / "C_01_01_000.png"
    name.unlink()
    os.mkfifo(name)
    with pytest.raises(pv.FileError, match="not a regular file"):
        open_data(str(root), 8).frames[torch.tensor([0])]


def test_official_orders_are_found_from_a_packed_store(tmp_path: Path) -> None:
    root = core50(tmp_path / "core50", objects=5)
    keys = [(s, o) for s in range(1, 12) if s not in (3, 7, 10) for o in range(1, 6)]
    lists = root / "batches_filelists" / "NI_inc" / "run0"
    lists.mkdir(parents=True)
    numbers = sorted({s for s, _ in keys}, reverse=True)
    for i, session in enumerate(numbers):
        names = [
            f"s{session}/o{o}/C_{session:02d}_{o:02d}_{f:03d}.png {o - 1}"
            for o in range(1, 6)
            for f in range(3)
        ]
        (lists / f"train_batch_{i:02d}_filelist.txt").write_text("\n".join(names))
    done("pack", root, tmp_path / "object", "--workers", 1)
    stream = open_stream(open_store(tmp_path / "object"), "ni")
    assert stream.source.endswith("NI_inc/run0")
    assert [{s.number for s in batch} for batch in stream.batches] == [{n} for n in numbers]
    assert all(len(batch) == 5 for batch in stream.batches)
    assert {s.label for batch in stream.batches for s in batch} == set(range(5))
    shutil.move(root / "batches_filelists", tmp_path / "lists")
    assert open_stream(open_store(tmp_path / "object"), "ni").source == "generated"
    output = done(
        "matrix",
        tmp_path / "object",
        "--protocol",
        "ni",
        "--orders",
        tmp_path / "lists",
        tmp_path / "m.svg",
    )
    assert "NI_inc/run0" in output


def test_the_picture_that_was_written_is_named(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert f"wrote {tmp_path / 'm.png'}: " in done("matrix", SOURCE, tmp_path / "m.png")
    assert (tmp_path / "m.png").is_file()
    assert isinstance(run("matrix", SOURCE, tmp_path / "m").exception, pv.InputError)
    assert "nicv2-N" in " ".join(done("matrix", "--help").split())


def test_long_videos_are_thinned_aloud(tmp_path: Path) -> None:
    pytest.importorskip("av")
    dataset.write(
        Scene(categories=1, objects=1, sessions=1, frames=40, size=16), tmp_path / "d", "mp4"
    )
    assert (
        len(open_data(str(tmp_path / "d"), fps=5, cache=tmp_path / "c").frames) == 10
    )  # of two seconds
    assert len(open_data(str(tmp_path / "d"), max_frames=10, cache=tmp_path / "c").frames) == 10
    (tmp_path / "own" / "mug").mkdir(parents=True)
    shutil.copy(tmp_path / "d" / "plug adapter 1" / "s1.mp4", tmp_path / "own" / "mug" / "a.mp4")
    for number in range(2):  # decoded, then from the cache
        output = done(
            "pack",
            tmp_path / "own",
            tmp_path / f"{number}.store",
            "--max-frames",
            10,
            "--cache",
            tmp_path / "c",
            "--size",
            16,
        )
        assert "mug/a kept 10 of 40 frames (1 in 4): max_frames is 10" in output
    thinned = [
        "pack",
        tmp_path / "own",
        tmp_path / "fps.store",
        "--fps",
        5,
        "--cache",
        tmp_path / "c",
        "--size",
        16,
    ]
    assert "kept" not in done(*thinned)
    assert (
        len(open_data(str(tmp_path / "own"), 16, fps=5, cache=tmp_path / "c").frames) == 10
    )  # of two seconds


def test_scenes_have_bounds(tmp_path: Path) -> None:
    for source, says in [
        ("rendered:size=4000", "size must be at most 2,048"),
        ("rendered:frames=99999,sessions=999", "at most 10,000,000 frames"),
        ("rendered:objects=100000000000000", "objects must be at most 1,000"),
        (f"rendered:seed={'9' * 5000}", "write rendered:objects=2"),
    ]:
        with pytest.raises(pv.InputError, match=says):
            open_data(source)
    result = run("render", tmp_path / "d", "--frames", 10**9)
    assert isinstance(result.exception, pv.InputError)


def test_a_store_that_the_disk_cannot_hold_is_refused_before_a_byte_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=96 * 16 * 16 * 3))
    result = run("pack", SOURCE, tmp_path / "store", "--workers", 1)
    assert isinstance(result.exception, pv.InputError)
    assert "73,728 are free: make room" in str(result.exception)
    assert list((tmp_path / "store").iterdir()) == []

"""Pictures and videos are decoded in a child process with limits; hostile ones cost one request."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from primavista.errors import FileError
from primavista.media.child import Child
from primavista.media.decoder import Decoder, DecoderProcess
from primavista.media.decoder_child import DecodeJob
from primavista.media.images import TooLargeError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs resource limits")
PICTURE = DecodeJob("picture", "the frame", 0, 32, 16_000_000, 1, 20.0, 300 * 2**20)
VIDEO = replace(PICTURE, kind="video", name="the video", frames=10)


@pytest.fixture
def process():
    process = DecoderProcess()
    yield process
    process.close()


def run(process, job, data):
    return process.run(replace(job, length=len(data)), io.BytesIO(data))


def picture(side=64, kind="PNG", noise=False, **options):
    shape = (side, side, 3)
    pixels = np.random.default_rng(0).integers(0, 256, shape) if noise else np.full(shape, 90)
    file = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(file, kind, **options)
    return file.getvalue()


def video(frames=12, side=64):
    av = pytest.importorskip("av")
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width = stream.height = side
        stream.pix_fmt = "yuv420p"
        for k in range(frames):
            image = np.full((side, side, 3), (k * 9, 80, 80), np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image)))
        container.mux(stream.encode())
    return file.getvalue()


def with_many_samples(data, count):
    """Return an MP4 whose tables declare `count` samples of one byte; its size is the same."""
    changed = bytearray(data)

    def patch(box, offset, value):
        start = data.index(box) + 4 + offset
        changed[start : start + 4] = struct.pack("!I", value)

    patch(b"stsz", 4, 1)  # the size of every sample
    patch(b"stsz", 8, count)
    patch(b"stts", 8, count)  # the first run of equal durations
    patch(b"stsc", 12, count)  # samples in the first chunk
    return bytes(changed)


def resident(pid="self"):
    with open(f"/proc/{pid}/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def peak_data(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


def test_pictures_and_videos_are_decoded_as_without_a_child(process):
    from primavista.media.decode import timed_frames, upright
    from primavista.media.images import decode_image

    png, mp4 = picture(noise=True), video()
    expected = decode_image(io.BytesIO(png), "x", 32)
    assert np.array_equal(run(process, PICTURE, png)[0], expected)
    frames = run(process, replace(VIDEO, frames=20), mp4)
    direct = [upright(frame, 32) for _, frame in timed_frames(io.BytesIO(mp4))]
    assert len(frames) == 12
    assert np.array_equal(np.stack(frames), np.stack(direct))
    assert len(run(process, VIDEO, mp4)) == 6  # every second one, as at most 10 are kept


def test_the_child_has_no_torch():
    """So has nobody who decodes; `frames`, which turns pictures into tensors, is another matter."""
    modules = "camera, camera_child, decoder, decoder_child, images, video, video_child, video_file"
    code = f"import sys; from primavista.media import {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_media_does_not_import_the_service():
    code = "import sys, primavista.media.decoder; sys.exit('primavista.serve' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_small_video_that_declares_millions_of_samples_costs_one_request(process):
    good = video()
    run(process, VIDEO, good)  # starts the child
    child = process._child.process.pid
    before, base = resident(), peak_data(child)
    for count in (20_000_000, 170_000_000):
        with pytest.raises(FileError):
            run(process, VIDEO, with_many_samples(good, count))
    if process._child is not None and process._child.process.pid == child:
        assert peak_data(child) - base < 340 * 2**20
    assert resident() - before < 20 * 2**20
    assert len(run(process, VIDEO, good)) == 6


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_such_a_video_costs_the_command_line_nothing_either(tmp_path):
    """N3 of the second review: 2,381 MiB in the process of the command itself."""
    path = tmp_path / "bomb.mp4"
    path.write_bytes(with_many_samples(video(), 20_000_000))
    code = (
        "import sys\n"
        "from primavista.cli.recognise import sample_frames\n"
        "from primavista.errors import FileError\n"
        "from primavista.media.video import BadFiles, open_frames\n"
        "peak = lambda: [int(line.split()[1]) // 1024 for line in open('/proc/self/status') "
        "if line.startswith('VmHWM')][0]\n"
        "open_frames('good.mp4', size=32)\n"
        "before = peak()\n"
        "for read in (lambda: open_frames('bomb.mp4', size=32), "
        "lambda: list(sample_frames('bomb.mp4', 32, BadFiles(), 5))):\n"
        "    try: read(); sys.exit('not refused')\n"
        "    except FileError as error: assert 'bomb.mp4' in str(error), error\n"
        "assert peak() - before < 20, (before, peak())\n"
        "assert len(open_frames('good.mp4', size=32)) == 12\n"
    )
    (tmp_path / "good.mp4").write_bytes(video())
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_child_sees_no_token_and_writes_no_file(process, monkeypatch):
    monkeypatch.setenv("PRIMAVISTA_TOKEN", "a-secret")
    monkeypatch.setenv("DOOR", "rtsp://ann:a-secret@door/live")
    run(process, PICTURE, picture())
    proc = Path(f"/proc/{process._child.process.pid}")
    assert b"a-secret" not in (proc / "environ").read_bytes()
    said = (proc / "limits").read_text().splitlines()
    limits = {line[:26].strip(): line[26:].split()[0] for line in said}
    assert limits["Max file size"] == limits["Max processes"] == "0"
    assert "NoNewPrivs:\t1" in (proc / "status").read_text()


def test_a_child_whose_parent_has_gone_ends_without_a_word():
    """126 tracebacks of a BrokenPipeError in 196 kills of the service."""
    data = video(200)
    job = json.dumps(asdict(replace(VIDEO, length=len(data)))).encode() + b"\n"
    command = [sys.executable, "-P", "-m", "primavista.media.decoder_child"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as child:
        child.stdout.close()
        child.stdin.write(job + data)
        child.stdin.close()
        assert child.stderr.read() == b""
    assert child.returncode == 0


def scan_bomb(scans):
    """Return a progressive JPEG whose last scan comes again and again."""
    data = picture(640, "JPEG", progressive=True)
    last = data[data.rindex(b"\xff\xda") : -2]
    return data[:-2] + last * scans + data[-2:]


def test_a_jpeg_of_thousands_of_scans_is_refused_before_it_is_decoded(process):
    assert len(run(process, PICTURE, scan_bomb(20))) == 1
    began = time.process_time()
    with pytest.raises(TooLargeError, match="scans"):
        run(process, PICTURE, scan_bomb(7000))
    assert time.process_time() - began < 5


@pytest.mark.slow
def test_a_job_that_takes_too_long_is_ended_and_the_next_one_is_served(process):
    data = picture(3000, noise=True)
    run(process, PICTURE, picture())
    first = process._child.process.pid
    with pytest.raises(TooLargeError, match=r"more than 0\.02 seconds"):
        run(process, replace(PICTURE, seconds=0.02), data)
    assert len(run(process, PICTURE, picture())) == 1
    assert process._child.process.pid != first


def test_processor_time_is_limited_by_the_system_too():
    """The service may have been killed meanwhile, so that nobody ends the child."""
    code = (
        "from primavista.media.child import limit_processor_time\n"
        "limit_processor_time(0.0)\n"
        "while True: pass"
    )
    ended = subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
    assert ended.returncode == -signal.SIGXCPU


@pytest.mark.slow
def test_memory_is_limited(process):
    data = picture(3900)
    assert len(run(process, PICTURE, data)) == 1
    with pytest.raises(TooLargeError):
        run(process, replace(PICTURE, memory=8 * 2**20), data)
    assert len(run(process, PICTURE, data)) == 1


@pytest.mark.slow
def test_a_child_that_dies_is_replaced(process):
    run(process, PICTURE, picture())
    slow = picture(3900, noise=True, compress_level=1)
    threading.Timer(0.1, os.kill, (process._child.process.pid, signal.SIGKILL)).start()
    with pytest.raises(FileError, match="made the decoder stop"):
        run(process, PICTURE, slow)
    assert len(run(process, PICTURE, picture())) == 1


def test_frames_of_a_video_have_the_limit_of_pictures(process):
    with pytest.raises(TooLargeError, match="64 x 64 pixels"):
        run(process, replace(VIDEO, pixels=4000), video())


def taken_over(command):
    """Return a child whose process runs another command."""
    child = Child.__new__(Child)
    child.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    return child


@pytest.mark.parametrize(
    "answer",
    [
        b"no header at all",
        b"\xff\xff\xff\xff",
        b"[" * 100_000,
        b'{"reason": "' + b"a" * 70_000 + b'"}',
        b'{"width": 32, "height": 1000000000000, "reason": "", "too_large": false, "more": true}',
        b'{"width": 32, "height": 0, "reason": "", "too_large": false, "more": true}',
        b'{"width": -32, "height": -32, "reason": "", "too_large": false, "more": true}',
        b'{"width": 32.0, "height": 32, "reason": "", "too_large": false, "more": true}',
        b'{"width": true, "height": true, "reason": "", "too_large": false, "more": true}',
        b'{"width": 16, "height": 16, "reason": "", "too_large": false, "more": true}',
        b'{"width": 32, "height": 32, "reason": "", "too_large": false, "more": true}',
        b'{"width": 32, "height": 32, "exploit": 1}',
        b'{"more": true, "seconds": NaN}',
        b'{"more": true, "seconds": 1}',
        b'{"more": true, "rate": Infinity}',
        b'{"reason": 7}',
        b'{"reason": "x", "width": 100000000000}',
        b'{"reason": ""}',
        b"{}",
        b"[]",
    ],
)
def test_an_answer_of_a_child_that_was_taken_over_is_not_believed(process, answer):
    if answer.startswith((b"{", b"[")):
        answer += b"\n"
    code = f"import os, sys; os.write(1, {answer!r}); os.close(1); sys.stdin.read()"
    command = [sys.executable, "-c", code]
    process._child = taken_over(command)
    with pytest.raises(FileError, match="made the decoder stop"):
        run(process, PICTURE, picture())


def test_a_child_that_was_taken_over_sends_no_more_frames_than_were_asked_for(process):
    header = b'{"width": 32, "height": 32, "more": true}'
    frame = header + b"\n" + bytes(32 * 32 * 3)
    code = f"import os\nwhile True: os.write(1, {frame!r})"
    process._child = taken_over([sys.executable, "-c", code])
    with pytest.raises(FileError, match="made the decoder stop"):
        run(process, PICTURE, picture())
    assert process._child is None


def test_what_a_child_says_is_printed_without_control_characters(process):
    header = b'{"reason": "mug\\u001b[31m is\\n damaged"}'
    answer = header + b"\n"
    code = f"import os, sys; os.write(1, {answer!r}); sys.stdin.read()"
    process._child = taken_over([sys.executable, "-c", code])
    with pytest.raises(FileError, match=r"^mug\[31m is damaged$"):
        run(process, PICTURE, picture())


def test_nothing_of_a_video_is_written_to_a_file(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    process, seen, done = DecoderProcess(), set(), threading.Event()

    def look():
        while not done.is_set():
            seen.update(os.listdir(tmp_path))

    watcher = threading.Thread(target=look)
    watcher.start()
    run(process, VIDEO, video(60, 256))
    process.close()
    done.set()
    watcher.join()
    assert seen == set()


def noise() -> bytes:
    """Return a PNG of as few pixels as a frame of a camera has, and of 7 MiB."""
    file = io.BytesIO()
    pixels = np.random.default_rng(1).integers(0, 256, (1360, 1360, 4), np.uint8)
    Image.fromarray(pixels).save(file, "PNG", compress_level=0)
    return file.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize("large", [lambda: picture(2400), noise], ids=["many pixels", "many bytes"])
def test_a_frame_of_a_camera_does_not_wait_for_photographs(large):
    """Sixty requests with a large picture each would keep it waiting for half a minute."""
    decoder, finished = Decoder(), []
    large, small = large(), picture()

    async def client(name, data):
        frames = await decoder.run(replace(PICTURE, length=len(data)), io.BytesIO(data))
        finished.append((name, len(frames)))

    async def all_clients():
        await client("first", small)
        others = [asyncio.create_task(client("other", large)) for _ in range(10)]
        await asyncio.sleep(0.2)
        await client("honest", small)
        before = len(finished)
        await asyncio.gather(*others)
        return before

    before = asyncio.run(all_clients())
    decoder.close()
    assert before < 8
    assert finished.count(("other", 1)) == 10


@pytest.mark.parametrize(("scans", "status"), [(20, None), (40, 413)])
def test_many_scans_are_for_small_pictures(process, scans, status):
    """Each scan costs a pass over all pixels."""
    job = replace(PICTURE, pixels=500_000)  # the bomb has 409,600
    if status is None:
        run(process, job, scan_bomb(scans - 10))
    else:
        with pytest.raises(TooLargeError, match="40 scans"):
            run(process, job, scan_bomb(scans - 10))

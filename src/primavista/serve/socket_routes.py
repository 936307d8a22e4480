"""WebSockets: a stream of frames to recognise, and a lesson that is taught frame by frame."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

import anyio
from fastapi import APIRouter, Query, WebSocket, WebSocketDisconnect

from primavista.errors import InputError
from primavista.learner.boxed import MOTION
from primavista.learner.lesson import LessonBuffer
from primavista.media.images import ImageArray, centre_square, read_region
from primavista.serve.clips import StreamClips
from primavista.serve.decoding import decode_frame
from primavista.serve.jobs import ChangeJob
from primavista.serve.learner_service import LearnerService
from primavista.serve.limits import RateLimiter, RefusedError, check_label
from primavista.serve.operations import (
    BOXED_SIDES,
    WHOLE_SIDES,
    Service,
    cut_squares,
    find_objects,
    submit_lesson,
    wait_for_job,
)
from primavista.serve.schemas import JobStatus, StreamAnswer
from primavista.serve.security import PROTOCOL

router = APIRouter()
STATUS_SECONDS = 0.1  # between two messages about the progress of a lesson


@router.websocket("/api/stream")
async def stream(
    socket: WebSocket,
    service: Service,
    remember: Annotated[float, Query(ge=0, le=60)] = 0,
) -> None:
    """Recognise a stream of frames: binary images come in, JSON objects go out.

    Each answer says what the frame shows by itself and, in `recent`, what the last second of the
    stream shows. While one frame is recognised, only the newest of those that come is kept.

    With `remember` the service keeps the frames of the last seconds in memory, and text messages
    correct it: {"clip": true} keeps what was seen last, {"teach": ID, "label": "mug"} teaches it,
    {"drop": ID} forgets it, and {"ask": true} lets the service ask about what it is not sure of.

    After {"locate": true} answers also have `objects`, as those of `POST /api/locate`, until
    {"locate": false} comes.
    """
    await _accept(socket)
    client = _StreamClient(service, remember)
    sending = anyio.Lock()
    latest = _LatestFrame(service)

    async def send(message: dict[str, Any]) -> None:
        # RuntimeError: the socket was closed already, because the client has sent too much
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            async with sending:
                await socket.send_json(message)

    async def answer() -> None:
        while True:
            async with latest.taken() as (number, frame):
                answered = await client.answer(frame)
            await send({"frame": number, **answered})
            for notice in await client.clips.notices():
                await send(notice)

    async def follow(job: ChangeJob) -> None:
        while not await wait_for_job(job, STATUS_SECONDS):
            await send({"lesson": JobStatus.of(job).model_dump()})
        await send({"lesson": JobStatus.of(job).model_dump()})

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(answer)
            done: dict[str, Any] | ChangeJob | None
            async for message in _messages(socket, service):
                if isinstance(message, bytes):
                    done = latest.put(message)
                else:
                    done = client.obey(message)
                if isinstance(done, ChangeJob):
                    group.start_soon(follow, done)
                elif done is not None:
                    await send(done)
            group.cancel_scope.cancel()
    finally:
        latest.drop()
        client.clips.close()


class _LatestFrame:
    """The newest frame of a stream, until it is recognised; its bytes count as an upload."""

    def __init__(self, service: LearnerService) -> None:
        self._service = service
        self._waiting: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue(1)
        self._number = 0

    def put(self, frame: bytes) -> dict[str, Any] | None:
        """Let a frame wait, in place of an older one; return the answer if there is no room."""
        self._number += 1
        if self.drop():
            self._service.metrics.count("frames_dropped")
        try:
            self._service.uploads.take(len(frame))
        except RefusedError as refused:
            return {"frame": self._number, "error": refused.reason}
        self._waiting.put_nowait((self._number, frame))
        return None

    def drop(self) -> bool:
        """Forget the frame that waits; False if there is none."""
        if self._waiting.empty():
            return False
        _, frame = self._waiting.get_nowait()
        self._service.uploads.give_back(len(frame))
        return True

    @contextlib.asynccontextmanager
    async def taken(self) -> AsyncIterator[tuple[int, bytes]]:
        """Wait for a frame. The context manager returns its number and its bytes."""
        number, frame = await self._waiting.get()
        try:
            yield number, frame
        finally:
            self._service.uploads.give_back(len(frame))


class _StreamClient:
    """The client of one stream: the frames that it sends, and the commands that it gives."""

    def __init__(self, service: LearnerService, remember: float) -> None:
        self.clips = StreamClips(service, remember)
        self._service = service
        self._watch, self._version = service.learner.watch(), service.snapshot.version
        self._locates = False

    async def answer(self, data: bytes) -> dict[str, Any]:
        """Recognise an encoded frame, and locate objects in it if the client asked for that."""
        try:
            if self._locates:
                return await self._located(data)
            image = await decode_frame(data, self._service.learner.size, self._service.limits)
            return (await self._recognised(image)).model_dump()
        except RefusedError as refused:
            return {"error": refused.reason}

    async def _located(self, data: bytes) -> dict[str, Any]:
        size, limits = self._service.learner.size, self._service.limits
        picture = await decode_frame(data, WHOLE_SIDES * size, limits, whole=True)
        answer = await self._recognised(centre_square(picture, size))
        found = await find_objects(self._service, picture)
        return {**answer.model_dump(), "objects": found.model_dump()["objects"]}

    async def _recognised(self, image: ImageArray) -> StreamAnswer:
        """Recognise a frame; a new version of the model starts a new last second."""
        prediction, version = await asyncio.wrap_future(self._service.predict(image))
        if version != self._version:
            self._watch, self._version = self._service.learner.watch(), version
        recent = self._watch.add(image, prediction)
        self.clips.add(image, self._watch.newest_thumbnail, recent, version)
        return StreamAnswer.of_stream(prediction, recent, len(self._watch), version)

    def obey(self, text: str) -> dict[str, Any] | ChangeJob:
        """Do what a text message asks for; return the answer, or the lesson that it began."""
        try:
            return self._obey(_json_object(text))
        except RefusedError as refused:
            return {"error": refused.reason}

    def _obey(self, command: dict[str, Any]) -> dict[str, Any] | ChangeJob:
        clips = self.clips
        if command.get("clip") is True:
            return clips.clip().notice()
        if isinstance(command.get("ask"), bool):
            clips.asks = command["ask"]
            return {"ask": clips.asks}
        if isinstance(command.get("locate"), bool):
            self._locates = command["locate"]
            return {"locate": self._locates}
        if "drop" in command:
            clip = clips.find(command["drop"])
            clips.drop(clip)
            return {"dropped": clip.id}
        if "teach" in command:
            clip = clips.find(command["teach"])
            label = check_label(command.get("label"), self._service.learner.labels)
            job = submit_lesson(self._service, clips.lesson(clip), label)
            clips.drop(clip)
            return job
        raise RefusedError(
            422,
            'send images as binary messages, or {"clip": true}, {"teach": ID, "label": "mug"}, '
            '{"drop": ID}, {"ask": true} or {"locate": true}',
        )


@router.websocket("/api/teach")
async def teach(socket: WebSocket, service: Service) -> None:
    """Teach one lesson frame by frame.

    The client sends {"label": "mug"}, then images as binary messages, then {"end": true}. The
    service answers each with the number of frames so far, then sends the status of the lesson
    until it is done. A socket that closes before the end changes nothing. With a `box` beside the
    label, as that of `POST /api/lessons`, a square around it is learned of every frame.
    """
    await _accept(socket)
    # A client that goes away after the end has taught its lesson all the same.
    with contextlib.suppress(WebSocketDisconnect):
        try:
            job = await _receive_lesson(socket, service)
        except RefusedError as refused:
            service.metrics.count("refused")
            await socket.send_json({"error": refused.reason})
            await socket.close(1008, refused.reason[:100])
            return
        if job is not None:
            await _send_status(socket, job)


async def _send_status(socket: WebSocket, job: ChangeJob) -> None:
    """Send the status of a lesson until it has ended, then close the socket."""
    while True:
        last = job.ended.done()
        await socket.send_json({"lesson": JobStatus.of(job).model_dump()})
        if last:
            return await socket.close()
        await wait_for_job(job, STATUS_SECONDS)


async def _receive_lesson(socket: WebSocket, service: LearnerService) -> ChangeJob | None:
    """Receive a lesson and submit it; None if the socket closes before its end."""
    lesson = _SocketLesson(service)
    try:
        async for message in _messages(socket, service):
            if isinstance(message, bytes):
                await socket.send_json({"frames": await lesson.add(message)})
                await service.in_thread(lesson.buffer.prepare)
                continue
            command = _json_object(message)
            if lesson.label is None:
                lesson.begin(command)
                await socket.send_json({"frames": 0})
            elif command.get("end") is True:
                return await lesson.submit()
            else:
                raise RefusedError(422, 'send images, then {"end": true}')
        return None
    finally:
        lesson.close()


class _SocketLesson:
    """A lesson whose frames come over a socket, with the box around the object if there is one."""

    def __init__(self, service: LearnerService) -> None:
        self.buffer: LessonBuffer = service.learner.open_lesson()
        self.label: str | None = None
        self._service = service
        self._again = False
        self._box = ""
        self._wholes: list[ImageArray] = []  # whole frames, which are kept if motion decides
        self._bytes = 0  # of all frames that are held

    def begin(self, command: dict[str, Any]) -> None:
        """Take the name, whether the lesson may count twice, and the box."""
        label = check_label(command.get("label"), self._service.learner.labels)
        box = command.get("box", "")
        if not isinstance(box, str):
            raise RefusedError(422, 'box is a text: "0.2,0.1,0.6,0.7" or "motion"')
        if box and box != MOTION:
            try:
                read_region(box)
            except InputError as error:
                raise RefusedError(422, str(error)) from error
        self.label, self._box, self._again = label, box, command.get("again") is True

    async def add(self, data: bytes) -> int:
        """Decode one frame and keep what is needed of it; return the number of frames."""
        if self.label is None:
            raise RefusedError(422, 'send the name first: {"label": "mug"}')
        limits, size = self._service.limits, self.buffer.size
        count = max(len(self.buffer), len(self._wholes))
        if count >= limits.lesson_frames:
            raise RefusedError(
                413,
                f"a lesson has at most {limits.lesson_frames} frames: end it, and begin another",
            )
        side = BOXED_SIDES * size if self._box else size
        uploads, name = self._service.uploads, f"frame {count + 1}"
        uploads.take(len(data))
        try:
            image = await decode_frame(data, side, limits, name, bool(self._box))
        finally:
            uploads.give_back(len(data))
        if self._box and self._box != MOTION:
            image = (await cut_squares(self._service, [image], self._box))[0]
        uploads.take(image.nbytes)
        self._bytes += image.nbytes
        if self._box == MOTION:
            self._wholes.append(image)
        else:
            self.buffer.add(image)
        return count + 1

    async def submit(self) -> ChangeJob:
        """Queue the lesson; if the box is "motion", the squares are cut out of all frames first."""
        assert self.label is not None
        if self._wholes:
            for square in await cut_squares(self._service, self._wholes, MOTION):
                self.buffer.add(square)
        return submit_lesson(self._service, self.buffer, self.label, self._again)

    def close(self) -> None:
        """Give the memory of the frames back to the budget of all uploads."""
        self._service.uploads.give_back(self._bytes)


async def _accept(socket: WebSocket) -> None:
    offered = socket.headers.get("sec-websocket-protocol", "").split(",")
    known = PROTOCOL in (name.strip() for name in offered)
    await socket.accept(PROTOCOL if known else None)


async def _messages(socket: WebSocket, service: LearnerService) -> AsyncIterator[bytes | str]:
    """Yield messages until the socket closes; close one that is silent or sends too fast."""
    limits = service.limits
    rate = RateLimiter(limits.messages_per_second)
    while True:
        message = None
        with anyio.move_on_after(limits.idle_seconds):
            message = await socket.receive()
        if message is None:
            with contextlib.suppress(RuntimeError):
                await socket.close(1001, f"nothing came for {limits.idle_seconds:g} seconds")
            return
        if message["type"] == "websocket.disconnect":
            return
        if not rate.allow():
            service.metrics.count("refused")
            with contextlib.suppress(RuntimeError):  # closed already: too many bytes
                await socket.close(1008, f"more than {rate.limit} messages per second")
            return
        data = message.get("bytes")
        yield data if data is not None else message.get("text") or ""


def _json_object(text: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        reason = 'a text message is a JSON object, such as {"label": "mug"}'
        raise RefusedError(422, reason)
    return parsed

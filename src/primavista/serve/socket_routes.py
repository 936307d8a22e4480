"""WebSockets: a stream of frames to recognise, and a lesson that is taught frame by frame."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from io import BytesIO
from typing import Annotated, Any

import anyio
from fastapi import APIRouter, Query, WebSocket, WebSocketDisconnect

from primavista.learner.boxed import MOTION
from primavista.media.images import ImageArray, centre_square
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
    running = _Stream(socket, service, remember)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(running.answer_frames)
            async for message in _messages(socket, service):
                if isinstance(message, bytes):
                    await running.put(message)
                elif (job := await running.obey(message)) is not None:
                    group.start_soon(running.follow, job)
            group.cancel_scope.cancel()
    finally:
        running.close()


class _Stream:
    """One stream: the newest frame, which waits to be recognised, and the commands of its client.

    The bytes of the frame count as an upload.
    """

    def __init__(self, socket: WebSocket, service: LearnerService, remember: float) -> None:
        self._socket = socket
        self._service = service
        self._clips = StreamClips(service, remember)
        self._watch, self._version = service.learner.watch(), service.snapshot.version
        self._locates = False
        self._waiting: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue(1)
        self._number = 0
        self._sending = anyio.Lock()

    async def put(self, frame: bytes) -> None:
        """Let a frame wait, in place of an older one; refuse it if there is no room."""
        self._number += 1
        if self._drop_waiting():
            self._service.metrics.count("frames_dropped")
        try:
            self._service.uploads.take(len(frame))
        except RefusedError as refused:
            await self._send({"frame": self._number, "error": refused.reason})
        else:
            self._waiting.put_nowait((self._number, frame))

    def _drop_waiting(self) -> bool:
        """Forget the frame that waits; False if there is none."""
        if self._waiting.empty():
            return False
        _, frame = self._waiting.get_nowait()
        self._service.uploads.give_back(len(frame))
        return True

    def close(self) -> None:
        """Forget all frames, because the client has gone."""
        self._drop_waiting()
        self._clips.close()

    async def answer_frames(self) -> None:
        """Recognise one frame after the other, until it is cancelled."""
        while True:
            number, frame = await self._waiting.get()
            try:
                answer = await self._answer(frame)
            except RefusedError as refused:
                answer = {"error": refused.reason}
            finally:
                self._service.uploads.give_back(len(frame))
            await self._send({"frame": number, **answer})
            for notice in await self._clips.notices():
                await self._send(notice)

    async def _answer(self, data: bytes) -> dict[str, Any]:
        """Recognise an encoded frame, and locate objects in it if the client asked for that."""
        size, limits, file = self._service.learner.size, self._service.limits, BytesIO(data)
        if not self._locates:
            return await self._recognised(await decode_frame(file, size, limits))
        picture = await decode_frame(file, WHOLE_SIDES * size, limits, whole=True)
        answer = await self._recognised(centre_square(picture, size))
        found = await find_objects(self._service, picture)
        return {**answer, "objects": found.model_dump()["objects"]}

    async def _recognised(self, image: ImageArray) -> dict[str, Any]:
        """Recognise a frame; a new version of the model starts a new last second."""
        prediction, version = await asyncio.wrap_future(self._service.predict(image))
        if version != self._version:
            self._watch, self._version = self._service.learner.watch(), version
        recent = self._watch.add(image, prediction)
        self._clips.add(image, self._watch.newest_thumbnail, recent, version)
        answer = StreamAnswer.of_stream(prediction, recent, len(self._watch), version)
        return answer.model_dump()

    async def obey(self, text: str) -> ChangeJob | None:
        """Do what a text message asks for; return the lesson, if it began one."""
        try:
            done = self._obey(_json_object(text))
        except RefusedError as refused:
            done = {"error": refused.reason}
        if isinstance(done, ChangeJob):
            return done
        await self._send(done)
        return None

    def _obey(self, command: dict[str, Any]) -> dict[str, Any] | ChangeJob:
        clips = self._clips
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
            job = self._service.teach(self._service.lesson_of(clip.frames), label)
            clips.drop(clip)
            return job
        raise RefusedError(
            422,
            'send images as binary messages, or {"clip": true}, {"teach": ID, "label": "mug"}, '
            '{"drop": ID}, {"ask": true} or {"locate": true}',
        )

    async def follow(self, job: ChangeJob) -> None:
        """Send the status of a lesson until it has ended."""
        await job.wait(STATUS_SECONDS)
        async for status in _statuses(job):
            await self._send(status)

    async def _send(self, message: dict[str, Any]) -> None:
        # RuntimeError: the socket was closed already, because the client has sent too much
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            async with self._sending:
                await self._socket.send_json(message)


@router.websocket("/api/teach")
async def teach(socket: WebSocket, service: Service) -> None:
    """Teach one lesson frame by frame.

    The client sends {"label": "mug"}, then images as binary messages, then {"end": true}. The
    service answers each with the number of frames so far, then sends the status of the lesson
    until it is done. A socket that closes before the end changes nothing. With a `box` beside the
    label, as that of `POST /api/lessons`, a square around it is learned of every frame.
    """
    await _accept(socket)
    lesson = _SocketLesson(service)
    # A client that goes away after the end has taught its lesson all the same.
    with contextlib.suppress(WebSocketDisconnect):
        try:
            job = await _receive_lesson(socket, service, lesson)
        except RefusedError as refused:
            service.metrics.count("refused")
            await socket.send_json({"error": refused.reason})
            return await socket.close(1008, refused.reason[:100])
        finally:
            lesson.close()
        if job is not None:
            async for status in _statuses(job):
                await socket.send_json(status)
            await socket.close()


async def _receive_lesson(
    socket: WebSocket, service: LearnerService, lesson: _SocketLesson
) -> ChangeJob | None:
    """Receive a lesson and submit it; None if the socket closes before its end."""
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


class _SocketLesson:
    """A lesson whose frames come over a socket, with the box around the object if there is one."""

    def __init__(self, service: LearnerService) -> None:
        self.buffer = service.learner.open_lesson()
        self.label: str | None = None
        self._service = service
        self._again = False
        self._box = ""
        self._wholes: list[ImageArray] = []  # whole frames, which are kept if motion decides
        self._bytes = 0  # of all frames that are held

    def begin(self, command: dict[str, Any]) -> None:
        """Take the name, whether the lesson may count twice, and the box."""
        self._box = command.get("box", "")
        if not isinstance(self._box, str):
            raise RefusedError(422, 'box is a text: "0.2,0.1,0.6,0.7" or "motion"')
        self._again = command.get("again") is True
        self.label = check_label(command.get("label"), self._service.learner.labels)

    async def add(self, data: bytes) -> int:
        """Decode one frame and keep what is needed of it; return the number of frames."""
        if self.label is None:
            raise RefusedError(422, 'send the name first: {"label": "mug"}')
        limits, uploads = self._service.limits, self._service.uploads
        number = max(len(self.buffer), len(self._wholes)) + 1
        if number > limits.lesson_frames:
            raise RefusedError(
                413,
                f"a lesson has at most {limits.lesson_frames} frames: end it, and begin another",
            )
        whole = self._box != ""
        side = BOXED_SIDES * self.buffer.size if whole else self.buffer.size
        with uploads.holding(len(data)):
            image = await decode_frame(BytesIO(data), side, limits, f"frame {number}", whole)
        if whole and self._box != MOTION:
            [image] = await cut_squares(self._service, [image], self._box)
        uploads.take(image.nbytes)
        self._bytes += image.nbytes
        if self._box == MOTION:
            self._wholes.append(image)
        else:
            self.buffer.add(image)
        return number

    async def submit(self) -> ChangeJob:
        """Queue the lesson; if the box is "motion", the squares are cut out of all frames first."""
        assert self.label is not None
        if self._wholes:
            squares = await cut_squares(self._service, self._wholes, MOTION)
            self.buffer = self._service.lesson_of(squares)
        return self._service.teach(self.buffer, self.label, self._again)

    def close(self) -> None:
        """Give the memory of the frames back to the budget of all uploads."""
        self._service.uploads.give_back(self._bytes)


async def _accept(socket: WebSocket) -> None:
    await socket.accept(PROTOCOL if PROTOCOL in socket.scope["subprotocols"] else None)


async def _messages(socket: WebSocket, service: LearnerService) -> AsyncIterator[bytes | str]:
    """Yield messages until the socket closes; close one that is silent or sends too fast."""
    limits = service.limits
    rate = RateLimiter(limits.messages_per_second)
    while True:
        message = None
        with anyio.move_on_after(limits.idle_seconds):
            message = await socket.receive()
        if message is None:
            await _close(socket, 1001, f"nothing came for {limits.idle_seconds:g} seconds")
            return
        if message["type"] == "websocket.disconnect":
            return
        if not rate.allow():
            service.metrics.count("refused")
            await _close(socket, 1008, f"more than {rate.limit} messages per second")
            return
        data = message.get("bytes")
        yield data if data is not None else message.get("text") or ""


async def _close(socket: WebSocket, code: int, reason: str) -> None:
    with contextlib.suppress(RuntimeError):  # closed already: too many bytes
        await socket.close(code, reason)


async def _statuses(job: ChangeJob) -> AsyncIterator[dict[str, Any]]:
    """Yield the status of a lesson until it has ended."""
    has_ended = False
    while not has_ended:
        has_ended = job.ended.done()
        yield {"lesson": JobStatus.of(job).model_dump()}
        if not has_ended:
            await job.wait(STATUS_SECONDS)


def _json_object(text: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        reason = 'a text message is a JSON object, such as {"label": "mug"}'
        raise RefusedError(422, reason)
    return parsed

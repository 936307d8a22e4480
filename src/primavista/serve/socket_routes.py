"""WebSockets: a stream of frames to recognise, and a lesson that is taught frame by frame."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from io import BytesIO
from typing import Annotated, Any, NamedTuple

import anyio
from fastapi import APIRouter, Query, WebSocket, WebSocketDisconnect

from primavista.media.images import ImageArray, centre_square
from primavista.serve.clips import StreamClips
from primavista.serve.decoding import WHOLE_SIDES, decode_frame, find_objects
from primavista.serve.journal import ChangeJob
from primavista.serve.learner_service import LearnerService
from primavista.serve.limits import RateLimiter, RefusedError, check_label
from primavista.serve.routing import Service
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
    stream shows. While one frame is recognised, only the newest of those that come is kept. `age`
    is the time in seconds from the arrival of the frame to its answer.

    With `remember` the service keeps the frames of the last seconds in memory, and text messages
    correct it: {"clip": true} keeps what was seen last, {"teach": ID, "label": "mug"} teaches it,
    {"drop": ID} forgets it, {"ask": "likely"} lets the service ask about likely answers, and
    {"ask": true} about everything that it is not sure of.

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


class _WaitingFrame(NamedTuple):
    """An encoded frame of a stream, its number, and when it came."""

    number: int
    data: bytes
    came_at: float


class _Stream:
    """One stream: the newest frame, which waits to be recognised, and the commands of its client.

    A frame waits here, where a newer one can take its place, until the service has a place for it.
    Its bytes count as an upload.
    """

    def __init__(self, socket: WebSocket, service: LearnerService, remember: float) -> None:
        self._socket = socket
        self._service = service
        self._clips = StreamClips(service, remember)
        self._watch, self._version = service.learner.watch(), service.snapshot.version
        self._locates = False
        self._waiting: _WaitingFrame | None = None
        self._came = asyncio.Event()
        self._number = 0
        self._sending = anyio.Lock()

    async def put(self, frame: bytes) -> None:
        """Let a frame wait, in place of an older one; refuse it if there is no room."""
        self._number += 1
        self._drop_waiting()
        try:
            self._service.uploads.take(len(frame))
        except RefusedError as refused:
            await self._send({"frame": self._number, "error": refused.reason})
        else:
            self._waiting = _WaitingFrame(self._number, frame, time.monotonic())
            self._came.set()

    def _drop_waiting(self) -> None:
        """Forget the frame that waits, if there is one."""
        if self._waiting is not None:
            self._service.uploads.give_back(len(self._waiting.data))
            self._waiting = None

    def close(self) -> None:
        """Forget all frames, because the client has gone."""
        self._drop_waiting()
        self._clips.close()

    async def answer_frames(self) -> None:
        """Recognise one frame after the other, until it is cancelled."""
        while True:
            await self._came.wait()
            async with self._service.stream_places:
                self._came.clear()
                frame, self._waiting = self._waiting, None
                if frame is None:  # it was replaced by one for which there was no room
                    continue
                try:
                    answer = await self._answer(frame.data)
                except RefusedError as refused:
                    answer = {"error": refused.reason}
                finally:
                    self._service.uploads.give_back(len(frame.data))
            age = round(time.monotonic() - frame.came_at, 3)
            await self._send({"frame": frame.number, **answer, "age": age})
            for notice in await self._clips.notices():
                await self._send(notice)

    async def _answer(self, data: bytes) -> dict[str, Any]:
        """Recognise an encoded frame, and locate objects in it if the client asked for that."""
        service, file = self._service, BytesIO(data)
        if not self._locates:
            return await self._recognised(await decode_frame(service, file))
        picture = await decode_frame(service, file, whole_sides=WHOLE_SIDES)
        answer = await self._recognised(centre_square(picture, service.learner.size))
        found = await find_objects(service, picture)
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
        ask = command.get("ask")
        if isinstance(ask, bool) or ask == "likely":
            clips.asks = ask
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
            '{"drop": ID}, {"ask": true}, {"ask": "likely"} or {"locate": true}',
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
    until it is done. A socket that closes before the end changes nothing.
    """
    await _accept(socket)
    # A client that goes away after the end has taught its lesson all the same.
    with contextlib.suppress(WebSocketDisconnect):
        try:
            with contextlib.ExitStack() as held:
                job = await _receive_lesson(socket, service, held)
        except RefusedError as refused:
            await socket.send_json({"error": refused.reason})
            return await socket.close(1008, refused.reason[:100])
        if job is not None:
            async for status in _statuses(job):
                await socket.send_json(status)
            await socket.close()


async def _receive_lesson(
    socket: WebSocket, service: LearnerService, held: contextlib.ExitStack
) -> ChangeJob | None:
    """Receive a lesson and submit it.

    Args:
        socket: The WebSocket.
        service: The service.
        held: Gives the memory of the frames back to the budget of all uploads.

    Returns:
        The job, or None if the socket closes before the end of the lesson.
    """
    messages = _messages(socket, service)
    first = await anext(messages, None)
    if first is None:
        return None
    if isinstance(first, bytes):
        raise RefusedError(422, 'send the name first: {"label": "mug"}')
    command = _json_object(first)
    label = check_label(command.get("label"), service.learner.labels)
    await socket.send_json({"frames": 0})
    lesson = service.learner.open_lesson()
    async for message in messages:
        if isinstance(message, str):
            if _json_object(message).get("end") is not True:
                raise RefusedError(422, 'send images, then {"end": true}')
            return service.teach(lesson, label, command.get("again") is True)
        number, limit = len(lesson) + 1, service.limits.lesson_frames
        if number > limit:
            reason = f"a lesson has at most {limit} frames: end it, and begin another"
            raise RefusedError(413, reason)
        with service.uploads.holding(len(message)):
            image = await decode_frame(service, BytesIO(message), f"frame {number}")
        held.enter_context(service.uploads.holding(image.nbytes))
        lesson.add(image)
        await socket.send_json({"frames": number})
        await service.in_thread(lesson.prepare)
    return None


async def _accept(socket: WebSocket) -> None:
    await socket.accept(PROTOCOL if PROTOCOL in socket.scope["subprotocols"] else None)


async def _messages(socket: WebSocket, service: LearnerService) -> AsyncIterator[bytes | str]:
    """Yield messages until the socket closes; close one that is silent or sends too fast."""
    limits = service.limits
    rate = RateLimiter(limits.messages_per_second)
    while True:
        try:
            async with asyncio.timeout(limits.idle_seconds):
                message = await socket.receive()
        except TimeoutError:
            await _close(socket, 1001, f"nothing came for {limits.idle_seconds:g} seconds")
            return
        if message["type"] == "websocket.disconnect":
            return
        if not rate.allow():
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

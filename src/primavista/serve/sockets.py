"""WebSockets: a stream of frames to recognise, and a lesson that is given frame by frame."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
from fastapi import APIRouter, WebSocket, WebSocketDisconnect

from primavista.serve import uploads
from primavista.serve.common import TheEngine, TheHands, ended
from primavista.serve.engine import Engine, Job
from primavista.serve.limits import Rate, RefusedError, check_label
from primavista.serve.schemas import Lesson
from primavista.serve.security import PROTOCOL
from primavista.serve.teaching import recognise, submit_lesson
from primavista.serve.uploads import Hands

router = APIRouter()
TICK = 0.1  # seconds between two words about the progress of a lesson


@router.websocket("/api/stream")
async def stream(socket: WebSocket, engine: TheEngine, hands: TheHands) -> None:
    """Binary in: an image. JSON out: what it shows. While one is recognised only the newest of those that come is kept."""
    await _accept(socket)
    latest: asyncio.Queue[tuple[int, bytes | str]] = asyncio.Queue(1)

    async def answer() -> None:
        with contextlib.suppress(WebSocketDisconnect):
            while True:
                number, frame = await latest.get()
                await socket.send_json({"frame": number, **await _recognised(engine, hands, frame)})

    async with anyio.create_task_group() as group:
        group.start_soon(answer)
        number = 0
        async for message in _messages(socket, engine):
            number += 1
            if latest.full():
                latest.get_nowait()
                engine.metrics.count("frames_dropped")
            latest.put_nowait((number, message))
        group.cancel_scope.cancel()


@router.websocket("/api/teach")
async def teach(socket: WebSocket, engine: TheEngine, hands: TheHands) -> None:
    """One lesson. In: {"label": "mug"}, then images (binary), then {"end": true}. Out: how many came, then the lesson's state.

    A socket that closes before the end leaves everything as it was.
    """
    await _accept(socket)
    with contextlib.suppress(
        WebSocketDisconnect
    ):  # who goes away after the end is taught all the same
        try:
            job = await _lesson(socket, engine, hands)
        except RefusedError as refused:
            engine.metrics.count("refused")
            await socket.send_json({"error": refused.reason})
            await socket.close(1008, refused.reason[:100])
            return
        while job is not None:
            last = job.ended.done()
            await socket.send_json({"lesson": Lesson.of(job).model_dump()})
            if last:
                return await socket.close()
            await ended(job, TICK)


async def _lesson(socket: WebSocket, engine: Engine, hands: Hands) -> Job | None:
    label, again, lesson, limits = None, False, engine.live.learner.open_lesson(), engine.limits
    async for message in _messages(socket, engine):
        if isinstance(message, str):
            said = _object(message)
            if label is None:
                label, again = (
                    check_label(said.get("label"), engine.live.learner.labels),
                    said.get("again") is True,
                )
                await socket.send_json({"frames": 0})
            elif said.get("end") is True:
                return submit_lesson(engine, lesson, label, again)
            else:
                raise RefusedError(422, 'send images, then {"end": true}')
            continue
        if label is None:
            raise RefusedError(422, 'say the name first: {"label": "mug"}')
        if len(lesson) >= limits.frames:
            raise RefusedError(
                413, f"a lesson has at most {limits.frames} frames: end it, and begin another"
            )
        image = await hands.quick(
            uploads.image, message, lesson.size, limits, f"frame {len(lesson) + 1}"
        )
        lesson.add(image)
        await socket.send_json({"frames": len(lesson)})
        await hands.long(lesson.prepare)
    return None


async def _accept(socket: WebSocket) -> None:
    asked = socket.headers.get("sec-websocket-protocol", "")
    await socket.accept(
        PROTOCOL if PROTOCOL in [name.strip() for name in asked.split(",")] else None
    )


async def _messages(socket: WebSocket, engine: Engine) -> AsyncIterator[bytes | str]:
    """What comes, until the socket closes; one that is silent for long, or sends too fast, is closed."""
    rate = Rate(engine.limits.fps)
    while True:
        message = None
        with anyio.move_on_after(engine.limits.idle):
            message = await socket.receive()
        if message is None:
            await socket.close(1001, f"nothing came for {engine.limits.idle:g} seconds")
            return
        if message["type"] == "websocket.disconnect":
            return
        if not rate.allows():
            engine.metrics.count("refused")
            await socket.close(1008, f"more than {engine.limits.fps} messages a second")
            return
        data = message.get("bytes")
        yield data if data is not None else message.get("text") or ""


async def _recognised(engine: Engine, hands: Hands, frame: bytes | str) -> dict[str, Any]:
    try:
        if isinstance(frame, str):
            raise RefusedError(422, "send images, as binary messages")
        image = await hands.quick(uploads.image, frame, engine.live.learner.size, engine.limits)
        return (await recognise(engine, image)).model_dump()
    except RefusedError as refused:
        return {"error": refused.reason}


def _object(text: str) -> dict[str, Any]:
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise RefusedError(
            422, 'a text message is a JSON object: {"label": "mug"} or {"end": true}'
        )
    return said

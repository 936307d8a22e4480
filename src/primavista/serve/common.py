"""What every route needs: the engine, the threads, and waiting for a job."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Annotated, Any

from fastapi import Depends
from fastapi.requests import HTTPConnection

from primavista.serve.engine import Engine, Job
from primavista.serve.limits import RefusedError
from primavista.serve.schemas import Problem
from primavista.serve.uploads import Hands

REASONS = {
    400: "the body cannot be parsed",
    401: "a token is needed",
    403: "another page or another name asks",
    404: "there is no such thing",
    408: "the body came too slowly",
    409: "what is known does not allow it",
    413: "too large: bytes, pixels or frames",
    422: "the contents make no sense",
    429: "too much at once: try again in a moment",
}


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """For OpenAPI: how a route may refuse, beside what the guard around all of them does."""
    return {
        s: {"model": Problem, "description": REASONS[s]} for s in sorted({401, 403, 429, *statuses})
    }


def _engine(connection: HTTPConnection) -> Engine:
    engine: Engine = connection.app.state.engine
    return engine


def _hands(connection: HTTPConnection) -> Hands:
    hands: Hands = connection.app.state.hands
    return hands


TheEngine = Annotated[Engine, Depends(_engine)]
TheHands = Annotated[Hands, Depends(_hands)]


async def ended(job: Job, seconds: float) -> bool:
    """Wait for a job; False where it takes longer. A client that goes away does not end it."""
    done, _ = await asyncio.wait([asyncio.wrap_future(_view(job))], timeout=seconds)
    return bool(done)


def _view(job: Job) -> Future[None]:
    """A future of its own for each who waits: cancelling one leaves the job's alone."""
    view: Future[None] = Future()
    job.ended.add_done_callback(
        lambda _: view.set_result(None) if view.set_running_or_notify_cancel() else None
    )
    return view


async def outcome(engine: Engine, job: Job) -> None:
    """Wait until a small change is done, behind the lessons before it; refuse as it was refused."""
    if not await ended(job, engine.limits.wait):
        raise RefusedError(
            429,
            "lessons before this one take long; it is done after them: GET /api/model shows when",
        )
    if job.state == "failed":
        raise RefusedError(409, job.error or "it failed")

"""`primavista teach`: starts the service for one model and opens its page in a browser."""

from __future__ import annotations

import os
import secrets
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from threading import Thread
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from primavista.cli.arguments import (
    ImageSize,
    Threshold,
    printable,
    register_named,
    warn_of_password,
)
from primavista.errors import InputError, require_extra

TOKEN_BYTES = 24  # of chance in a token that nobody chose
MAX_NAMES = 8  # objects that are listed when the service starts


def teach(
    model: Annotated[Path, typer.Argument()] = Path("objects.pv"),
    host: str = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8765,
    browser: Annotated[bool, typer.Option("--browser/--no-browser")] = True,
    token: Annotated[str | None, typer.Option(envvar="PRIMAVISTA_TOKEN")] = None,
    no_token: bool = False,
    tls: tuple[Path, Path] | None = None,
    camera: str | None = None,
    strategy: str | None = None,
    size: ImageSize = None,
    threshold: Threshold = None,
    device: str = "auto",
) -> None:
    """Teach objects in front of your camera: a page where you show an object and name it.

    Robots and scripts can do the same over HTTP and WebSocket (docs/guides/live.md). Every lesson
    is saved in MODEL before it counts as done; no frame is kept.

    Args:
        model: The file to teach; it is created if it does not exist.
        host: Address to listen on. One that other machines can reach needs a token, and --tls for
            their cameras.
        port: Port to listen on; 0 chooses a free one.
        browser: Open the page in a browser.
        token: Token that every request must carry (Authorization: Bearer TOKEN); by default a new
            one, which is in the printed link. Other users of this machine see the options of a
            command: better set the environment variable.
        no_token: Let every program and every user of this machine teach and ask without a token.
        tls: Certificate and key (PEM), to serve https.
        camera: A camera of this machine or network for the service itself: camera:0, rtsp://...,
            http://... or env:NAME. Whoever has the token sees its picture.
    """
    # one half of the processors recognises while the other half learns; read by libraries when they
    # are first imported
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 2) // 2)))
    for module in ("uvicorn", "fastapi", "multipart"):
        require_extra(module, "live")
    from primavista.serve.security import check_token
    from primavista.serve.server import open_for_teaching, serve
    from primavista.storage.disk import resolved

    warn_of_password(camera or "")
    token = _chosen_token(token, no_token)
    check_token(host, token)
    register_named(strategy)

    def ready(*addresses: str) -> None:
        pages = [f"{one}/#token={token}" if token else f"{one}/" for one in addresses]
        _announce(model, learner.labels, pages)
        if browser:
            Thread(target=webbrowser.open, args=(pages[0],), daemon=True).start()

    path = resolved(model)
    options: dict[str, Any] = {"strategy": strategy, "size": size, "threshold": threshold}
    with open_for_teaching(path, device, **options) as learner:
        serve(learner, path, host=host, port=port, token=token, tls=tls, camera=camera, ready=ready)


def _chosen_token(token: str | None, no_token: bool) -> str | None:
    """Return the given token, none if none is wanted, or a new one."""
    if no_token and token:
        raise InputError(
            "a token is given, and --no-token asks for none: leave one of them out "
            "(the token may come from the environment variable PRIMAVISTA_TOKEN)"
        )
    if no_token:
        return None
    return token or secrets.token_urlsafe(TOKEN_BYTES)


def _announce(model: Path, labels: Sequence[str], pages: Sequence[str]) -> None:
    """Print the address of the page, the one for other machines, and what the file knows."""
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold]{escape(printable(model.name))}[/bold] can be taught at")
    console.print(f"  [bold cyan]{escape(pages[0])}[/bold cyan]")
    for page in pages[1:]:
        console.print(f"and from other machines at\n  [bold cyan]{escape(page)}[/bold cyan]")
    if labels:
        names = ", ".join(map(printable, labels[:MAX_NAMES]))
        console.print(escape(f"It knows {names}{' ...' if len(labels) > MAX_NAMES else ''}"))
    console.print("Press Ctrl-C to stop; everything learned by then is on disk.")

"""`primavista teach`: starts the service for one model and opens its page in a browser."""

from __future__ import annotations

import os
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from threading import Thread
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from primavista.cli.arguments import MAX_SIZE, MIN_SIZE, printable, register_named
from primavista.errors import require_extra

MAX_NAMES = 8  # objects that are listed when the service starts


def teach(
    model: Annotated[
        Path, typer.Argument(help="The file to teach; it is created if it does not exist.")
    ] = Path("objects.pv"),
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on. One that other machines can reach needs --token, "
            "and --tls for their cameras."
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port to listen on; 0 chooses a free one.", min=0, max=65535)
    ] = 8765,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")
    ] = True,
    token: Annotated[
        str | None,
        typer.Option(
            help="Token that every request must carry (Authorization: Bearer TOKEN).",
            envvar="PRIMAVISTA_TOKEN",
        ),
    ] = None,
    tls: Annotated[
        tuple[Path, Path] | None, typer.Option(help="Certificate and key (PEM), to serve https.")
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option(
            help="Strategy of a new model: prima (default), 'cwr*', ..., or package.module:Class."
        ),
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(
            help="Side in pixels of the images that a new model reads (default: 192).",
            min=MIN_SIZE,
            max=MAX_SIZE,
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            help="Familiarity from which a frame counts as known, 0 to 1; 0.9 in a new model.",
            min=0,
            max=1,
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Teach objects in front of your camera: a page where you show an object and name it.

    Robots and scripts can do the same over HTTP and WebSocket (docs/guides/live.md). Every lesson
    is saved in MODEL before it counts as done; no frame is kept.
    """
    require_extra("uvicorn", "live")
    require_extra("fastapi", "live")
    require_extra("multipart", "live")
    import torch

    from primavista.serve.security import check_token
    from primavista.serve.server import open_for_teaching, serve
    from primavista.storage.lock import resolved

    check_token(host, token)
    register_named(strategy)
    if not os.environ.get("OMP_NUM_THREADS"):  # one half recognises while the other half learns
        torch.set_num_threads(max(1, (os.cpu_count() or 2) // 2))

    def ready(address: str) -> None:
        page = f"{address}/#token={token}" if token else f"{address}/"
        _announce(model, learner.labels, page)
        if browser:
            Thread(target=webbrowser.open, args=(page,), daemon=True).start()

    path = resolved(model)
    options = {"strategy": strategy, "size": size}
    with open_for_teaching(path, device, threshold=threshold, **options) as learner:
        serve(learner, path, host=host, port=port, token=token, tls=tls, ready=ready)


def _announce(model: Path, labels: Sequence[str], page: str) -> None:
    """Print the address of the page, on a line of its own."""
    names = [printable(label) for label in labels[:MAX_NAMES]]
    known = ", ".join(names) or "nothing taught yet"
    if len(labels) > MAX_NAMES:
        known += " ..."
    console = Console(highlight=False, soft_wrap=True)
    name = f"[bold]{escape(printable(model.name))}[/bold]"
    console.print(f"{name} ({escape(known)}) can be taught at")
    console.print(f"  [bold cyan]{escape(page)}[/bold cyan]")
    console.print("Press Ctrl-C to stop; everything learned by then is on disk.")

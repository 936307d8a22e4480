"""`primavista page`: the page that learns in the browser, without a server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from primavista.cli.arguments import printable


def page(
    out: Path,
    model: Annotated[Path | None, typer.Option("--model")] = None,
) -> None:
    """Write the page that learns in the browser, on the device itself, without a server.

    A name that ends in .html gives one file, which works from a double click, such as on a USB
    stick. Any other name gives a folder for a web host; it works without a network after the first
    visit, and a phone can install it. The page stores no frame, and sends nothing anywhere.

    Example: `primavista page kitchen.html --model kitchen.pv`

    Args:
        out: The HTML file or the folder.
        model: A learner that the page begins with (strategy prima or ncm).
    """
    from primavista.web.pack import write_page

    written = write_page(out, model)
    listed = [written] if written.is_file() else sorted(written.iterdir())
    megabytes = sum(path.stat().st_size for path in listed) / 1e6
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"{printable(str(written))}: {megabytes:.1f} MB", markup=False)
    if written.is_dir():
        console.print(
            "Put the folder on any web host. Cameras need https or localhost; to try it here: "
            f"python -m http.server --bind 127.0.0.1 --directory {printable(str(written))}",
            markup=False,
        )

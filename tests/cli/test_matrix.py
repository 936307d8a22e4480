"""`primavista data matrix`: the paper's tab:nic on the terminal."""

from __future__ import annotations

from typer.testing import CliRunner

from primavista.cli.app import app


def test_the_papers_row_of_nicv2_196():
    """tab:nic: 196 batches.

    10 classes and 3,000 images in the first, 2 classes and 600 images in the others.
    """
    done = CliRunner().invoke(
        app, ["data", "matrix", "rendered:frames=300,size=32", "--protocol", "nicv2-196"]
    )
    assert done.exit_code == 0, done.output
    cells = [
        cell.strip()
        for line in done.output.splitlines()
        if "nicv2-196" in line
        for cell in line.strip("│┃ ").split("│")
    ]
    assert cells == [
        "nicv2-196",
        "196",
        "10",
        "3000",
        "1 to 2",
        "600",
    ]  # two sessions of one class count as one class

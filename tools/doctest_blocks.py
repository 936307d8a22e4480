"""Griffe extension that turns examples in docstrings (`>>>`) into code blocks of the reference."""

from __future__ import annotations

from typing import Any

import griffe


def fence_examples(text: str) -> str:
    r"""Put every example into a code block. An example ends at an empty line.

    Args:
        text: a docstring.

    >>> fence_examples("Adds.\n>>> 1 + 1\n2").splitlines()
    ['Adds.', '', '```pycon', '>>> 1 + 1', '2', '```']
    """
    lines: list[str] = []
    indent: str | None = None  # the indentation of the open block
    for line in [*text.splitlines(), ""]:
        if indent is None and line.lstrip().startswith(">>> "):
            indent = line[: len(line) - len(line.lstrip())]
            lines += ["", f"{indent}```pycon"]
        elif indent is not None and not line.strip():
            lines.append(f"{indent}```")
            indent = None
        lines.append(line)
    return "\n".join(lines[:-1])


class DoctestBlocks(griffe.Extension):
    """Applies `fence_examples` to every docstring that has an example outside of a section."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite one docstring.

        Args:
            obj: what the docstring belongs to.
            **kwargs: not used.
        """
        text = obj.docstring.value if obj.docstring else ""
        if obj.docstring and ">>> " in text and "Examples:" not in text:
            obj.docstring.value = fence_examples(text)

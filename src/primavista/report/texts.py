"""The templates of the report, its sentences, and text that is safe in documents."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from primavista.errors import require_extra


@cache
def templates() -> Any:
    """Return the templates; those for HTML escape every text that is not marked as safe."""
    jinja2 = require_extra("jinja2", "plots")
    environment = jinja2.Environment(
        autoescape=jinja2.select_autoescape(["html.jinja"]),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        loader=jinja2.PackageLoader("primavista.report", "."),
    )
    environment.filters.update(latex=escape_latex, markdown=escape_markdown, listed=listed)
    return environment


def listed(texts: Sequence[str], last: str = "and") -> str:
    """Join texts, as in `a, b and c`; `last` is the last word between them."""
    if len(texts) < 2:
        return "".join(texts)
    return f"{', '.join(texts[:-1])} {last} {texts[-1]}"


def write_texts(place: str, **values: Any) -> tuple[str, ...]:
    """Return the paragraphs of a place in the report, in plain text; `texts.jinja` has them.

    Args:
        place: The name of the macro.
        **values: Its arguments.
    """
    macro = getattr(templates().get_template("texts.jinja").module, place)
    paragraphs = str(macro(**values)).split("\n\n")
    return tuple(" ".join(one.split()) for one in paragraphs if one.strip())


def escape_markdown(text: str) -> str:
    """Return any text in a form that Markdown shows as it is.

    >>> print(escape_markdown("AR1* | <b>"))
    AR1\\* \\| &lt;b>
    """
    safe = re.sub(r"([\\`*_|\[\]~])", r"\\\1", text.replace("&", "&amp;").replace("<", "&lt;"))
    return " ".join(safe.split())


_LATEX = str.maketrans(
    {letter: f"\\{letter}" for letter in "&%$#_{}"}
    | {letter: f"{{{letter}}}" for letter in "[]"}
    | dict.fromkeys("\n\r", " ")
    | {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': r"{\char34}",
        "±": r"$\pm$",
        "−": r"$-$",
        "–": "--",
        "≤": r"$\le$",
        "≥": r"$\ge$",
        "×": r"$\times$",
        "→": r"$\to$",
        "…": r"\ldots{}",
        "“": "``",
        "”": "''",
        "’": "'",
    }
)


def escape_latex(text: str) -> str:
    """Return any text in a form that is safe in LaTeX.

    Letters of other scripts stay as they are; they need XeLaTeX or LuaLaTeX.

    >>> print(escape_latex("50% of a_b & c"))
    50\\% of a\\_b \\& c
    """
    return text.translate(_LATEX)

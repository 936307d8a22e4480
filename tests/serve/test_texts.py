"""The texts of the page: each language has them all."""

from __future__ import annotations

import re
from importlib.resources import files

PAGE = files("primavista.serve") / "page"
NAME = re.compile(r"^  (\w+)(?:: (\([^)]*\) =>|\w+ =>)?|,$)", re.M)


def texts(file: str, start: str) -> dict[str, bool]:
    """The names of the texts of one language, and whether each is a function."""
    source = (PAGE / file).read_text(encoding="utf-8")
    table = source[source.index(start) :].split("\n};", 1)[0]
    return {found[1]: bool(found[2]) for found in NAME.finditer(table)}


def test_both_languages_have_all_texts() -> None:
    english = texts("texts.js", "const ENGLISH = {")
    italian = texts("italian.js", "export const ITALIAN = {")
    assert len(english) > 100
    assert english.keys() == italian.keys()
    functions = {"frames": True, "objectsCount": True}  # in Italian the names of functions
    assert english == {**italian, **functions}


def test_the_page_names_only_texts_that_exist() -> None:
    html = (PAGE / "index.html").read_text(encoding="utf-8")
    named = set(re.findall(r'data-(?:text|label|placeholder)="(\w+)"', html))
    assert named
    assert named <= texts("texts.js", "const ENGLISH = {").keys()

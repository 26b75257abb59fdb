"""The chapters' glossaries, made from one data file: notebooks/glossary.toml.

A term has one Chinese counterpart in the whole course. Its meaning is that of a chapter, in the chapter's own words.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

PLACE = "{glossary}"  # where a chapter's source has its table


class GlossaryError(ValueError):
    """The data file says something twice, or not at all; the message is for its author."""


@dataclass(frozen=True)
class Term:
    """A term of the course.

    Attributes:
        en: in English.
        zh: in Chinese.
        meanings: by chapter, such as "ch02".
    """

    en: str
    zh: str
    meanings: dict[str, str] = field(default_factory=dict)


def read_terms(path: Path) -> list[Term]:
    """All terms, in the order of the file.

    Raises:
        GlossaryError: a field is missing or unknown, a term stands there twice or out of order, or one English term has
            two Chinese ones.
    """
    terms = [_term(entry) for entry in tomllib.loads(path.read_text(encoding="utf-8")).get("term", [])]
    names = [term.en for term in terms]
    if twice := [name for name in names if names.count(name) > 1]:
        raise GlossaryError(f"{path.name}: {twice[0]!r} stands there twice; one entry has the meanings of all chapters")
    if names != sorted(names, key=str.casefold):
        late = next(b for a, b in pairwise(names) if a.casefold() > b.casefold())
        raise GlossaryError(f"{path.name}: {late!r} is out of alphabetical order")
    return terms


def glossary_table(terms: list[Term], chapter: str) -> str:
    """A chapter's table, in Markdown.

    Raises:
        GlossaryError: no term has a meaning there.
    """
    rows = [f"| {term.en} | {term.zh} | {term.meanings[chapter]} |" for term in terms if chapter in term.meanings]
    if not rows:
        raise GlossaryError(f"the glossary has no term of {chapter}")
    return "\n".join(["| English | 中文 | meaning |", "|---|---|---|", *rows])


def _term(entry: dict[str, str]) -> Term:
    meanings = {key: text for key, text in entry.items() if key.startswith("ch") and key[2:].isdigit()}
    missing = [key for key in ("en", "zh") if not entry.get(key)]
    unknown = [key for key in entry if key not in ("en", "zh", *meanings)]
    if missing or unknown or not meanings or not all(meanings.values()):
        raise GlossaryError(f"a term has en, zh, and a meaning in a chapter or more (chNN); got {entry}")
    return Term(entry["en"], entry["zh"], meanings)

"""Reads the pages in docs/ for the tests that keep them honest: code blocks, commands, tables, quoted messages."""

import ast
import re
import shlex
from functools import cache
from pathlib import Path

from dtlearn.cli import build_parser

ROOT = Path(__file__).resolve().parents[1]
HOLE = "\0"  # stands for a value in the text of an f-string, and for ... in a guide
LEAST = 12  # letters of a quoted message that are the source's own


def blocks(text: str, language: str) -> list[str]:
    """The code blocks of a page in a language ("" for those that name none)."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def code_spans(text: str) -> list[str]:
    """What stands between backticks outside of blocks."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL))


def commands(text: str) -> list[list[str]]:
    """All `dtlearn ...` commands of a page, in blocks and in lines, as words behind `dtlearn`."""
    lines = [
        line
        for _, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S)
        for line in block.replace("\\\n", "").splitlines()
    ]
    found = [line for line in [*lines, *code_spans(text)] if re.match(r"(\.venv/bin/)?dtlearn \S", line)]
    return [shlex.split(line, comments=True)[1:] for line in found]


def parses(words: list[str]) -> bool:
    """Whether the command line takes these words. A bare name, as in "`dtlearn node` says", must be a command."""
    parser = build_parser()
    if len(words) == 1:
        return words[0] in next(a.choices for a in parser._actions if a.dest == "command")
    try:
        parser.parse_args(words)
    except SystemExit as end:
        return end.code == 0
    return True


def options_of(command: str) -> set[str]:
    """The options that a command knows."""
    known = next(a.choices for a in build_parser()._actions if a.dest == "command")[command]
    return set(known._option_string_actions)


def messages(text: str) -> list[str]:
    """The first column of the tables whose head begins with "message"."""
    rows = re.findall(r"^\| message \|.*\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    return [re.match(r"\| `([^`]+)` \|", line)[1] for row in rows for line in row.splitlines()]


@cache
def source_texts() -> list[str]:
    """Every string in the package, with HOLE for each value of an f-string; lines are joined."""
    found = []
    for file in sorted((ROOT / "dtlearn").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                found.append("".join(p.value if isinstance(p, ast.Constant) else HOLE for p in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return [" ".join(text.split()) for text in found]


def is_said(quote: str, texts: list[str]) -> bool:
    """Whether a quoted message, `...` for what differs, is part of one of the texts."""
    words = " ".join(quote.replace("...", HOLE).split())
    assert len(words.replace(HOLE, "").strip()) >= LEAST, f"too short to mean anything: {quote}"
    return any(words.strip(HOLE).strip() in text for text in texts)

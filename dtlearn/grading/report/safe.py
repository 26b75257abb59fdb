"""Makes texts that a learner's code has chosen safe to show: no control characters, no paths of the machine, not long.

What a syntax needs beyond that (`<` in HTML, quotes in CSV) is left to the writer of that syntax.
"""

import re
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

from ..verdict import Result, Verdict

MOST = 4_000  # characters of one text
MOST_SENTENCE = 600  # of a text that is one line
MOST_NAME = 80
MOST_LINE = 400
MOST_LINES = 200

# CSI ("\x1b[31m"), strings such as a window's title ("\x1b]0;...\x07"), and short escapes. What is left over of a
# broken one loses its first character below.
_ANSI = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|\x1b[\]PX^_][^\x07\x1b\n]{0,2000}(?:\x07|\x1b\\)"
    r"|\x1b[ -/]+[0-~]"
    r"|\x1b[@-Z\\^_=>]"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
# Characters that turn the direction of the text round, or have no width: what is read is not what is there.
_INVISIBLE = re.compile("[\u200b\u200e\u200f\u061c\u202a-\u202e\u2060-\u2069\ufeff]")
_NO_CHARACTER = re.compile("[\ud800-\udfff\ufffe\uffff]")
_FORMULA = tuple("=+-@＝＋－＠")

_QUOTED_PATH = re.compile(r"""(["'`])((?:file://)?/[^"'`\n/]+/[^"'`\n]*)\1""")
_PLAIN_PATH = re.compile(
    r"(?:file://|(?<![\w)\]}./:~<-]))/(?:[^\s/\"'`<>:,;()\[\]]+/)+[^\s/\"'`<>:,;()\[\]]*"
    r"|(?<!\w)[A-Za-z]:[\\/](?:[^\\/:*?\"'<>|\n]+[\\/])*[^\\/:*?\"'<>|\s]*"
)
_LIBRARIES = re.compile(r"(?:site-packages|dist-packages|python3\.\d+)")
_KEPT_FROM = ("exercises", "solutions", "dtlearn")


def plain(text: str, most: int = MOST) -> str:
    """A text without escapes, control characters, broken Unicode and absolute paths; long ones lose their middle."""
    if len(text) <= most:
        return _plain(text)
    head, tail = text[: most * 3 // 4], text[-(most // 4) :]
    if (gap := re.search(r"\s\S*\Z", head)) and gap.start():  # half a path would not be seen to be one
        head = head[: gap.start()]
    if gap := re.search(r"\s", tail):
        tail = tail[gap.start() :]
    left_out = len(text) - len(head) - len(tail)
    return f"{_plain(head)} [... {left_out:,} characters left out ...] {_plain(tail)}"


def one_line(text: str, most: int = MOST_SENTENCE) -> str:
    """The same on a single line."""
    return " ".join(plain(text, most).split())


def lines_of(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Lines, each short enough and not too many of them."""
    lines = [part for text in texts[: 2 * MOST_LINES] for part in plain(text).split("\n")]
    lines += [f"[... {len(texts) - 2 * MOST_LINES:,} lines left out ...]"] if len(texts) > 2 * MOST_LINES else []
    if len(lines) > MOST_LINES:
        keep = MOST_LINES // 2
        lines = [*lines[:keep], f"[... {len(lines) - 2 * keep:,} lines left out ...]", *lines[-keep:]]
    return tuple(_short_line(line.rstrip()) for line in lines)


def safe_verdict(verdict: Verdict) -> Verdict:
    """The verdict with every text made safe."""
    return replace(
        verdict,
        exercise=one_line(verdict.exercise, MOST_NAME),
        title=one_line(verdict.title, 2 * MOST_NAME),
        tier=one_line(verdict.tier, MOST_NAME),
        results=tuple(_safe_result(r) for r in verdict.results),
        isolation=one_line(verdict.isolation),
        versions={one_line(k, MOST_NAME): one_line(v, MOST_NAME) for k, v in verdict.versions.items()},
        notes=tuple(one_line(n) for n in verdict.notes),
    )


def csv_cell(text: str) -> str:
    """A text that no spreadsheet takes for a formula: such ones get an apostrophe before them.

    Source: CWE-1236; OWASP, "CSV Injection"; OWASP ASVS 5, requirement 1.2.10.
    """
    # A file written for another locale may have its columns at semicolons: none may begin a formula.
    line = re.sub(r"([;\t])(?=\s*[=+\-@])", r"\1'", one_line(text))
    return f"'{line}" if line.startswith(_FORMULA) else line


def hide_paths(text: str) -> str:
    """Absolute paths become their last part, or the part that says which file of the course or library it is."""
    for root in _roots_with_spaces():
        text = text.replace(root + "/", "/x/").replace(root, "~")
    text = _QUOTED_PATH.sub(lambda m: f"{m[1]}{_shown_of(m[2])}{m[1]}", text)
    return _PLAIN_PATH.sub(lambda m: _shown_of(m[0]), text)


def _safe_result(result: Result) -> Result:
    return replace(
        result,
        case=one_line(result.case, MOST_NAME),
        code=one_line(result.code, MOST_NAME),
        headline=one_line(result.headline),
        details=lines_of(result.details),
        advice=one_line(result.advice),
    )


def _plain(text: str) -> str:
    text = _ANSI.sub("", text)
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\u2028", "\n").replace("\u2029", "\n")
    text = _CONTROL.sub("", text)
    text = _NO_CHARACTER.sub("\ufffd", _INVISIBLE.sub("", text))
    return hide_paths(text.expandtabs(4))


def _short_line(line: str) -> str:
    return line if len(line) <= MOST_LINE else f"{line[: MOST_LINE - 30]} [... {len(line) - MOST_LINE + 30:,} more]"


def _shown_of(path: str) -> str:
    """ "/home/ada/course/exercises/ch01/x.py" -> "exercises/ch01/x.py"; "/tmp/a/b.log" -> "b.log"."""
    if path.startswith("/dev/"):
        return path
    parts = [p for p in re.split(r"[\\/]+", path.removeprefix("file://")) if p]
    if len(parts) <= 2 and parts[:1] in (["home"], ["Users"]):
        return "~"
    for at in range(len(parts) - 1, 0, -1):
        if _LIBRARIES.fullmatch(parts[at - 1]):
            return "/".join(parts[at:])
        if parts[at - 1] in _KEPT_FROM:
            return "/".join(parts[at - 1 :])
    return parts[-1] if parts else path


@cache
def _roots_with_spaces() -> tuple[str, ...]:
    """Folders that the patterns would cut at a space."""
    return tuple(root for root in (str(Path.home()), tempfile.gettempdir()) if " " in root)

"""Hand-ins whose texts are odd: other codings, huge literals, deep syntax; notebooks and archives that cost much."""

import codecs
import io
import json
import os
import zipfile
from pathlib import Path

from .hand_in import NAME, RIGHT, HandIn, text

_REFUSED = ("DTL-UNREADABLE",)
_SYNTAX = ("DTL-SYNTAX", "DTL-LIMIT")
_SLOW = ("DTL-LIMIT", "DTL-LOOP", "DTL-TIMEOUT", "DTL-STRAGGLER", "DTL-RANK-STOPPED", "DTL-RANK-KILLED")


def _lines(count: int, line: str) -> str:
    return "".join(line.format(k) for k in range(count))


SOURCES: list[HandIn] = [
    # Harmless, though odd: they get their points.
    text("bom", "a mark of the byte order before a right answer", codecs.BOM_UTF8 + RIGHT.encode(), ""),
    text("long-line", "a literal of 900 kB in one line, before a right answer", f"x = '{'a' * 900_000}'\n{RIGHT}", ""),
    text("returns", "lines that end as on an old Macintosh", RIGHT.replace("\n", "\r"), ""),
    text("form-feeds", "a new page before every line", RIGHT.replace("\nimport", "\n\fimport"), ""),
    text("utf-16", "a text in UTF-16", RIGHT.encode("utf-16"), *_REFUSED),
    text("utf-32", "a text in UTF-32, without its mark", RIGHT.encode("utf-32-le"), *_SYNTAX),
    text("half-character", "half a character, as bytes", b"x = '\xed\xa0\x80'\n" + RIGHT.encode(), *_REFUSED),
    text("overlong", "a slash of two bytes", b"x = '\xc0\xaf'\n" + RIGHT.encode(), *_REFUSED),
    text("rot13", "a coding that is a cipher", "# -*- coding: rot13 -*-\n" + codecs.encode(RIGHT, "rot13"), *_SYNTAX),
    text("look-alikes", "a name in other letters", RIGHT.replace("average", "аverage"), "DTL-RAISED"),
    text("turned", "characters that turn the text round", RIGHT.replace("return", "return\u202e"), *_SYNTAX),
    text("literal-5-mb", "a literal of 5 MB in one line", f"x = '{'a' * 5_000_000}'\n{RIGHT}", *_REFUSED),
    text(
        "elif-chain",
        "20,000 branches",
        f"x = 0\nif x: pass\n{_lines(20_000, 'elif x == {}: pass' + chr(10))}",
        *_SYNTAX,
    ),
    text("lambdas", "5,000 lambdas, one in the other", "x = " + "lambda: " * 5_000 + "0\n" + RIGHT, *_SYNTAX),
    text("plus", "200,000 sums in a sum", "x = " + "1+" * 200_000 + "1\n" + RIGHT, *_SYNTAX, *_SLOW, ""),
    text(
        "lists", "a list of lists, 90 deep, a thousand times", ("x = " + "[" * 90 + "]" * 90 + "\n") * 1000 + RIGHT, ""
    ),
    text("names", "100,000 names", _lines(60_000, "n{} = 0\n") + RIGHT, "", *_SLOW),
    text("int-text", "a number of a million digits, from a text", "x = int('9' * 10**6)\n" + RIGHT, "DTL-RAISED"),
    text("int-literal", "a number of 5,000 digits", f"x = {'9' * 5000}\n{RIGHT}", *_SYNTAX),
    text("int-power", "a number of a hundred million digits", "n = 10**8\nx = 10**n\n" + RIGHT, *_SLOW),
    text(
        "int-shift",
        "a number of a tebibyte",
        "n = 1 << 43\nx = 1 << n\n" + RIGHT,
        "DTL-RAISED",
        "DTL-OOM",
    ),
    text(
        "text-repeat",
        "a text of a tebibyte",
        "n = 1 << 40\nx = 'x' * n\n" + RIGHT,
        "DTL-RAISED",
        "DTL-OOM",
    ),
    text("regex", "a search that never ends", f"import re\nre.match('(a+)+$', 'a' * 50 + 'b')\n{RIGHT}", *_SLOW),
]


def _folder(folder: Path, name: str, files: dict[str, bytes]) -> None:
    (folder / name).mkdir()
    for file, data in files.items():
        (folder / name / file).write_bytes(data)


def _notebook(*cells: str) -> bytes:
    return json.dumps({"cells": [{"cell_type": "code", "source": cell} for cell in cells], "nbformat": 4}).encode()


def _cell(source: str) -> str:
    return f"%%exercise ch01.average\n{source}"


def _nested_try(depth: int) -> str:
    lines = ["def average(x):"]
    for level in range(1, depth + 1):
        lines += [" " * level + "try:", " " * level + " pass", " " * level + "finally:"]
    return "\n".join([*lines, " " * (depth + 1) + "pass"])


def _in_a_zip(data: bytes, name: str) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, data)
    return made.getvalue()


def _sparse(folder: Path) -> None:
    _folder(folder, "sparse", {NAME: b""})
    os.truncate(folder / "sparse" / NAME, 1 << 40)


def _made(name: str, does: str, files: dict[str, bytes], *codes: str) -> HandIn:
    return HandIn(name, does, lambda folder: _folder(folder, name, files), codes)


_ZIP = _in_a_zip(RIGHT.encode(), NAME)
NOTEBOOKS: list[HandIn] = [
    _made(
        "nb-bomb", "a cell that costs gigabytes to compile", {"a.ipynb": _notebook(_cell(_nested_try(25)))}, *_SYNTAX
    ),
    _made("nb-right", "a right answer in a cell", {"a.ipynb": _notebook("%matplotlib inline", _cell(RIGHT))}, ""),
    _made(
        "nb-cells",
        "10,000 cells with 10,000 answers; the last is right",
        {"a.ipynb": _notebook(*(_cell(f"x = {k}\n") for k in range(10_000)), _cell(RIGHT))},
        "",
    ),
    _made("nb-17-mb", "a notebook of 17 MB", {"a.ipynb": _notebook("x" * (17 << 20))}, *_REFUSED),
    _made(
        "nb-source",
        "a cell whose text is a number",
        {"a.ipynb": b'{"cells": [{"cell_type": "code", "source": 5}]}'},
        *_REFUSED,
    ),
    _made(
        "nb-surrogate",
        "half a character in a cell",
        {"a.ipynb": _notebook(_cell("x = '\ud800'\n" + RIGHT))},
        "",
    ),
    _made("nb-numbers", "numbers of a million digits", {"a.ipynb": b'{"cells": ' + b"9" * 1_000_000 + b"}"}, *_REFUSED),
    _made(
        "nb-magic", "a cell with commands of a shell", {"a.ipynb": _notebook(_cell("!rm -rf ~\n" + RIGHT))}, *_SYNTAX
    ),
]
NESTED: list[HandIn] = [
    HandIn(
        "zip-in-zip",
        "a zip file in a zip file",
        lambda f: (f / "zip-in-zip.zip").write_bytes(_in_a_zip(_ZIP, "mine.zip")),
        ("",),
    ),
    _made("zip-in-folder", "a zip file in a folder", {"mine.zip": _ZIP}, ""),
    HandIn(
        "zip-in-zip-in-zip",
        "a zip file in a zip file in a zip file",
        lambda f: (f / "zip-in-zip-in-zip.zip").write_bytes(_in_a_zip(_in_a_zip(_ZIP, "mine.zip"), "all.zip")),
        _REFUSED,
    ),
    HandIn(
        "zip-bomb-in-zip",
        "a zip file of 65 MiB in a zip file of 65 kB",
        lambda f: (f / "zip-bomb-in-zip.zip").write_bytes(_in_a_zip(bytes(65 << 20), "mine.zip")),
        _REFUSED,
    ),
    HandIn(
        "zip-twice",
        "two members of one name",
        lambda f: (f / "zip-twice.zip").write_bytes(_twice(RIGHT.encode(), b"1 / 0\n")),
        ("DTL-RAISED",),
    ),
    HandIn("sparse", "a file of a tebibyte, with nothing in it", _sparse, _REFUSED),
]


def _twice(first: bytes, second: bytes) -> bytes:
    """An archive in which a name stands two times: programs that unpack it take the last."""
    data = bytearray(_two_members(first, second))
    other = NAME.replace("average", "averagf").encode()
    return bytes(data.replace(other, NAME.encode()))


def _two_members(first: bytes, second: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(NAME, first)
        archive.writestr(NAME.replace("average", "averagf"), second)
    return made.getvalue()

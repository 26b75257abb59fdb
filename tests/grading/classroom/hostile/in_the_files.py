"""Hand-ins that attack before they run: texts that cost much to compile, archives, folders, names."""

import io
import os
import tarfile
import zipfile
from pathlib import Path

from .hand_in import NAME, RIGHT, HandIn, text

_REFUSED = ("DTL-UNREADABLE", "DTL-MISSING", "DTL-LIMIT")
_TEXT = ("DTL-LIMIT", "DTL-SYNTAX", "DTL-UNREADABLE", "DTL-LOOP", "DTL-TIMEOUT")


def _nested(depth: int) -> str:
    """`try: ... finally:`, one in the other: the compiler writes each `finally` twice."""
    lines = ["def average(x):"]
    for level in range(depth):
        lines += [" " * (level + 1) + "try:", " " * (level + 2) + "pass", " " * (level + 1) + "finally:"]
    return "\n".join([*lines, " " * (depth + 1) + "x = x", " return x", ""])


TEXTS: list[HandIn] = [
    # 6 GiB, and then too many levels for Python. With 19 it takes 1.5 GiB and 4 s, which can be in the limits: then
    # it is a wrong answer like others.
    text("compile-bomb", "nested try/finally: compiling takes gigabytes", _nested(22), *_TEXT, few=True),
    text("compile-brackets", "100,000 brackets", "x = " + "(" * 100_000 + ")" * 100_000, *_TEXT),
    text("compile-minus", "a million signs", "x = " + "-" * 900_000 + "1", *_TEXT),
    text("compile-dots", "300,000 attributes of attributes", "x = x" + ".x" * 300_000, *_TEXT, "DTL-RAISED"),
    text(
        "compile-power",
        "a constant with very many digits",
        "x = 9 ** 9 ** 9 ** 9\n" + RIGHT,
        *_TEXT,
        "DTL-TIMEOUT",
        "DTL-STRAGGLER",
        "DTL-LOOP",
    ),
    text("compile-indent", "1,000 levels of indentation", "\n".join(" " * k + "if 1:" for k in range(1000)), *_TEXT),
    text("null-bytes", "a text with NUL in it", RIGHT + "\0", *_TEXT),
    text("not-utf-8", "bytes that are no text", b"\xff\xfe" + RIGHT.encode(), *_REFUSED, few=True),
    text("coding", "a line that names an unknown coding", "# coding: nothing\n" + RIGHT, *_TEXT, ""),
    text("surrogates", "halves of characters, escaped", "raise ValueError('\\ud800')\n", "DTL-RAISED"),
    text("5-mib", "a text of 5 MiB", RIGHT + "#" * (5 << 20), *_REFUSED),
    text("empty", "an empty file", "", "DTL-RAISED", "DTL-STUB", *_REFUSED),
]


def _zip(path: Path, members: dict[str, bytes], kind: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", kind) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def _damaged(folder: Path, name: str, kind: int) -> None:
    """The middle of the stream is overwritten."""
    data = bytearray(_zip(folder / f"{name}.zip", {NAME: os.urandom(2000).hex().encode()}, kind).read_bytes())
    data[200:600] = bytes(400)
    (folder / f"{name}.zip").write_bytes(data)


def _link(folder: Path, name: str, target: str) -> None:
    (folder / name).mkdir()
    (folder / name / NAME).symlink_to(target)


def _special(folder: Path, name: str, make) -> None:
    (folder / name).mkdir()
    make(folder / name / NAME)


def _zip_link(folder: Path) -> None:
    entry = zipfile.ZipInfo(NAME)
    entry.external_attr = 0o120777 << 16
    with zipfile.ZipFile(folder / "zip-link.zip", "w") as archive:
        archive.writestr(entry, "/etc/passwd")


def _tar(folder: Path, name: str, kind: bytes, target: str) -> None:
    with tarfile.open(folder / f"{name}.tar.gz", "w:gz") as archive:
        entry = tarfile.TarInfo(NAME)
        entry.type, entry.linkname = kind, target
        archive.addfile(entry)


def _tar_bomb(folder: Path) -> None:
    with tarfile.open(folder / "tar-bomb.tar.gz", "w:gz") as archive:
        entry = tarfile.TarInfo(NAME)
        entry.size = 1 << 28
        archive.addfile(entry, io.BytesIO(bytes(1 << 28)))


def _deep(folder: Path) -> None:
    here = os.getcwd()
    os.mkdir(folder / "deep-hand-in")
    try:
        os.chdir(folder / "deep-hand-in")
        for _ in range(3000):
            os.mkdir("d")
            os.chdir("d")
    finally:
        os.chdir(here)


def _many(folder: Path) -> None:
    (folder / "many-members").mkdir()
    for k in range(21_000):
        (folder / "many-members" / f"{k}.py").touch()


_NB = b'{"cells": [{"cell_type": "code", "source": ["def average(x'
ARCHIVES: list[HandIn] = [
    HandIn(
        "damaged-deflate",
        "a zip file with a damaged stream",
        lambda f: _damaged(f, "damaged-deflate", zipfile.ZIP_DEFLATED),
        _REFUSED,
        few=True,
    ),
    HandIn(
        "damaged-lzma",
        "the same, packed another way",
        lambda f: _damaged(f, "damaged-lzma", zipfile.ZIP_LZMA),
        _REFUSED,
    ),
    HandIn(
        "damaged-bz2", "the same, packed a third way", lambda f: _damaged(f, "damaged-bz2", zipfile.ZIP_BZIP2), _REFUSED
    ),
    HandIn(
        "no-zip",
        "a zip file that is none",
        lambda f: (f / "no-zip.zip").write_bytes(b"PK\3\4" + os.urandom(500)),
        _REFUSED,
    ),
    HandIn(
        "half-zip",
        "half a zip file",
        lambda f: (f / "half-zip.zip").write_bytes(
            _zip(f / "half-zip.zip", {NAME: RIGHT.encode() * 50}).read_bytes()[:900]
        ),
        _REFUSED,
    ),
    HandIn(
        "zip-bomb",
        "1 GiB in 1 MB",
        lambda f: _zip(f / "zip-bomb.zip", {NAME: bytes(1 << 28), f"a/{NAME}": bytes(1 << 28)}),
        _REFUSED,
        few=True,
    ),
    HandIn(
        "zip-slip",
        "a path that leads out of the archive",
        lambda f: _zip(f / "zip-slip.zip", {f"../../{NAME}": RIGHT.encode(), f"/{NAME}": RIGHT.encode()}),
        _REFUSED,
    ),
    HandIn("zip-link", "a link in a zip file", _zip_link, _REFUSED),
    HandIn(
        "zip-many",
        "100,000 members",
        lambda f: _zip(f / "zip-many.zip", {f"{k}.py": b"" for k in range(100_000)}, zipfile.ZIP_STORED),
        _REFUSED,
    ),
    HandIn(
        "zip-name",
        "a member whose name steers terminals",
        lambda f: _zip(f / "zip-name.zip", {f"\x1b[2J\n1 of 1 passed/{NAME}x": b""}),
        _REFUSED,
    ),
    HandIn("tar-link", "a link in a tar file", lambda f: _tar(f, "tar-link", tarfile.SYMTYPE, "/etc/passwd"), _REFUSED),
    HandIn("tar-fifo", "a FIFO in a tar file", lambda f: _tar(f, "tar-fifo", tarfile.FIFOTYPE, ""), _REFUSED),
    HandIn("tar-bomb", "256 MiB in a small tar file", _tar_bomb, _REFUSED),
    HandIn(
        "seven-zip",
        "another kind of archive",
        lambda f: (f / "seven-zip.7z").write_bytes(b"7z\xbc\xaf\x27\x1c" + bytes(100)),
        _REFUSED,
    ),
    HandIn("link-loop", "a link to itself", lambda f: _link(f, "link-loop", NAME), _REFUSED, few=True),
    HandIn("link-out", "a link to a file of the system", lambda f: _link(f, "link-out", "/etc/passwd"), _REFUSED),
    HandIn(
        "link-neighbour",
        "a link to a classmate's answer",
        lambda f: _link(f, "link-neighbour", f"../honest-0/{NAME}"),
        _REFUSED,
    ),
    HandIn("link-zero", "a link to /dev/zero", lambda f: _link(f, "link-zero", "/dev/zero"), _REFUSED),
    HandIn("fifo", "a FIFO in the place of the answer", lambda f: _special(f, "fifo", os.mkfifo), _REFUSED, few=True),
    HandIn("folder", "a folder in the place of the answer", lambda f: _special(f, "folder", os.mkdir), _REFUSED),
    HandIn("deep-hand-in", "3,000 folders, one in the other", _deep, _REFUSED),
    HandIn("many-members", "21,000 files", _many, _REFUSED),
    HandIn(
        "notebook",
        "a notebook that is cut off",
        lambda f: [(f / "notebook").mkdir(), (f / "notebook" / "a.ipynb").write_bytes(_NB)],
        _REFUSED,
    ),
    HandIn(
        "notebook-deep",
        "a notebook of nested lists",
        lambda f: [(f / "notebook-deep").mkdir(), (f / "notebook-deep" / "a.ipynb").write_bytes(b"[" * 900_000)],
        _REFUSED,
    ),
]

# Names that would be files of the results, or lines of the report. Their answers are right: they get their points.
NAMES = (
    "summary.html",
    "canvas.csv",
    "lti.jsonl",
    "CON",
    "m b",
    "m_b-8976a5b7",
    "=1+1",
    "a\nb",
    "\x1b[2Jx",
    "\u202ecba",
    # Two that collide: in the case of their letters, in how their letters are written, once they are made safe.
    *("Ann", "ANN"),
    *("zo\u00eb", "zoe\u0308"),
    *("a,b", "a;b"),
)


def _named(name: str) -> HandIn:
    return text(name, "a name that stands for something else", RIGHT, "")


STRANGE_NAMES: list[HandIn] = [_named(name) for name in NAMES]

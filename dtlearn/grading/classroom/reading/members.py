"""The files of a hand-in that may hold answers. Nothing is unpacked, no link followed; only regular files are read.

An archive inside a hand-in is opened too, but none inside that one. What is not opened is named, unless it is a file
that a system left behind.
"""

import io
import os
import re
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO

MAX_MEMBERS = 20_000  # entries of a hand-in
MAX_DEPTH = 32  # folders in folders
MAX_ARCHIVES, MAX_ARCHIVE = 20, 64 << 20  # archives that a hand-in holds; bytes of one that is itself in an archive
TAR = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
ARCHIVE = (".zip", *TAR)
_NOT_THEIRS = {"__MACOSX", "__pycache__", "node_modules", "site-packages"}
_OF_SYSTEMS = {"thumbs.db", "ehthumbs.db", "desktop.ini", "__macosx", "icon\r"}
_WRAPPED = re.compile(r"(\.py|\.ipynb)(\.txt|\.json)+$")
Open = Callable[[], IO[bytes]]
Openers = dict[str, Open]
InnerFile = tuple[str, int, Open]  # a file: its name, its kind as in a mode (0: not known), what opens it


def read_as(name: str) -> str:
    """A path as it is compared with names of exercises: "Mean.PY.txt", as browsers save it, is "mean.py"."""
    return _WRAPPED.sub(r"\1", name.lower())


def is_of_a_system(name: str) -> bool:
    """Whether a file or folder is nobody's work: hidden, or left behind by a system."""
    return name.startswith(".") or name.lower() in _OF_SYSTEMS


def members(parts: Iterable[tuple[Path, str]], problems: list[str], others: list[str], opened: ExitStack) -> Openers:
    """Python files and notebooks by their names in the hand-in, with `/`; each is opened by calling what stands there,
    while `opened` is.

    Args:
        parts: paths of the hand-in, each with the name of that file in it, or "" if it is all of it.
        problems, others: get what was refused, and why; and names of files that may be looked at, but not by us.

    Raises:
        Exception: of any kind, as damaged archives do: all of it cannot be read.
    """
    found: Openers = {}
    boxes: list[tuple[str, Iterable[InnerFile], int]] = []
    seen = 0
    for path, name in parts:
        if stat.S_ISDIR(path.lstat().st_mode):
            boxes.append((f"{name}/" * bool(name), _of_folder(path, problems), 0))
        elif name:
            boxes.append(("", [(name, path.lstat().st_mode, partial(open_regular, path))], -1))
        else:
            boxes.append(("", _of_archive(path.name, opened.enter_context(open_regular(path))), 0))
    archives = 0
    for prefix, entries, level in boxes:  # it grows by archives that are found
        try:
            for name, mode, open_ in entries:
                if (seen := seen + 1) > MAX_MEMBERS:
                    raise ValueError(f"more than {MAX_MEMBERS:,} files")
                shown = prefix + name.replace("\\", "/")  # as programs of Windows write it in archives
                if not _is_allowed(shown, mode, problems):
                    continue
                if read_as(shown).endswith((".py", ".ipynb")):
                    found[shown] = open_
                elif shown.lower().endswith(ARCHIVE) and level < 1 and archives < MAX_ARCHIVES:
                    archives += 1
                    boxes.append((f"{shown}/", _inside(shown, open_, opened), level + 1))
                else:
                    others.append(shown)
        except Exception as error:  # of any kind
            if not prefix or seen > MAX_MEMBERS:
                raise
            problems.append(f"{prefix[:-1]}: cannot be opened: {error or type(error).__name__}")
    return found


def open_regular(path: str | Path) -> IO[bytes]:
    """Open a regular file. Raises OSError for anything else; never waits, as opening a FIFO would, and follows no link
    at the end of the path."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError("no regular file")
    return open(descriptor, "rb")


def _is_allowed(name: str, mode: int, problems: list[str]) -> bool:
    """Whether a file of this name and kind is to be looked at."""
    parts, is_link = PurePosixPath(name).parts, stat.S_ISLNK(mode)
    leads_out = parts[:1] == ("/",) or ".." in parts
    if leads_out or is_link or (mode and not stat.S_ISREG(mode)):
        if is_link or read_as(name).endswith((".py", ".ipynb", *ARCHIVE)):
            why = "leads out of the archive" if leads_out else "a link" if is_link else "no regular file"
            problems.append(f"{name}: {why}; refused")
        return False
    return not any(part in _NOT_THEIRS or is_of_a_system(part) for part in parts)


def _of_folder(path: Path, problems: list[str]) -> Iterator[InnerFile]:
    folders = [(str(path), "", 0)]
    while folders:  # no recursion: thousands of folders in each other are cheap to make
        folder, prefix, depth = folders.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                name = prefix + entry.name
                if not entry.is_dir(follow_symlinks=False):
                    yield name, entry.stat(follow_symlinks=False).st_mode, partial(open_regular, entry.path)
                elif depth == MAX_DEPTH:
                    problems.append(f"{name[:60]}...: more than {MAX_DEPTH} folders in each other; not read further")
                elif entry.name not in _NOT_THEIRS and not is_of_a_system(entry.name):
                    folders.append((entry.path, f"{name}/", depth + 1))


def _inside(name: str, open_: Open, opened: ExitStack) -> Iterator[InnerFile]:
    file = opened.enter_context(open_())
    if isinstance(file, zipfile.ZipExtFile | tarfile.ExFileObject):  # to go back in one of these is slow
        data = file.read(MAX_ARCHIVE + 1)
        if len(data) > MAX_ARCHIVE:
            raise ValueError(f"more than {MAX_ARCHIVE >> 20} MiB")
        file = io.BytesIO(data)
    yield from _of_archive(name, file)


def _of_archive(name: str, file: IO[bytes]) -> Iterator[InnerFile]:
    return _of_zip(file) if name.lower().endswith(".zip") else _of_tar(file)


def _of_zip(file: IO[bytes]) -> Iterator[InnerFile]:
    archive = zipfile.ZipFile(file)
    for info in archive.infolist():
        if not info.filename.endswith(("/", "\\")):
            yield info.filename, (info.external_attr >> 16) & 0o170000, partial(_open_in_zip, archive, info)


def _open_in_zip(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> IO[bytes]:
    if info.flag_bits & 1:
        raise ValueError("it has a password; ask for an archive without one")
    return archive.open(info)


def _of_tar(file: IO[bytes]) -> Iterator[InnerFile]:
    archive = tarfile.open(fileobj=file)  # noqa: SIM115  # it is open as long as its file
    for info in archive:
        kind = stat.S_IFREG if info.isreg() else stat.S_IFLNK if info.issym() or info.islnk() else stat.S_IFIFO
        if not info.isdir():
            yield info.name, kind, partial(archive.extractfile, info)  # type: ignore[misc]  # a file: never None

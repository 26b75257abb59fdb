"""The files of a hand-in that may hold answers. Nothing is unpacked, no link followed; only regular files are read."""

import os
import stat
import tarfile
import zipfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO

MAX_MEMBERS = 20_000  # entries of one archive or folder
MAX_DEPTH = 32  # folders in folders
TAR = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
_NOT_THEIRS = {"__MACOSX", "__pycache__", "node_modules", "site-packages"}
Openers = dict[str, Callable[[], IO[bytes]]]


def members(path: Path, problems: list[str], opened: ExitStack) -> Openers:
    """Python files and notebooks by their names in the hand-in, with `/`; each is opened by calling what stands there,
    while `opened` is. Raises Exception, of any kind, as damaged archives do: it cannot be read."""
    if path.is_dir():
        return _of_folder(path, problems)
    file = opened.enter_context(open_regular(path))
    return _of_zip(file, problems) if path.suffix.lower() == ".zip" else _of_tar(file, problems)


def open_regular(path: str | Path) -> IO[bytes]:
    """Open a regular file. Raises OSError for what is none; never waits, as opening a FIFO would, and follows no link
    at the end of the path."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError("no regular file")
    return open(descriptor, "rb")


def _may_answer(name: str, mode: int, problems: list[str]) -> bool:
    """Whether a file of this name and mode is to be looked at; 0: an archive did not say what it is."""
    parts, is_link = PurePosixPath(name).parts, stat.S_ISLNK(mode)
    if not name.endswith((".py", ".ipynb")) and not is_link:
        return False
    leads_out = parts[:1] == ("/",) or ".." in parts or "\\" in name
    if leads_out or is_link or (mode and not stat.S_ISREG(mode)):
        why = "leads out of the archive" if leads_out else "a link" if is_link else "no regular file"
        problems.append(f"{name}: {why}; refused")
        return False
    return not any(part in _NOT_THEIRS or part.startswith(".") for part in parts)


def _of_folder(path: Path, problems: list[str]) -> Openers:
    members: Openers = {}
    folders, seen = [(str(path), "", 0)], 0
    while folders:  # no recursion: thousands of folders in each other are cheap to make
        folder, prefix, depth = folders.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                _check_number(seen := seen + 1)
                name = prefix + entry.name
                if not entry.is_dir(follow_symlinks=False):
                    if _may_answer(name, entry.stat(follow_symlinks=False).st_mode, problems):
                        members[name] = partial(open_regular, entry.path)
                elif depth == MAX_DEPTH:
                    problems.append(f"{name[:60]}...: more than {MAX_DEPTH} folders in each other; not read further")
                elif entry.name not in _NOT_THEIRS and not entry.name.startswith("."):
                    folders.append((entry.path, f"{name}/", depth + 1))
    return members


def _of_zip(file: IO[bytes], problems: list[str]) -> Openers:
    archive, members = zipfile.ZipFile(file), Openers()
    _check_number(len(archive.infolist()))
    for info in archive.infolist():
        if not info.is_dir() and _may_answer(info.filename, (info.external_attr >> 16) & 0o170000, problems):
            members[info.filename] = partial(archive.open, info)
    return members


def _of_tar(file: IO[bytes], problems: list[str]) -> Openers:
    archive, members = tarfile.open(fileobj=file), Openers()  # noqa: SIM115  # it is open as long as its file
    for number, info in enumerate(archive, start=1):
        _check_number(number)
        kind = stat.S_IFREG if info.isreg() else stat.S_IFLNK if info.issym() or info.islnk() else stat.S_IFIFO
        if not info.isdir() and _may_answer(info.name, kind, problems):
            members[info.name] = partial(archive.extractfile, info)  # type: ignore[assignment]  # a file: never None
    return members


def _check_number(number: int) -> None:
    if number > MAX_MEMBERS:
        raise ValueError(f"more than {MAX_MEMBERS:,} files")

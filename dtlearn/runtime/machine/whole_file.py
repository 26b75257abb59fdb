"""A file is written whole or not at all: readers see the old content or the new one, also after a crash."""

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

UNFINISHED = ".new-"  # how the names begin of files that are not whole yet; a process that is killed leaves one


def write_whole(path: Path, content: str | bytes | memoryview, mode: int = 0o600) -> None:
    """Replace a file at once. Text is written as UTF-8. Raises OSError; then nothing of the new content is left.

    `mode`: its rights, less the umask: by default it is for this user alone.
    """
    with _unfinished(path, content, mode) as whole:
        os.replace(whole, path)
        _sync_folder(path.parent)


def write_new(path: Path, content: str | bytes | memoryview) -> bool:
    """As `write_whole`, but False if there is a file of that name already, however quick its maker was."""
    with _unfinished(path, content, 0o600) as whole:
        try:
            os.link(whole, path)  # unlike a rename it fails if the name is taken
        except FileExistsError:
            return False
        except OSError:  # a file system without hard links
            try:
                os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
            except FileExistsError:
                return False
            os.replace(whole, path)
    return True


@contextlib.contextmanager
def _unfinished(path: Path, content: str | bytes | memoryview, mode: int) -> Iterator[Path]:
    """The content under another name, forced to the disk: the bytes must be there before the name is."""
    if isinstance(content, str):
        content = content.encode(errors="backslashreplace")
    whole = path.with_name(f"{UNFINISHED}{path.name}-{secrets.token_hex(4)}")
    try:
        with open(os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield whole
    finally:
        with contextlib.suppress(OSError):
            os.unlink(whole)


def _sync_folder(folder: Path) -> None:
    """Put the new name on the disk; not every file system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

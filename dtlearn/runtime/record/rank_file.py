"""Reads files that ranks write. A rank is a learner's process, and can put anything in a file's place."""

import os
import stat
from pathlib import Path

MOST = 256 << 20  # bytes that are read of one file


class Tampered(ValueError):
    """A rank's file, or its line to the head, holds what the package does not write there."""


def read_rank_file(path: Path, offset: int = 0) -> bytes:
    """What a rank has written from `offset` on, without waiting for anybody and following no link. Raises
    FileNotFoundError, or Tampered if something else is in its place, or it is too long."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Tampered(f"{path.name} cannot be read: {error.strerror}") from None
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode) or about.st_size > MOST:
        os.close(descriptor)
        what = f"it has {about.st_size:,} bytes" if stat.S_ISREG(about.st_mode) else "it is no file"
        raise Tampered(f"{path.name} is not what the package writes: {what}")
    with open(descriptor, "rb") as file:
        file.seek(offset)
        return file.read(max(0, about.st_size - offset))

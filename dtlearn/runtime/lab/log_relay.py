"""The ranks' logs of calls and phases, and their stack dumps, copied from their node to the head, which reads them."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from .. import wire

_PIECE = 1 << 16


class LogReader:
    """Reads what is new in the logs (calls-*.jsonl, calls-*.spans, stack-*.txt) of a folder.

    What was deleted is read to its end first.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[tuple[str, int], BinaryIO] = {}  # (name, inode): a name may come again

    def read(self, write: Callable[[bytes], None], room: Callable[[], bool] = lambda: True) -> None:
        """Hand on what is new, as messages for a `LogWriter`, while there is room."""
        with contextlib.suppress(FileNotFoundError), os.scandir(self._folder) as entries:
            for entry in entries:
                key = (entry.name, entry.inode())
                if entry.name.endswith((".jsonl", ".spans", ".txt")) and key not in self._files:
                    with contextlib.suppress(FileNotFoundError):
                        self._files[key] = (self._folder / entry.name).open("rb", buffering=0)
        for key, file in list(self._files.items()):
            gone = os.fstat(file.fileno()).st_nlink == 0
            if os.fstat(file.fileno()).st_size < file.tell():  # begun anew, as a new rank does with its stack dumps
                file.seek(0)
            while room() and (data := file.read(_PIECE)):
                write(wire.encode({"name": key[0]}, data))
            if gone and room():
                write(wire.encode({"name": key[0], "gone": True}))
                file.close()
                del self._files[key]

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()


class LogWriter:
    """Writes what a `LogReader` read to files of the same names in another folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._decoder = wire.Decoder()

    def take(self, data: bytes) -> None:
        """Add bytes of the reader's messages. A full disk loses calls, not the connection."""
        for header, text in self._decoder.feed(data):
            path = self._folder / Path(header["name"]).name  # a name, never a path
            with contextlib.suppress(OSError):
                if header.get("gone"):
                    path.unlink()
                else:
                    with path.open("ab") as file:
                        file.write(text)

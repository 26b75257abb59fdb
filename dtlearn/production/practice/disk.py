"""A disk in memory that many ranks write to, and what a kill or a power cut leaves of it.

A kill ends a process: what it wrote is in the memory of the operating system, the page cache, and stays. A power cut
takes that memory, too. It leaves what was forced to the disk; what was not may be there or not, each part by itself:

    disk.write("new", data)            after a power cut: no name "new", or a file with some of the bytes
    disk.fsync("new")                  its bytes are there, if its name is
    disk.rename("new", "latest")       "latest" is the old file or the new one
    disk.fsync_folder()                "latest" is the new file

So names and bytes are forced each by itself, as POSIX has it: "Calling fsync() does not necessarily ensure that the
entry in the directory containing the file has also reached disk" (Linux, fsync(2)). Many file systems do more than
that, each in its own way (Pillai and others, "All File Systems Are Not Created Equal", OSDI 2014).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

T = TypeVar("T")
Content = bytes | None  # of a file; None: there is no such name


class DiskCall(NamedTuple):
    """A call on the disk that took place.

    Attributes:
        period: barriers that its rank had passed. Of two ranks, only calls of different periods have an order.
        rank: that made it.
        verb: "write", "fsync", "rename", "remove" or "fsync_folder".
        name: of the file; "" for the folder.
        to: the new name of a rename.
        data: what the file holds after a write, which may be half of what was given.
    """

    period: int
    rank: int
    verb: str
    name: str = ""
    to: str = ""
    data: bytes = b""

    def is_before(self, later: DiskCall) -> bool:
        """Whether it was over when a call began that comes after it in the order of `left_after`."""
        return self.period < later.period or self.rank == later.rank


class Stopped(BaseException):
    """The rank is gone. Not an `Exception`: a killed process catches nothing."""


class StoppedDisk:
    """One rank's way to the disk.

    Attributes:
        calls: that this rank made.
        seen: calls of all ranks up to the last barrier.
        period: barriers passed.
        stopped_at: the moment at which this rank was stopped; "" if it lives.
    """

    def __init__(self, rank: int, before: Mapping[str, bytes], moments: int | None = None) -> None:
        """Args:
        before: files that are there.
        moments: at which it lives; at the next one it is stopped. None: it is not. A call is one moment, a write two.
        """
        self.rank, self.before, self._moments = rank, before, moments
        self.calls: list[DiskCall] = []
        self.seen: list[DiskCall] = []
        self.period, self.stopped_at = 0, ""

    def write(self, name: str, data: bytes) -> None:
        """Make a file with these bytes, in the place of one that has the name. Not one moment: half may be there."""
        self._lives(f"before write({name!r})")
        self._add("write", name, data=bytes(data[: len(data) // 2]))
        self._lives(f"in write({name!r})")
        self._add("write", name, data=bytes(data))

    def fsync(self, name: str) -> None:
        """Force the bytes of a file to the disk."""
        self._lives(f"before fsync({name!r})")
        self._require(name)
        self._add("fsync", name)

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, at one moment, and take it from the file that had it."""
        self._lives(f"before rename({old!r}, {new!r})")
        self._require(old)
        self._add("rename", old, new)

    def remove(self, name: str) -> None:
        """Delete a file."""
        self._lives(f"before remove({name!r})")
        self._require(name)
        self._add("remove", name)

    def fsync_folder(self) -> None:
        """Force the names of the folder's files to the disk."""
        self._lives("before fsync_folder()")
        self._add("fsync_folder")

    def _add(self, verb: str, name: str = "", to: str = "", data: bytes = b"") -> None:
        self.calls.append(DiskCall(self.period, self.rank, verb, name, to, data))

    def _lives(self, moment: str) -> None:
        if self._moments == 0:
            self.stopped_at = self.stopped_at or moment
            raise Stopped(self.stopped_at)
        if self._moments is not None:
            self._moments -= 1

    def _require(self, name: str) -> None:
        others = [call for call in self.seen if call.rank != self.rank]
        if left_after(self.before, [*others, *self.calls]).get(name, {None}) == {None}:
            raise FileNotFoundError(f"there is no file {name!r}")


class _File:
    """Bytes that a file may have after a power cut; the last ones are those of now."""

    def __init__(self, *versions: tuple[bytes, DiskCall | None]) -> None:
        self.versions = list(versions)


def left_after(
    before: Mapping[str, bytes], calls: Iterable[DiskCall], *, power_cut: bool = False
) -> dict[str, set[Content]]:
    """The contents that each file may have after a kill, or after a power cut, by name; {None}: there is no file.

    Args:
        before: files that were there, on the disk.
        calls: of all ranks, each rank's in its order.
        power_cut: the power fails after them; otherwise processes are killed.
    """
    names: dict[str, list[tuple[_File | None, DiskCall | None]]] = {
        name: [(_File((data, None)), None)] for name, data in before.items()
    }

    def own(name: str) -> list[tuple[_File | None, DiskCall | None]]:
        return names.setdefault(name, [(None, None)])

    for call in sorted(calls, key=lambda call: (call.period, call.rank)):
        file = own(call.name)[-1][0] if call.name else None
        if call.verb == "write":
            if file is None:
                file = _File((b"", call))
                own(call.name).append((file, call))
            file.versions.append((call.data, call))
        elif call.verb == "fsync" and file is not None:
            file.versions = _from_last(file.versions, call)
        elif call.verb in ("rename", "remove"):
            own(call.name).append((None, call))
            if call.verb == "rename":
                own(call.to).append((file, call))
        elif call.verb == "fsync_folder":
            for name, files in names.items():
                names[name] = _from_last(files, call)
    if not power_cut:
        return {name: set(_contents(files[-1][0])[-1:]) for name, files in names.items()}
    return {name: {data for file, _ in files for data in _contents(file)} for name, files in names.items()}


def _contents(file: _File | None) -> list[Content]:
    return [data for data, _ in file.versions] if file else [None]


def _from_last(made: list[tuple[T, DiskCall | None]], sync: DiskCall) -> list[tuple[T, DiskCall | None]]:
    """Leave out what can no longer be: what came before the last that was there when it was forced to the disk."""
    forced = [at for at, (_, call) in enumerate(made) if call is None or call.is_before(sync)]
    return made[max(forced, default=0) :]

"""The folder of a job's checkpoints, in which each is there as a whole or not at all.

    job/
        step-00000010/  step-00000012/    complete: they have had this name only since all of it was on the disk
        step-00000010-2/                  step 10, saved again; it counts, and the one before it is deleted
        latest                            the name of the newest, for those who only read: evaluation, serving
        .new-step-00000014-1f3a/          being written; what a killed job leaves of it is swept by the next
        .old-step-00000008-77b0/          being deleted
        aside-step-00000016-5e1c/         damaged, or newer than where a job went on: for a person to look at
        .lock                             held while a job has the folder

A checkpoint is written under a name that nobody reads, forced to the disk, and renamed. The rename is one operation:
a process that is killed at any moment leaves the checkpoint or none, never half of one, and the one before is still
there. That holds for a step that is saved again, too: no rename puts one folder in the place of another that has
files, so the new one gets a name of its own, and the old one goes when the pointer names the new one. Each call of the
operating system below is a moment at which a test kills the process, and at which another one cuts the power.

Source: POSIX `rename` (atomic in one file system) and `fsync` (Linux's fsync(2): the folder too, for the new name); the
rule that the pointer comes last is that of Megatron-LM's `latest_checkpointed_iteration.txt`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import shutil
import socket
import weakref
import zlib
from collections.abc import Iterable
from pathlib import Path

from .blocks import naming
from .format import MANIFEST, CheckpointError, DamagedError, Manifest, from_json, to_json

UNFINISHED, REMOVED, SET_ASIDE = ".new-", ".old-", "aside-"  # how names begin of what is no checkpoint
POINTER, LOCK = "latest", ".lock"
_NAME = re.compile(r"step-(\d{8,})(?:-(\d+))?")  # the step, and how often it was saved, if more than once


def step_folder(folder: Path, step: int) -> Path:
    """The checkpoint after `step` updates: the last one, if the step was saved again."""
    return folder / _name(step, _times_saved(folder).get(step, [1])[-1])


def _name(step: int, times: int) -> str:
    """The name of a step's folder: the step is saved for the first time, or, with more `times`, again."""
    return f"step-{step:08d}" if times == 1 else f"step-{step:08d}-{times}"


def steps_in(folder: Path) -> list[int]:
    """The steps of the folders that have the name of a checkpoint, in order."""
    return sorted(_times_saved(folder))


def _times_saved(folder: Path) -> dict[int, list[int]]:
    """By step, the numbers in the names of its folders: 1 for step-00000010, 2 for step-00000010-2."""
    times: dict[int, list[int]] = {}
    for path in folder.iterdir() if folder.is_dir() else ():
        if match := _NAME.fullmatch(path.name):
            times.setdefault(int(match[1]), []).append(int(match[2] or 1))
    return {step: sorted(numbers) for step, numbers in times.items()}


def newest_step(folder: Path | str) -> int | None:
    """The step that the pointer names, for processes that only read. None before the first save.

    Raises:
        CheckpointError: the pointer names no step, or one that is not there: that is no beginning, but a loss.
    """
    pointer = Path(folder) / POINTER
    if (name := _pointed(pointer)) is None:
        return None
    if not (match := _NAME.fullmatch(name)):
        raise CheckpointError(
            f"{pointer} names {name[:40]!r}, and not a step such as step-00000012: it is torn or was changed. A job "
            "that opens the folder writes it anew if there is a checkpoint; if there is none, take another folder"
        )
    if not (Path(folder) / name).is_dir():
        raise CheckpointError(
            f"{pointer} names {name}, which is not there: bring it back, or take another folder to begin anew"
        )
    return int(match[1])


def _pointed(pointer: Path) -> str | None:
    """The text of the pointer, whatever it is; None: there is no pointer."""
    try:
        return pointer.read_text("utf-8", errors="replace").strip()
    except FileNotFoundError:
        return None
    except IsADirectoryError:
        return ""


def read_manifest(checkpoint: Path) -> Manifest:
    """The manifest of one checkpoint.

    Raises:
        DamagedError: it is missing or torn.
        CheckpointError: it is of another version.
    """
    try:
        text = (checkpoint / MANIFEST).read_text("utf-8")
    except FileNotFoundError:
        raise DamagedError(f"{checkpoint} has no {MANIFEST}: copy the whole folder, or take another step") from None
    except UnicodeDecodeError:
        raise DamagedError(f"{checkpoint / MANIFEST} is no text: it was changed since it was saved") from None
    except NotADirectoryError:
        raise DamagedError(f"{checkpoint} is a file, and not the folder of a checkpoint: move it away") from None
    except IsADirectoryError:
        raise DamagedError(f"{checkpoint / MANIFEST} is a folder: it was changed since it was saved") from None
    return from_json(text, str(checkpoint / MANIFEST))


def complete_steps(folder: Path) -> tuple[dict[int, int], list[str]]:
    """The steps whose files are all there in full length, each with a checksum of its manifest; and what is not.

    Two checkpoints of one step, of two runs, have two checksums: so ranks can tell whether they see the same.

    Returns:
        {step: checksum}, and a line for each checkpoint that is passed over.

    Raises:
        CheckpointError: one is of another version. Nobody should go on from an older one, and in the end delete it.
    """
    complete, notes = dict[int, int](), list[str]()
    for step in steps_in(folder):
        try:
            manifest = read_manifest(step_folder(folder, step))
            _require_files(step_folder(folder, step), manifest)
        except DamagedError as error:
            notes.append(str(error))
        else:
            complete[step] = zlib.crc32(to_json(manifest).encode())
    return complete, notes


def _require_files(checkpoint: Path, manifest: Manifest) -> None:
    for name, file in manifest.files.items():
        try:
            nbytes = (checkpoint / name).stat().st_size
        except FileNotFoundError:
            raise DamagedError(f"{checkpoint} lacks {name}, the pieces of one of {manifest.num_ranks} ranks") from None
        if nbytes != file.nbytes:
            raise DamagedError(f"{checkpoint / name} has {nbytes} bytes, and {file.nbytes} were saved: it is torn")


# Writing: rank 0 only, but for the ranks' own files in the folder that `begin` has made.


def begin(folder: Path, step: int) -> Path:
    """Make the folder that the ranks write into; nobody takes it for a checkpoint.

    Raises:
        OSError: it cannot be made.
    """
    unfinished = folder / f"{UNFINISHED}{step_folder(folder, step).name}-{secrets.token_hex(4)}"
    os.mkdir(unfinished)
    return unfinished


def commit(folder: Path, unfinished: Path, manifest: Manifest) -> OSError | None:
    """Make a checkpoint of the folder that all ranks have written into, and the newest one of it.

    Returns:
        Why the pointer could not be moved, if it could not. The checkpoint is there all the same.

    Raises:
        OSError: there is no room, say. The checkpoints from before are as they were, and no more.
    """
    _write_file(unfinished / MANIFEST, to_json(manifest))
    _sync_folder(unfinished)  # the names of the files must be there before the folder has its name
    os.rename(unfinished, _next_folder(folder, manifest.step))  # now it is saved
    try:
        _sync_folder(folder)  # the pointer must not be there before what it names
        point_at(folder, manifest.step)
    except OSError as error:
        return error
    return None


def _next_folder(folder: Path, step: int) -> Path:
    """The name that a step gets when it is saved; another one each time, if it is there already."""
    return folder / _name(step, 1 + _times_saved(folder).get(step, [0])[-1])


def point_at(folder: Path, step: int) -> None:
    """Let the pointer name a step, at once."""
    unfinished = folder / f"{UNFINISHED}{POINTER}-{secrets.token_hex(4)}"
    try:
        _write_file(unfinished, f"{step_folder(folder, step).name}\n")
        os.rename(unfinished, folder / POINTER)
        _sync_folder(folder)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(unfinished)


def set_aside(folder: Path, step: int) -> Path:
    """Give a checkpoint that cannot be read another name: it is kept for a person to look at, and not taken again."""
    aside = folder / f"{SET_ASIDE}{step_folder(folder, step).name}-{secrets.token_hex(4)}"
    os.rename(step_folder(folder, step), aside)
    _sync_folder(folder)
    return aside


def remove_older(folder: Path, step: int, keep: int, *, moved: bool = True) -> None:
    """Delete all complete checkpoints but the `keep` newest: after the new one, of `step`, is there, never before.

    What is newer than it is of a run that went further, and from which this one has gone back. A person said so, and
    may think better of it: it is set aside.

    Args:
        folder: of the job.
        step: just saved.
        keep: 1 or more.
        moved: whether the pointer names the new one, for good. If not, the one before it stays, and what the pointer
            names; older ones go even then: they may be what fills the disk.
    """
    if not moved:
        _sync_folder(folder)  # `commit` may not have come to it, and nothing goes before the new one is on the disk
    complete = sorted(complete_steps(folder)[0])
    replaced = _replaced(folder, complete) if moved else []
    for newer in (other for other in complete if other > step):
        set_aside(folder, newer)
    older = [other for other in complete if other <= step][: -keep if moved else -max(keep, 2)]
    remove = [*replaced, *(step_folder(folder, other) for other in older)]
    _remove([path for path in remove if path.name != _pointed(folder / POINTER)])


def _replaced(folder: Path, complete: Iterable[int]) -> list[Path]:
    """The checkpoints of complete steps that were saved again later."""
    times = _times_saved(folder)
    replaced = [folder / _name(step, number) for step in complete for number in times[step][:-1]]
    return [path for path in replaced if path.is_dir()]  # a file of that name is a person's


def _remove(checkpoints: list[Path]) -> None:
    """Delete checkpoints; each goes at once: nobody finds half of it, even if the power fails."""
    removed = [path.with_name(f"{REMOVED}{path.name}-{secrets.token_hex(4)}") for path in checkpoints]
    for checkpoint, other in zip(checkpoints, removed, strict=True):
        os.rename(checkpoint, other)
    if removed:
        _sync_folder(removed[0].parent)  # the names must be gone before the files are
    for other in removed:
        discard(other)


def discard(path: Path) -> None:
    """Delete what is no checkpoint, file by file. What cannot be deleted stays for the next `sweep`."""
    with contextlib.suppress(OSError):
        for file in path.iterdir():
            os.unlink(file)
        os.rmdir(path)


def sweep(folder: Path) -> list[str]:
    """Delete what a killed job has left unfinished, and mend a pointer that it had no time to move.

    Only whoever holds the lock may do so: what is unfinished may be another job's.

    Returns:
        A line, if the pointer named what is not there, or no step.
    """
    for left in folder.iterdir():
        if left.name.startswith((UNFINISHED, REMOVED)):
            shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)
    complete, _ = complete_steps(folder)
    pointed, notes = _pointed(folder / POINTER), list[str]()
    if complete and pointed != step_folder(folder, max(complete)).name:
        if pointed is not None and not _NAME.fullmatch(pointed):
            notes.append(f"{folder / POINTER} named {pointed[:40]!r}, which is no step: written anew")
        elif pointed is not None and not (folder / pointed).is_dir():
            notes.append(f"{folder / POINTER} named {pointed}, which is not there. Passed over")
        if (folder / POINTER).is_dir():  # no file can take its place
            os.rename(folder / POINTER, folder / f"{SET_ASIDE}{POINTER}-{secrets.token_hex(4)}")
        point_at(folder, max(complete))
    _remove(_replaced(folder, complete))
    return notes


def require_new(folder: Path) -> None:
    """See that a folder without a checkpoint never had one: a job must not begin anew because it has lost all.

    Raises:
        CheckpointError: there is a pointer, or a checkpoint that was set aside.
    """
    newest_step(folder)
    if aside := sorted(path.name for path in folder.glob(f"{SET_ASIDE}*")):
        raise CheckpointError(
            f"{folder} has no checkpoint but {', '.join(aside)}: look at it, or take another folder to begin anew"
        )


def _write_file(path: Path, content: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        data = content.encode()
        with naming(path):
            while data:
                data = data[os.write(descriptor, data) :]
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """Put new names on the disk; not every file system can."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with naming(folder):
            os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


class FolderLock:
    """Held by the one job that writes into a folder; the operating system lets go of it when the process dies.

    Raises:
        CheckpointError: another process has it; which one.
    """

    def __init__(self, folder: Path) -> None:
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "another process"
            os.close(descriptor)
            raise CheckpointError(
                f"{folder} is in use by {holder}: two jobs in one folder would delete each other's checkpoints. Take "
                "another folder, or end that job"
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        self._descriptor = descriptor
        _held.add(self)

    def release(self) -> None:
        """Let another job have the folder. Once is enough; a forked child has done so already."""
        if self in _held:
            _held.discard(self)
            os.close(self._descriptor)


_held = weakref.WeakSet[FolderLock]()


def _let_go_in_child() -> None:
    """A forked child, such as a DataLoader's worker, would keep the lock when its parent is dead."""
    for lock in list(_held):
        lock.release()  # its copy of the descriptor; the parent's keeps the lock


os.register_at_fork(after_in_child=_let_go_in_child)

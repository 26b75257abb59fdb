"""The folder of a job's checkpoints, in which each is there as a whole or not at all.

    job/
        step-00000010/  step-00000012/    complete: they have had this name only since all of it was on the disk
        latest                            the name of the newest, for those who only read: evaluation, serving
        .new-step-00000014-1f3a/          being written; what a killed job leaves of it is swept by the next
        .lock                             held while a job has the folder

A checkpoint is written under a name that nobody reads, forced to the disk, and renamed. The rename is one operation:
a process that is killed at any moment leaves the checkpoint or none, never half of one, and the one before is still
there. Each call of the operating system below is a moment at which a test kills the process.

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
import zlib
from pathlib import Path

from .format import MANIFEST, CheckpointError, DamagedError, Manifest, from_json, to_json

UNFINISHED, REMOVED, SET_ASIDE = ".new-", ".old-", "aside-"  # how names begin of what is no checkpoint
POINTER, LOCK = "latest", ".lock"
_NAME = re.compile(r"step-(\d{8,})")


def step_folder(folder: Path, step: int) -> Path:
    """The name of the checkpoint after `step` updates."""
    return folder / f"step-{step:08d}"


def steps_in(folder: Path) -> list[int]:
    """The steps of the folders that have the name of a checkpoint, in order."""
    names = (_NAME.fullmatch(path.name) for path in folder.iterdir()) if folder.is_dir() else ()
    return sorted(int(match[1]) for match in names if match)


def newest_step(folder: Path | str) -> int | None:
    """The step that the pointer names: what a process takes that only reads. None before the first save.

    Raises:
        CheckpointError: the pointer names no step.
    """
    try:
        name = (Path(folder) / POINTER).read_text("utf-8").strip()
    except FileNotFoundError:
        return None
    if not (match := _NAME.fullmatch(name)):
        raise CheckpointError(f"{Path(folder) / POINTER} names {name!r}, and not a step such as step-00000012")
    return int(match[1])


def read_manifest(checkpoint: Path) -> Manifest:
    """The manifest of one checkpoint.

    Raises:
        DamagedError: it is missing or torn.
        CheckpointError: it is of a newer version.
    """
    try:
        text = (checkpoint / MANIFEST).read_text("utf-8")
    except FileNotFoundError:
        raise DamagedError(f"{checkpoint} has no {MANIFEST}: copy the whole folder, or take another step") from None
    except UnicodeDecodeError:
        raise DamagedError(f"{checkpoint / MANIFEST} is no text: it was changed since it was saved") from None
    return from_json(text, str(checkpoint / MANIFEST))


def complete_steps(folder: Path) -> tuple[dict[int, int], list[str]]:
    """The steps of which all files are there in their length, each with a checksum of its manifest; and what is not.

    Two checkpoints of one step, of two runs, have two checksums: so ranks can tell whether they see the same.

    Returns:
        {step: checksum}, and a line for each checkpoint that is passed over.

    Raises:
        CheckpointError: one is of a newer version. Nobody should go on from an older one, and in the end delete it.
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


def commit(folder: Path, unfinished: Path, manifest: Manifest) -> None:
    """Make a checkpoint of the folder that all ranks have written into, and the newest one of it.

    Raises:
        OSError: there is no room, say. The checkpoints from before are as they were.
    """
    checkpoint = step_folder(folder, manifest.step)
    _write_file(unfinished / MANIFEST, to_json(manifest))
    _sync_folder(unfinished)  # the names of the files must be there before the folder has its name
    if checkpoint.exists():
        set_aside(folder, manifest.step)
    os.rename(unfinished, checkpoint)
    _sync_folder(folder)
    point_at(folder, manifest.step)


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


def remove_older(folder: Path, keep: int) -> None:
    """Delete all complete checkpoints but the `keep` newest: after the new one is there, never before."""
    for step in sorted(complete_steps(folder)[0])[:-keep]:
        removed = folder / f"{REMOVED}{step_folder(folder, step).name}-{secrets.token_hex(4)}"
        os.rename(step_folder(folder, step), removed)  # it goes at once: nobody finds half of it
        discard(removed)


def discard(path: Path) -> None:
    """Delete what is no checkpoint, file by file. What cannot be deleted stays for the next `sweep`."""
    with contextlib.suppress(OSError):
        for file in path.iterdir():
            os.unlink(file)
        os.rmdir(path)


def sweep(folder: Path) -> None:
    """Delete what a killed job has left unfinished, and mend a pointer that it had no time to move.

    Only whoever holds the lock may do so: what is unfinished may be another job's.
    """
    for left in folder.iterdir():
        if left.name.startswith((UNFINISHED, REMOVED)):
            shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)
    complete, _ = complete_steps(folder)
    if complete and newest_step(folder) != max(complete):
        point_at(folder, max(complete))


def _write_file(path: Path, content: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        data = content.encode()
        while data:
            data = data[os.write(descriptor, data) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """Put new names on the disk; not every file system can."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
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

    def release(self) -> None:
        """Let another job have the folder."""
        os.close(self._descriptor)

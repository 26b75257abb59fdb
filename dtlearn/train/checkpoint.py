"""Checkpoint files that are whole or not there at all, and which of them a run goes on with.

A file is written under another name, forced to the disk, and then renamed: `os.replace` is atomic, so a process that is
killed at any moment leaves the old file or the new one, never half of one. It is read with `weights_only=True`, which
makes tensors and plain values and runs no code that a file may hold.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import re
import zipfile
from pathlib import Path
from typing import Any

import torch

from dtlearn.runtime.machine.whole_file import UNFINISHED, write_whole

from .options import Settings
from .ranks.rank_0 import TrainError, from_rank_0
from .state import require_same_run

_NAME = re.compile(r"step-(\d{8,})\.pt")


def checkpoint_file(folder: Path, step: int) -> Path:
    """The name of the checkpoint after `step` updates."""
    return folder / f"step-{step:08d}.pt"


def step_of(file: Path) -> int:
    """The number of updates before a checkpoint was made, from its name; -1 for a file with another kind of name."""
    match = _NAME.fullmatch(file.name)
    return int(match[1]) if match else -1


def checkpoints_in(folder: Path) -> list[Path]:
    """The checkpoints of a folder, the newest first; [] if there is no such folder."""
    return sorted((file for file in folder.glob("step-*.pt") if step_of(file) >= 0), key=step_of, reverse=True)


def prepare_folder(folder: Path) -> None:
    """Make a folder, remove what a killed run left unfinished, and try to write there, before any work is lost.

    Raises:
        TrainError: nothing can be written there.
    """
    trial = folder / f"{UNFINISHED}trial-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        trial.write_bytes(b"x")
        for left in folder.glob(f"{UNFINISHED}*"):
            left.unlink(missing_ok=True)
    except OSError as error:
        raise TrainError(f"cannot write in {folder}: {error.strerror}. Choose another folder, or make room") from error


def write_checkpoint(state: dict[str, Any], file: Path, keep: int) -> None:
    """Write the state; then delete all but the `keep` newest checkpoints of the folder.

    The old ones go last: if there is no room for the new one, they are still there.

    Raises:
        OSError: it could not be written, because the disk is full, say; nothing is left of it.
    """
    whole = io.BytesIO()  # first in memory: torch's own writer ends the process if its file fails while it is closed
    torch.save(state, whole)
    write_whole(file, whole.getbuffer(), 0o666)
    for old in checkpoints_in(file.parent)[keep:]:
        with contextlib.suppress(OSError):
            old.unlink()


def read_checkpoint(file: Path) -> dict[str, Any]:
    """The state that a file holds, its tensors on the CPU.

    torch.save makes a zip archive, and torch.load does not compare its checksums; so we do.

    Raises:
        TrainError: the file is missing, cut off, changed, or no checkpoint of this script.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            if (damaged := archive.testzip()) is not None:
                raise TrainError(f"{file} is damaged: the checksum of its part {damaged} is wrong")
        state = torch.load(file, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise TrainError(f"there is no file {file}") from None
    except OSError as error:
        raise TrainError(f"{file} cannot be read: {error.strerror or error}") from error
    except (zipfile.BadZipFile, EOFError, RuntimeError, pickle.UnpicklingError, NotImplementedError) as error:
        raise TrainError(f"{file} is damaged or no checkpoint: {type(error).__name__}") from error
    if not isinstance(state, dict) or "format" not in state:
        raise TrainError(f"{file} is no checkpoint of this script")
    return state


def find_state(settings: Settings) -> tuple[dict[str, Any] | None, list[str]]:
    """The state to go on with, or None to begin anew; and what a person should know, a line each. The same everywhere.

    Rank 0 looks, reads and decides, and all ranks get what it read: only its machine must have the files.

    Communication: the state is broadcast from rank 0, pickled: model and optimizer, once.
    Memory: on every rank the pickled bytes beside the state, until it is loaded.

    Raises:
        TrainError: no checkpoint can be read, or it is of another run, or `--checkpoint-dir` is not fit for this one.
    """
    return from_rank_0(lambda: choose_state(settings))


def choose_state(settings: Settings) -> tuple[dict[str, Any] | None, list[str]]:
    """What rank 0 does."""
    folder = Path(settings.checkpoint_dir) if settings.checkpoint_dir else None
    if folder:
        prepare_folder(folder)
    there = checkpoints_in(folder) if folder else []
    if settings.resume == "none":
        if there:
            raise TrainError(
                f"{folder} holds checkpoints, the newest after step {step_of(there[0])}, and --resume none would mix "
                "two runs there: take another --checkpoint-dir, or delete them, or leave --resume out to go on"
            )
        return None, []
    if settings.resume == "auto":
        return read_newest(there, settings) if there else (None, [])
    asked = Path(settings.resume)
    if asked.is_dir():
        candidates = checkpoints_in(asked)
        if not candidates:
            raise TrainError(f"there is no checkpoint in {asked}")
        state, notes = read_newest(candidates, settings)
    else:
        state, notes = read_newest([asked], settings)
    newer = [file for file in there if step_of(file) > state["step"]]
    if newer:
        raise TrainError(
            f"{folder} holds newer checkpoints than {asked}, such as {newer[0].name}: take another --checkpoint-dir, "
            "or delete them"
        )
    return state, notes


def read_newest(files: list[Path], settings: Settings) -> tuple[dict[str, Any], list[str]]:
    """The newest checkpoint that is whole, of files sorted so. A damaged one is passed over, and named."""
    notes = []
    for file in files:
        try:
            state = read_checkpoint(file)
        except TrainError as error:
            notes.append(f"{error}. Passed over")
            continue
        require_same_run(state, settings, str(file))
        return state, [*notes, f"going on from {file}"]
    raise TrainError(
        "\n".join(
            [*notes, f"no checkpoint in {files[0].parent} can be read: take another --checkpoint-dir to begin anew"]
        )
    )

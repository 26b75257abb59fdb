"""Which checkpoint a run goes on with. Rank 0 looks, reads and decides; all ranks get what it read.

So only rank 0's machine must have the files: no shared file system is needed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dtlearn.train.agree import from_rank_0
from dtlearn.train.checkpoint import checkpoints_in, prepare_folder, read_checkpoint, step_of
from dtlearn.train.errors import TrainError
from dtlearn.train.options import Settings
from dtlearn.train.state import require_same_run

Found = tuple[dict[str, Any] | None, list[str]]  # the state, and what a person should know, a line each


def find_state(settings: Settings) -> Found:
    """The state to go on with, or None to begin anew; the same on every rank.

    Communication: the state is broadcast from rank 0, pickled: model and optimizer, once.
    Memory: on every rank the pickled bytes beside the state, until it is loaded.

    Raises:
        TrainError: no checkpoint can be read, or it is of another run, or `--checkpoint-dir` is not fit for this one.
    """
    return from_rank_0(lambda: choose_state(settings))


def choose_state(settings: Settings) -> Found:
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

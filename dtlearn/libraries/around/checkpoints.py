"""A checkpoint of DeepSpeed's: what files it is, one file of it, and on with it on another number of ranks."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from dtlearn.runtime.run import run_ranks

from ..description import RunDescription
from ..engines.base import batches
from ..engines.deepspeed_zero import DeepSpeedZero
from ..environment import answer_of, python_with
from ..quiet_deepspeed import quiet_deepspeed

MODULE = "dtlearn.libraries.around.checkpoints"
TAG, UNIVERSAL = "saved", "universal"
STEPS, SAVED_AFTER = 4, 2
SECONDS = 600.0


@dataclass(frozen=True)
class CheckpointTrip:
    """What came of a checkpoint.

    Attributes:
        stage: of ZeRO.
        saved_on: ranks that wrote it, after `SAVED_AFTER` of `STEPS` steps.
        losses: of those ranks, all steps.
        files: what they wrote, with bytes.
        whole: parameters that `zero_to_fp32` put together from the shards, and how many numbers.
        universal_files: files of the universal checkpoint.
        resumed: by number of ranks, the losses of the steps after the checkpoint.
    """

    stage: int
    saved_on: int
    losses: tuple[float, ...]
    files: dict[str, int]
    whole: tuple[int, int]
    universal_files: int
    resumed: dict[int, tuple[float, ...]]


def checkpoint_trip(stage: int, saved_on: int = 2, resume_on: tuple[int, ...] = (1, 4)) -> CheckpointTrip:
    """Train, save, make one file of it, make it universal, and go on with other numbers of ranks.

    Raises:
        LibraryMissing: DeepSpeed is not installed. RuntimeError, RankError: a run failed.
    """
    python = python_with("deepspeed")
    if python != Path(sys.executable):
        answer = answer_of(python, MODULE, [stage, saved_on, list(resume_on)], SECONDS)
        return _from_json(answer)
    with tempfile.TemporaryDirectory(prefix="dtlearn-checkpoint-") as name:
        folder = Path(name)
        run = RunDescription(world_size=saved_on, steps=STEPS, zero_stage=stage)
        losses = run_ranks(train_and_save, saved_on, run, name, device="cpu")[0]
        files = {str(file.relative_to(folder)): file.stat().st_size for file in sorted(folder.glob(f"{TAG}/*.pt"))}
        whole = one_state_dict(folder)
        make_universal(folder, stage)
        resumed = {
            ranks: tuple(run_ranks(resume, ranks, replace(run, world_size=ranks), name, device="cpu")[0])
            for ranks in resume_on
        }
        universal = sum(1 for file in (folder / UNIVERSAL).rglob("*.pt"))
    return CheckpointTrip(
        stage, saved_on, tuple(losses), files, (len(whole), sum(t.numel() for t in whole.values())), universal, resumed
    )


def train_and_save(run: RunDescription, folder: str) -> list[float]:
    """All steps on this rank, with a checkpoint on the way."""
    engine = DeepSpeedZero(run)
    losses = []
    for number, batch in enumerate(batches(run), 1):
        losses.append(engine.step(*batch))
        if number == SAVED_AFTER:
            engine.engine.save_checkpoint(folder, tag=TAG)  # every rank calls it
    dist.barrier()
    return losses


def resume(run: RunDescription, folder: str) -> list[float]:
    """The steps after the checkpoint on this rank, read from the universal one."""
    engine = DeepSpeedZero(replace(run, options={"checkpoint": {"load_universal": True}}))
    engine.engine.load_checkpoint(folder, tag=UNIVERSAL)
    losses = [engine.step(*batch) for batch in list(batches(run))[SAVED_AFTER:]]
    dist.barrier()
    return losses


def one_state_dict(folder: Path) -> dict[str, torch.Tensor]:
    """All parameters in fp32, put together from every rank's shards: what `zero_to_fp32.py` beside them does."""
    quiet_deepspeed()
    module = importlib.import_module("deepspeed.utils.zero_to_fp32")
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        found: dict[str, torch.Tensor] = module.get_fp32_state_dict_from_zero_checkpoint(str(folder), tag=TAG)
        return {name: tensor.clone() for name, tensor in found.items()}


def make_universal(folder: Path, stage: int) -> None:
    """Write a checkpoint with a folder for each parameter, which any number of ranks can read.

    A universal checkpoint of stages 1 and 2 wants the patterns of Megatron's parameters, which a model of ours does not
    state: `inject_missing_state` takes every parameter as it is.
    """
    quiet_deepspeed()
    module: Any = importlib.import_module("deepspeed.checkpoint.ds_to_universal")
    options = SimpleNamespace(
        input_folder=str(folder / TAG),
        output_folder=str(folder / UNIVERSAL),
        num_extract_workers=1,
        num_merge_workers=1,
        keep_temp_folder=False,
        strict=True,
        inject_missing_state=stage < 3,
    )
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        module.main(options)


def _from_json(data: dict[str, Any]) -> CheckpointTrip:
    resumed = {int(ranks): tuple(losses) for ranks, losses in data["resumed"].items()}
    lists = {"losses": tuple(data["losses"]), "whole": tuple(data["whole"]), "resumed": resumed}
    return CheckpointTrip(**{**data, **lists})


def main(asked: str, answered: str) -> None:
    """Answer another Python's question, see `answer_of`."""
    stage, saved_on, resume_on = json.loads(Path(asked).read_text("utf-8"))
    trip = checkpoint_trip(stage, saved_on, tuple(resume_on))
    Path(answered).write_text(json.dumps(asdict(trip)), "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""What a run is made of: what a checkpoint holds of it, how it is taken up again, and what it gives back."""

from __future__ import annotations

import hashlib
import random
import zlib
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from dtlearn.data_parallel.large_batch.learning_rate import go_on_at

from .compression import HookState, load_hook_state, saved_hook_state
from .data import TrainingData
from .options import Options, Settings, flag
from .ranks.group import RankOnDevice
from .ranks.rank_0 import TrainError

FORMAT = 1
MUST_AGREE = ("task", "batch_size", "seed")  # another value would make the saved place in the data meaningless
MAY_DIFFER = ("epochs", "accumulate", "lr", "scale_lr", "warmup", "clip", "dropout", "ddp", "compress", "amp")


@dataclass
class Training:
    """Everything that changes while a run trains.

    Attributes:
        model: the bare model, whose names have no `module.` in front.
        lr: highest learning rate.
        compression: what the hook of `--compress` keeps on this rank, if anything.
        step: updates made, counted over all epochs and resumes.
    """

    settings: Settings
    here: RankOnDevice
    model: nn.Module
    optimizer: Optimizer
    scheduler: LambdaLR
    data: TrainingData
    lr: float
    compression: HookState | None = None
    step: int = 0

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint holds: tensors and plain values only. All ranks call it; rank 0 gets all of it.

        Communication: one `gather_object` to rank 0, about 10 kB per rank (random number generators), and with
            `--compress` what the rank has not sent yet, 4 bytes a parameter.
        """
        mine = rng_state(self.here.device), saved_hook_state(self.compression, self.model)
        of_ranks: list[Any] = [mine] * self.here.world_size
        if dist.is_initialized():
            dist.gather_object(mine, of_ranks if self.here.rank == 0 else None, dst=0)
        return {
            "format": FORMAT,
            "arguments": asdict(self.settings),
            "world_size": self.here.world_size,
            "step": self.step,
            "sampler": self.data.sampler.state_dict(),
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "rng": [generators for generators, _ in of_ranks],
            "compression": [kept for _, kept in of_ranks],
        }

    def load_state_dict(self, state: dict[str, Any]) -> list[str]:
        """Take up a state that `require_same_run` has let pass. Returns what a person should know, a line each.

        The options of this run count, where they differ (epochs, learning rate, ...), from the saved step on.

        Raises:
            TrainError: model or optimizer are not those of the state.
        """
        notes = []
        try:
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
        except (RuntimeError, ValueError, KeyError) as error:
            raise TrainError(
                f"the checkpoint is of another model: {str(error).splitlines()[0]}. Has the code changed since? Take "
                "another --checkpoint-dir to begin anew"
            ) from error
        self.scheduler.load_state_dict({**state["scheduler"], "base_lrs": self.scheduler.base_lrs})
        go_on_at(self.scheduler, self.lr)
        self.data.sampler.load_state_dict(state["sampler"])
        self.step = state["step"]
        if state["world_size"] == self.here.world_size:
            set_rng_state(state["rng"][self.here.rank], self.here.device)
        else:
            seed_rank(self.settings.seed, self.here.rank, self.step)
            notes.append(
                f"the checkpoint was made by {state['world_size']} ranks, this run has {self.here.world_size}: the "
                "samples go on where they stood, the rest of the epoch is dealt to the ranks anew, and random numbers "
                "(dropout) are new ones. Losses agree up to rounding if there is no dropout"
            )
        saved, now = {**asdict(Options()), **state["arguments"]}, asdict(self.settings)  # older ones had fewer options
        changed = [f"{flag(n)} {saved[n]} -> {now[n]}" for n in MAY_DIFFER if saved[n] != now[n]]
        if saved["compress"] == now["compress"]:
            kept = state.get("compression", [])
            notes += load_hook_state(self.compression, self.model, kept, self.here.rank, self.here.world_size)
        if changed:
            notes.append("changed since the checkpoint: " + ", ".join(changed))
        return notes


def require_same_run(state: dict[str, Any], settings: Settings, name: str) -> None:
    """Raise TrainError unless the state, read from `name`, can be gone on with."""
    if state["format"] != FORMAT:
        raise TrainError(
            f"{name} has format {state['format']}, this script reads {FORMAT}: use the script that wrote it"
        )
    for option in MUST_AGREE:
        saved, now = state["arguments"].get(option), getattr(settings, option)
        if saved != now:
            raise TrainError(
                f"{name} was made with {flag(option)} {saved}, this run has {flag(option)} {now}: add "
                f"{flag(option)} {saved} to go on with it, or take another --checkpoint-dir to begin anew"
            )


def seed_rank(seed: int, rank: int, step: int = 0) -> None:
    """Seed this rank's generators: other numbers on each rank, so that dropout differs, and after each resume."""
    number = seed + rank if not step else zlib.crc32(f"{seed} {rank} {step}".encode())
    torch.manual_seed(number)  # of the GPUs too
    random.seed(number)
    np.random.seed(number % 2**32)


def rng_state(device: torch.device) -> dict[str, Any]:
    """The states of this process's random number generators, as tensors and plain values."""
    kind, keys, *rest = np.random.get_state()
    return {
        "torch": torch.get_rng_state(),
        "device": None if device.type == "cpu" else torch.get_device_module(device).get_rng_state(device),
        "python": random.getstate(),
        "numpy": [str(kind), torch.from_numpy(np.asarray(keys, dtype=np.int64)), *rest],
    }


def set_rng_state(state: dict[str, Any], device: torch.device) -> None:
    """Put back what `rng_state` gave."""
    torch.set_rng_state(state["torch"])
    if state["device"] is not None and device.type != "cpu":
        torch.get_device_module(device).set_rng_state(state["device"], device)
    random.setstate(state["python"])
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))


@dataclass(frozen=True)
class TrainResult:
    """What one rank reports to `run_ranks`.

    Attributes:
        losses: mean loss of each global batch of this run, from update `first_step` on.
        first_step, step: updates made before this run, and at its end.
        accuracy, baseline: on the test samples, 0 to 1, of the model and of always saying the largest class.
        macro_f1: mean over classes of the F1 score, in which small classes count as much as large ones.
        digest: SHA-256 of all parameters and buffers: equal if and only if all bits are.
        stopped_by: the signal that ended the run early; 0 if none did.
        unsaved: why the last checkpoint could not be written; "" if it was, or none was wanted.
    """

    losses: list[float]
    first_step: int
    step: int
    accuracy: float
    macro_f1: float
    baseline: float
    digest: str
    rank: int
    world_size: int
    stopped_by: int = 0
    unsaved: str = ""


def digest(model: nn.Module) -> str:
    """SHA-256 of the names and values of a model's state."""
    sha = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        sha.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
    return sha.hexdigest()

"""What can be chosen: as a dataclass for `run_ranks`, and as the command line."""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass, fields
from pathlib import Path

from ..require import require_flag, require_number, require_whole
from .bert import BertConfig

LARGEST_SEED = 10**12  # a batch is drawn with a multiple of it, in 64 bits
PRECISIONS = ("fp32", "bf16", "fp16")


@dataclass(frozen=True)
class HelloOptions:
    """One run. `batch_size` is the global one, of one update.

    Attributes:
        engine: "plain", "deepspeed", or "auto": DeepSpeed where it is installed.
        zero: DeepSpeed's stage, 0 to 3. The plain engine holds everything on every rank, and computes the same.
        offload: DeepSpeed holds and updates the optimizer's state, of stage 3 the parameters too, in the host's memory.
        clip: largest global norm of the gradient; 0: none.
        checkpoint_dir: written at the end, and read at the start if there is one; "": neither.

    Raises:
        ValueError: a value that no run can have.
    """

    engine: str = "auto"
    zero: int = 1
    precision: str = "fp32"
    offload: bool = False
    steps: int = 300
    batch_size: int = 32
    accumulation: int = 1
    context_length: int = 64
    num_layers: int = 2
    hidden_size: int = 64
    lr: float = 3e-3
    weight_decay: float = 0.01
    clip: float = 1.0
    seed: int = 0
    log_every: int = 20
    checkpoint_dir: str = ""

    def __post_init__(self) -> None:
        for name, choices in (("engine", ("auto", "plain", "deepspeed")), ("precision", PRECISIONS)):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}; got {getattr(self, name)!r}")
        for name in ("steps", "batch_size", "accumulation", "context_length", "num_layers", "hidden_size", "log_every"):
            require_whole(name, getattr(self, name))
        for name in ("zero", "seed"):
            require_whole(name, getattr(self, name), least=0)
        for name in ("lr", "weight_decay", "clip"):
            require_number(name, getattr(self, name))
        require_flag("offload", self.offload)
        if not isinstance(self.checkpoint_dir, str):
            raise ValueError(f'checkpoint_dir must be a text, "" for none; got {self.checkpoint_dir!r}')
        if self.seed > LARGEST_SEED:
            raise ValueError(f"seed must be {LARGEST_SEED} or less; got {self.seed}")
        if self.zero not in range(4):
            raise ValueError(f"zero must be 0, 1, 2 or 3; got {self.zero}")
        if self.offload and self.zero == 0:
            raise ValueError("offload needs zero=1 or more: in stage 0 DeepSpeed divides nothing that it could move")
        _ = self.model

    @property
    def model(self) -> BertConfig:
        """Sizes of the model."""
        return BertConfig(context_length=self.context_length, num_layers=self.num_layers, hidden_size=self.hidden_size)

    def micro_batch(self, world_size: int) -> int:
        """Sequences that a rank works on at once. Raises ValueError if the global batch does not divide."""
        parts = world_size * self.accumulation
        if self.batch_size % parts:
            raise ValueError(
                f"batch_size must be micro-batch * accumulation * ranks: {self.batch_size} is no multiple of "
                f"{self.accumulation} * {world_size}. The next that is: {-(-self.batch_size // parts) * parts}"
            )
        return self.batch_size // parts


HELP = {
    "engine": "auto: DeepSpeed where it is installed, otherwise plain torch",
    "zero": "what DeepSpeed divides: 0 nothing, 1 optimizer state, 2 gradients too, 3 parameters too",
    "precision": "of forward and backward; the optimizer keeps fp32 weights",
    "offload": "hold the optimizer's state (zero 3: parameters too) in the host's memory",
    "batch_size": "sequences of one update, over all ranks and micro-batches",
    "accumulation": "micro-batches of a rank in one update",
    "clip": "largest norm of the whole gradient; 0: no clipping",
    "checkpoint_dir": "folder to write to at the end, and to go on from",
}


def parse(argv: list[str] | None = None) -> HelloOptions:
    """The options of a command line. argparse ends the process for one that it does not know."""
    parser = argparse.ArgumentParser(
        prog="python -m dtlearn.libraries.hello_deepspeed",
        description="Train a small BERT from scratch, by plain torch or by DeepSpeed.",
    )
    for field in fields(HelloOptions):
        kind = type(field.default)
        name = "--" + field.name.replace("_", "-")
        about = f"{HELP.get(field.name, field.name.replace('_', ' '))} (default: {field.default})"
        if kind is bool:
            parser.add_argument(name, action="store_true", help=HELP[field.name])
        else:
            parser.add_argument(name, type=kind, default=field.default, help=about)
    # The launcher `deepspeed` adds it to every script's arguments. LOCAL_RANK says the same.
    parser.add_argument("--local_rank", type=int, default=-1, help=argparse.SUPPRESS)
    asked = vars(parser.parse_args(argv))
    del asked["local_rank"]
    try:
        return HelloOptions(**asked)
    except ValueError as error:
        parser.error(str(error))


def require_writable(folder: Path) -> None:
    """Make the folder of checkpoints, before hours of training end in front of one that cannot be made.

    Raises:
        ValueError: it cannot be made or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(
            f"checkpoint_dir {str(folder)!r} cannot be written to ({error.strerror}): take another folder"
        ) from error


def checkpoint_file(options: HelloOptions) -> Path:
    """Where the plain engine writes."""
    return Path(options.checkpoint_dir) / "plain.pt"

"""What can be chosen: as a dataclass for `run_ranks`, and as the command line."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields
from typing import Any, NoReturn

from .ranks.rank_0 import TrainError, is_rank_0
from .task import Defaults

CHOICES = {
    "task": ("digits", "text"),
    "scale_lr": ("none", "linear", "sqrt"),
    "ddp": ("ours", "torch"),
    "compress": ("none", "fp16", "topk", "sign", "qsgd", "powersgd"),
    "backend": ("auto", "gloo", "nccl"),
    "device": ("auto", "cpu", "cuda"),
}
LEAST = {"epochs": 1, "batch_size": 1, "accumulate": 1, "warmup": 0, "checkpoint_every": 1, "keep": 1, "workers": 0}


@dataclass(frozen=True)
class Options:
    """The command line's options, which say what each is; None stands for the task's default, or for "not at all"."""

    task: str = "digits"
    epochs: int | None = None
    batch_size: int | None = None
    accumulate: int = 1
    lr: float | None = None
    scale_lr: str = "none"
    warmup: int | None = None
    clip: float | None = None
    dropout: float = 0.0
    seed: int = 0
    max_steps: int | None = None
    ddp: str = "ours"
    compress: str = "none"
    backend: str = "auto"
    device: str = "auto"
    amp: bool = False
    workers: int = 0
    log_dir: str | None = None
    checkpoint_dir: str | None = None
    checkpoint_every: int = 50
    keep: int = 3
    resume: str = "auto"

    def check(self) -> None:
        """Raise TrainError for a value that no run can have."""
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise TrainError(f"{flag(name)} must be one of {', '.join(choices)}; got {getattr(self, name)!r}")
        for name, least in LEAST.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise TrainError(f"{flag(name)} must be {least} or more; got {value}")
        for name in ("lr", "clip", "max_steps"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise TrainError(f"{flag(name)} must be more than 0; got {value}")
        if not 0 <= self.dropout < 1:
            raise TrainError(f"--dropout must be 0 or more, and less than 1; got {self.dropout}")
        if self.resume not in ("auto", "none") and not self.resume:
            raise TrainError("--resume must be auto, none, or the path of a checkpoint")


@dataclass(frozen=True)
class Settings(Options):
    """Options in which the task's defaults stand where nothing was asked for."""

    epochs: int = 0
    batch_size: int = 0
    lr: float = 0.0
    warmup: int = 0


def settle(options: Options, defaults: Defaults) -> Settings:
    """Fill in what was left to the task."""
    asked = {field.name: getattr(options, field.name) for field in fields(options)}
    return Settings(**{n: getattr(defaults, n) if v is None and hasattr(defaults, n) else v for n, v in asked.items()})


def flag(name: str) -> str:
    """The option as it is typed."""
    return "--" + name.replace("_", "-")


class _Parser(argparse.ArgumentParser):
    """A parser that complains on rank 0 only: a hundred ranks have the same command line."""

    def error(self, message: str) -> NoReturn:
        if is_rank_0():
            super().error(message)
        self.exit(2)


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    parser = _Parser(
        prog="python -m dtlearn.train",
        description="Data-parallel training, on one process or on many ranks (torchrun). See docs/train.md.",
    )
    defaults = Options()

    def add(name: str, **how: Any) -> None:
        if name in CHOICES:
            how["choices"] = CHOICES[name]
        parser.add_argument(flag(name), default=getattr(defaults, name), **how)

    what = "default: the task's"
    add("task", help="what to learn: digits (images, MLP, SGD) or text (passages, bag of words, AdamW)")
    add("epochs", type=int, help=f"passes over the training samples ({what})")
    add("batch_size", type=int, help=f"samples of one update over ALL ranks, so that results compare ({what})")
    add(
        "accumulate", type=int, help="micro-batches that a rank's part of the batch is cut into; one all-reduce for all"
    )
    add("lr", type=float, help=f"highest learning rate ({what})")
    add("scale_lr", help="multiply lr by batch size / the task's batch size (linear), its root (sqrt), or not")
    add("warmup", type=int, help=f"updates in which the learning rate rises to --lr; a cosine follows ({what})")
    add("clip", type=float, help="largest norm of the averaged gradient (default: no limit)")
    add("dropout", type=float, help="probability of dropout; above 0, results depend on the number of ranks")
    add("seed", type=int, help="of the initial model, the order of the samples and dropout")
    add("max_steps", type=int, help="stop after so many updates in all, with a checkpoint, as if interrupted")
    add("ddp", help="this course's DistributedDataParallel, or torch's")
    add(
        "compress", help="send less of the gradients: half the bits, the largest hundredth, signs, few levels, low rank"
    )
    add("backend", help="auto: nccl if every rank has a GPU of its own, otherwise gloo")
    add("device", help="auto: GPUs if every rank has one of its own, otherwise the CPU; cuda: ranks may share GPUs")
    add("amp", action="store_true", help="bfloat16 autocast, on GPUs that have it")
    add("workers", type=int, help="processes per rank that load data (0: the rank itself)")
    add("log_dir", help="folder for metrics.jsonl, and for TensorBoard if it is installed (default: none)")
    add("checkpoint_dir", help="folder for checkpoints; a new one for each experiment (default: none)")
    add("checkpoint_every", type=int, help="updates between two checkpoints; the last update has one too")
    add("keep", type=int, help="checkpoints to keep")
    add("resume", help="auto: go on from the newest in --checkpoint-dir, if any; none: begin anew; or a file or folder")
    return parser


def parse(argv: list[str] | None = None) -> Options:
    """Options from a command line; exits with code 2 if they are wrong, as argparse does."""
    parser = make_parser()
    options = Options(**vars(parser.parse_args(argv)))
    try:
        options.check()
    except TrainError as error:
        parser.error(str(error))
    return options

"""What all engines have in common: the model, each rank's part of a batch, and the mean of what ranks found."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

from dtlearn.models.gpt import GPT, next_token_loss
from dtlearn.models.reference import Batch
from dtlearn.runtime.recording.phases import phase

from ..description import RunDescription

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Engine(Protocol):
    """One library's way to train. Made on every rank, with `torch.distributed` initialised."""

    def step(self, tokens: torch.Tensor, targets: torch.Tensor) -> float:
        """Update the weights once with the global batch, (B, T) int64 each; its mean loss, the same on all ranks."""
        ...


def build_model(run: RunDescription) -> GPT:
    """The whole GPT; the same weights on every rank and in every engine."""
    torch.manual_seed(run.seed)
    return GPT(run.config)


def build_optimizer(run: RunDescription, model: nn.Module, **options: Any) -> torch.optim.Optimizer:
    """torch's optimizer of the description for what this rank holds of the model."""
    options |= {"lr": run.lr, "weight_decay": run.weight_decay}
    kind = torch.optim.AdamW if run.optimizer == "adamw" else torch.optim.SGD
    return kind(model.parameters(), **options)


def own_micro_batches(run: RunDescription, tokens: torch.Tensor, targets: torch.Tensor, replica: int) -> list[Batch]:
    """The micro-batches of one replica of the model, (micro_batch, T) each: rows of the global batch in order."""
    rows = slice(replica * (own := len(tokens) // run.dp), (replica + 1) * own)
    parts = zip(tokens[rows].split(run.micro_batch), targets[rows].split(run.micro_batch), strict=True)
    return list(parts)


def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy, taken in fp32 whatever the logits are in."""
    return next_token_loss(logits.float(), targets)


def mean_over_ranks(loss: torch.Tensor | float) -> float:
    """The mean of all ranks' losses. Its four bytes are the phase "report": no library needs them to train."""
    value = torch.as_tensor(loss, dtype=torch.float32).detach().clone()
    with phase("report"):
        dist.all_reduce(value)
    return value.item() / dist.get_world_size()


def recompute_blocks(model: GPT, through: Any = None) -> None:
    """Have every block run its forward pass again in backward.

    Args:
        through: the library's `checkpoint(function, x)`; None: torch's.
    """
    through = through or functools.partial(checkpoint, use_reentrant=False)
    for block in model.blocks:
        block.forward = functools.partial(through, block.forward)


def batches(run: RunDescription) -> Iterator[Batch]:
    """The global batches of the run, one for each step."""
    from dtlearn.models.corpus import load_corpus

    return load_corpus().batches(run.steps, run.global_batch, run.context_length, seed=run.seed)


def refuse(run: RunDescription, engine: str, **must_be: Any) -> None:
    """Refuse what an engine cannot do.

    Args:
        must_be: a value, or a tuple of several, by the name in the description; of its model "config.dropout".

    Raises:
        ValueError: the description asks for something else than `must_be` allows.
    """
    for name, allowed in must_be.items():
        choices = allowed if isinstance(allowed, tuple) else (allowed,)
        if (value := operator.attrgetter(name)(run)) not in choices:
            raise ValueError(
                f"the engine {engine!r} takes {name}={' or '.join(map(repr, choices))}, got {value!r}: "
                "change the description, or take another engine"
            )

"""What is trained to compare methods: a GPT on text, and a classifier of digits, small enough for many runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from dtlearn.models.corpus import load_corpus
from dtlearn.models.digits import load_digits
from dtlearn.models.gpt import GPT, GPTConfig, next_token_loss
from dtlearn.models.mlp import MLP
from dtlearn.models.reference import Batch, LossFn

GPT_CONFIG = GPTConfig(context_length=32, num_layers=1, num_heads=2, hidden_size=32)
_HELD_OUT = 64  # windows of text on which a trained GPT is judged


@dataclass(frozen=True)
class SmallTask:
    """A model, its data, and the optimizer that suits it. All ranks make the same model and the same batches.

    Attributes:
        name: for figures.
        model: makes the model; called with the same random numbers on every rank.
        loss: of its outputs and the targets.
        batches: the global batches of so many steps.
        held_out: a batch that no step sees.
        optimizer: of the methods that bring none of their own.
        sgd_lr, adam_lr: learning rates of the optimizers that methods bring: SGD with momentum, and Adam or AdamW.
    """

    name: str
    model: Callable[[], nn.Module]
    loss: LossFn
    batches: Callable[[int], Iterator[Batch]]
    held_out: Callable[[], Batch]
    optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
    sgd_lr: float
    adam_lr: float


def digits_task() -> SmallTask:
    """The digits, 96 in a step, with an MLP of 26,122 parameters and plain SGD, for which error feedback is proved."""
    digits = load_digits()
    return SmallTask(
        "digits",
        MLP,
        F.cross_entropy,
        lambda steps: digits.batches(steps, 96),
        lambda: (digits.test_x, digits.test_y),
        lambda parameters: torch.optim.SGD(parameters, lr=0.3),
        sgd_lr=0.1,
        adam_lr=1e-3,
    )


def gpt_task() -> SmallTask:
    """The corpus, 16 windows of 32 characters in a step, with a GPT of 21,984 parameters and Adam."""
    corpus, length = load_corpus(), GPT_CONFIG.context_length
    return SmallTask(
        "GPT",
        lambda: GPT(GPT_CONFIG),
        next_token_loss,
        lambda steps: corpus.batches(steps, 16, length),
        lambda: next(corpus.batches(1, _HELD_OUT, length, split="val")),
        lambda parameters: torch.optim.Adam(parameters, lr=5e-3),
        sgd_lr=0.1,
        adam_lr=5e-3,
    )


TASKS: dict[str, Callable[[], SmallTask]] = {"GPT": gpt_task, "digits": digits_task}

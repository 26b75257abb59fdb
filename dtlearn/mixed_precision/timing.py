"""Times of a step in mixed precision beside PyTorch's, and an average of gradients in 32 and in 16 bits.

Both functions run on the ranks and take their times in turns:
`run_ranks(time_steps_on_rank, 2, MixedPrecisionWorkload(), 9)`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from dtlearn.models import GPT, GPTConfig, next_token_loss
from dtlearn.models.in_turns import Times, time_in_turns
from dtlearn.runtime.device import device

from .casting.autocast import autocast
from .loss_scaling.grad_scaler import GradScaler
from .reduction.average import average
from .reduction.fp32_sum import average_with_fp32_sum

PLAIN = "fp32"
PARTS = ("autocast", "scaler", "both")  # of mixed precision
STEPS = (PLAIN, *(f"{whose} {part}" for part in PARTS for whose in ("our", "torch's")))
# How gradients are averaged, and in which format they are sent.
REDUCTIONS: dict[str, torch.dtype] = {
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "bf16, fp32 sum": torch.bfloat16,
}
_WARM = 2


@dataclass(frozen=True)
class MixedPrecisionWorkload:
    """The model to train: a GPT of these sizes, on random tokens.

    Attributes:
        config: the default has 3.2 million parameters.
        batch: sequences, each as long as the model's context.
    """

    config: GPTConfig = field(default_factory=lambda: GPTConfig(num_layers=4, num_heads=8, hidden_size=256))
    batch: int = 4


def time_steps_on_rank(work: MixedPrecisionWorkload, rounds: int) -> Times:
    """On each rank, on its device: seconds of forward, backward and optimizer's step, for each of `STEPS`.

    The ranks do not average anything. Autocast has the dtype that is PyTorch's default for the device.
    """
    return time_in_turns({name: _step(work, name) for name in STEPS}, rounds, _WARM)


def time_reductions_on_rank(numel: int, rounds: int) -> Times:
    """On each rank: seconds to average float32 gradients of so many elements, for each of `REDUCTIONS`."""
    gradients = [torch.zeros(numel, device=device())]

    def reduction(name: str) -> Callable[[], None]:
        if name.endswith("fp32 sum"):
            return lambda: average_with_fp32_sum(gradients, in_dtype=REDUCTIONS[name])
        return lambda: average(gradients, in_dtype=REDUCTIONS[name])

    return time_in_turns({name: reduction(name) for name in REDUCTIONS}, rounds, _WARM)


def _step(work: MixedPrecisionWorkload, name: str) -> Callable[[], Any]:
    whose, _, part = name.partition(" ")
    kind = device().type
    torch.manual_seed(0)
    model = GPT(work.config).to(device())
    tokens = torch.randint(work.config.vocab_size, (work.batch, work.config.context_length + 1), device=device())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler: Any = GradScaler() if whose == "our" else torch.amp.GradScaler(kind)
    block: Any = nullcontext()
    if part in ("autocast", "both"):
        block = autocast(kind) if whose == "our" else torch.autocast(kind)

    def step() -> None:
        optimizer.zero_grad()
        with block:
            loss = next_token_loss(model(tokens[:, :-1]), tokens[:, 1:])  # ()
        if part in ("scaler", "both"):
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            optimizer.step()

    return step

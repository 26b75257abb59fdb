"""One GPT, one sequence of batches, trained in one format after the other.

The linear layers are in the format, by emulation; embeddings, norms, attention scores, loss, weights and optimizer stay
in float32.

The global batch is as large as that of GPT-3's smaller models, half a million tokens (Brown et al. 2005.14165, table
2.1), because the gradients of the activations shrink as it grows. Gradient accumulation makes it of many microbatches,
and divides each one's loss by their number. Here all microbatches of a step are the same one, so that it is computed
once and its gradient multiplied. A format rounds away as much of it as in a real run, and a step takes milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from dtlearn.models.corpus import load_corpus
from dtlearn.models.gpt import GPT, GPTConfig, next_token_loss

from ..formats import BF16, FP16
from ..fp8.linear import convert_to_fp8
from ..loss_scaling.grad_scaler import GradScaler
from .emulated_linear import convert_to_emulated

KINDS = ("fp32", "bf16", "fp16", "fp16 unscaled", "fp8")
CONFIG = GPTConfig(context_length=32, num_layers=2, num_heads=2, hidden_size=32)
BATCH_SIZE = 16  # sequences of a microbatch: 512 tokens


@dataclass(frozen=True)
class LossCurve:
    """A training run.

    Attributes:
        kind: one of `KINDS`.
        losses: of each step, before its update.
        scales: the loss scale of each step; 1 where the loss is not scaled.
        skipped: the numbers of the steps whose gradients had an infinity or NaN, and which moved no weight.
    """

    kind: str
    losses: tuple[float, ...]
    scales: tuple[float, ...]
    skipped: tuple[int, ...]


def train_curve(
    kind: str,
    num_steps: int = 100,
    *,
    num_microbatches: int = 1024,
    init_scale: float = 65536.0,
    growth_interval: int = 2000,
    seed: int = 0,
) -> LossCurve:
    """Train a GPT with AdamW.

    Args:
        kind: one of `KINDS`: "fp16" has dynamic loss scaling, "fp8" current scaling of each tensor (E4M3 forward, E5M2
            for gradients; the head stays in float32).
        num_steps: how many.
        num_microbatches: of a global batch, each 512 tokens.
        init_scale, growth_interval: of the loss scaler.
        seed: of weights and batches.

    Raises:
        ValueError: another kind.
    """
    model = _model(kind, seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scaler = GradScaler(init_scale=init_scale, growth_interval=growth_interval, enabled=kind == "fp16")
    losses, scales, skipped = [], [], []
    batches = load_corpus().batches(num_steps, BATCH_SIZE, CONFIG.context_length, seed=seed)
    for step, (inputs, targets) in enumerate(batches):
        optimizer.zero_grad()
        loss = next_token_loss(model(inputs), targets)
        scale = scaler.get_scale()
        scaler.scale(loss / num_microbatches).backward()
        for p in model.parameters():
            if p.grad is not None:
                p.grad *= num_microbatches  # the sum over microbatches, in float32
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
        scales.append(scale)
        if scaler.get_scale() < scale:  # the scaler backs off from an overflow
            skipped.append(step)
    return LossCurve(kind, tuple(losses), tuple(scales), tuple(skipped))


def _model(kind: str, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model = GPT(CONFIG)
    match kind:
        case "fp32":
            return model
        case "bf16":
            return convert_to_emulated(model, BF16)
        case "fp16" | "fp16 unscaled":
            return convert_to_emulated(model, FP16)
        case "fp8":
            return convert_to_fp8(model, skip=("head.projection",))
    raise ValueError(f"kind must be one of {', '.join(KINDS)}; got {kind!r}")

"""One training step of a GPT in many variants: what each needs at its peak, and what it costs in time.

Memory and extra computation are the same on every machine. Seconds are measured in turns, and compared as ratios.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from dtlearn.models import GPT, GPTConfig, next_token_loss
from dtlearn.models.in_turns import Times, ratio, time_in_turns
from dtlearn.models.reference import Batch
from dtlearn.runtime.device import device
from dtlearn.runtime.run import run_ranks

from ..ledger.ledger import MemoryLedger
from ..ledger.record import MemoryRecord
from ..recomputation.every_k import checkpoint_every
from ..recomputation.selective import FUSED_ATTENTION, LINEAR_LAYERS, keep_only, selective_checkpoint
from .accumulation import microbatches
from .offload import OffloadActivations
from .optimizer_in_backward import OptimizerInBackward

Forward = Callable[[GPT, torch.Tensor], torch.Tensor]  # tokens (B, T) -> logits (B, T, V)
PLAIN = "plain"


def forward_checkpoint(model: GPT, tokens: torch.Tensor, k: int = 1) -> torch.Tensor:
    """The blocks in checkpoints of k: (B, T) -> (B, T, V)."""
    x = model.embedding(tokens)  # (B, T, C)
    x = checkpoint_every(list(model.blocks), x, k)  # (B, T, C)
    logits: torch.Tensor = model.head(x)  # (B, T, V)
    return logits


def forward_selective(model: GPT, tokens: torch.Tensor) -> torch.Tensor:
    """Compute each block again but for its matrix products and its attention: (B, T) -> (B, T, V)."""
    keep = keep_only(LINEAR_LAYERS | FUSED_ATTENTION)
    x = model.embedding(tokens)  # (B, T, C)
    for block in model.blocks:
        x = selective_checkpoint(block, x, keep=keep)  # (B, T, C)
    logits: torch.Tensor = model.head(x)  # (B, T, V)
    return logits


@dataclass(frozen=True)
class Variant:
    """A way to run a step.

    Attributes:
        forward: logits of the model.
        num_microbatches: one after the other, gradients added up.
        offloads: what the forward pass saves waits on the host.
        in_backward: each parameter is updated as soon as its gradient is there.
    """

    forward: Forward = GPT.__call__
    num_microbatches: int = 1
    offloads: bool = False
    in_backward: bool = False

    def optimizer(self, model: GPT) -> torch.optim.Optimizer | OptimizerInBackward:
        """AdamW for this variant."""
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        return OptimizerInBackward(optimizer) if self.in_backward else optimizer


VARIANTS: dict[str, Variant] = {
    PLAIN: Variant(),
    "4 micro-batches": Variant(num_microbatches=4),
    "checkpoint every block": Variant(forward_checkpoint),
    "checkpoint every 2 blocks": Variant(lambda model, tokens: forward_checkpoint(model, tokens, 2)),
    "checkpoint every 4 blocks": Variant(lambda model, tokens: forward_checkpoint(model, tokens, 4)),
    "selective": Variant(forward_selective),
    "offload": Variant(offloads=True),
    "optimizer in backward": Variant(in_backward=True),
    "checkpoint and offload": Variant(forward_checkpoint, offloads=True),
    "checkpoint, 4 micro-batches": Variant(forward_checkpoint, num_microbatches=4),
    "checkpoint, optimizer in backward": Variant(forward_checkpoint, in_backward=True),
}


def variant_step(
    variant: Variant,
    model: GPT,
    optimizer: torch.optim.Optimizer | OptimizerInBackward,
    batch: Batch,
    phase: Callable[[str], AbstractContextManager[None]] = lambda name: nullcontext(),
) -> int:
    """A training step: the gradient of the whole batch, and the update. Gradients are freed at the end.

    All variants compute the same update but for rounding, those without micro-batches the same bits.

    Args:
        variant: how.
        model, optimizer, batch: with what; the optimizer from `variant.optimizer`.
        phase: names what runs in its block, such as `ledger.phase`.

    Returns:
        The most bytes that waited on the host.
    """
    host_peak = 0
    for inputs, targets, share in microbatches(batch, variant.num_microbatches):
        with phase("forward"), OffloadActivations(model) if variant.offloads else nullcontext() as offload:
            loss = share * next_token_loss(variant.forward(model, inputs), targets)  # ()
        with phase("backward"):
            loss.backward()
        host_peak = max(host_peak, offload.host.peak if offload else 0)
    with phase("optimizer step"):
        optimizer.step()
    with phase("zero_grad"):
        optimizer.zero_grad()
    return host_peak


@dataclass(frozen=True)
class GPTWorkload:
    """The model to train: a GPT of these sizes, on random tokens, so many sequences as long as the context.

    The default has 0.4 million parameters, and activations of ten times its training state.
    """

    config: GPTConfig = field(default_factory=lambda: GPTConfig(num_layers=8))
    batch: int = 16


@dataclass(frozen=True)
class VariantResult:
    """One variant, measured.

    Attributes:
        name: of `VARIANTS`.
        host_peak: the most bytes that waited on the host; 0 without offload.
        record: of its second step, with the phases forward, backward, optimizer step and zero_grad.
        extra_forward: floating-point operations beyond those of the plain step, as a share of its forward pass.
        seconds: of a step, for each round.
        ratio: of these to the plain step's, the median over the rounds.
    """

    name: str
    host_peak: int
    record: MemoryRecord
    extra_forward: float
    seconds: tuple[float, ...]
    ratio: float

    @property
    def peak(self) -> int:
        """Bytes at the peak."""
        return self.record.peak.bytes

    @property
    def activations_at_peak(self) -> int:
        """Bytes of activations at the peak."""
        return self.record.peak.by_category["activations"]


def measure_variants(work: GPTWorkload | None = None, rounds: int = 5) -> list[VariantResult]:
    """All variants on one rank, in this order; what is fast and what is small can be compared."""
    return list(run_ranks(_measure_on_rank, 1, work or GPTWorkload(), rounds, timeout=600.0).values[0])


def record_variant(variant: Variant, work: GPTWorkload) -> MemoryRecord:
    """The memory of the variant's second step, in this process; the first makes the optimizer's state."""
    model, optimizer, batch = _training(variant, work)
    variant_step(variant, model, optimizer, batch)
    inner = optimizer.inner if isinstance(optimizer, OptimizerInBackward) else optimizer
    with MemoryLedger(model, inner, inputs=batch) as ledger:
        variant_step(variant, model, optimizer, batch, ledger.phase)
    return ledger.record()


class MatrixProducts(TorchDispatchMode):
    """Counts as torch's `FlopCounterMode` does, in half of the time: not by module, and without looking into others.

    Attributes:
        operations: floating-point operations of the matrix products so far, two for a multiplication and its addition.
    """

    def __init__(self) -> None:
        super().__init__()
        self.operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = func(*args, **(kwargs or {}))
        if formula := flop_registry.get(func.overloadpacket):
            self.operations += int(formula(*args, **(kwargs or {}), out_val=results))
        return results


def count_operations(variant: Variant, work: GPTWorkload) -> int:
    """Floating-point operations of the matrix products of a step."""
    model, optimizer, batch = _training(variant, work)
    with MatrixProducts() as products:
        variant_step(variant, model, optimizer, batch)
    return int(products.operations)


def count_forward_operations(work: GPTWorkload) -> int:
    """Floating-point operations of the matrix products of a plain forward pass alone."""
    model, _, (inputs, _) = _training(VARIANTS[PLAIN], work)
    with MatrixProducts() as products, torch.no_grad():
        model(inputs)
    return int(products.operations)


def time_variants_on_rank(work: GPTWorkload, rounds: int) -> Times:
    """On each rank: seconds of a step, for each of `VARIANTS`."""

    def step(variant: Variant) -> Callable[[], int]:
        parts = _training(variant, work)
        return lambda: variant_step(variant, *parts)

    return time_in_turns({name: step(variant) for name, variant in VARIANTS.items()}, rounds)


def _measure_on_rank(work: GPTWorkload, rounds: int) -> list[VariantResult]:
    seconds = time_variants_on_rank(work, rounds)
    operations = {name: count_operations(variant, work) for name, variant in VARIANTS.items()}
    forward = count_forward_operations(work)
    return [
        VariantResult(
            name,
            variant_step(variant, *_training(variant, work)),
            record_variant(variant, work),
            (operations[name] - operations[PLAIN]) / forward,
            seconds[name],
            ratio(seconds[name], seconds[PLAIN]),
        )
        for name, variant in VARIANTS.items()
    ]


def _training(variant: Variant, work: GPTWorkload) -> tuple[GPT, torch.optim.Optimizer | OptimizerInBackward, Batch]:
    """Model, optimizer and batch, with the same weights and tokens every time."""
    torch.manual_seed(0)
    model = GPT(work.config).to(device())
    tokens = torch.randint(work.config.vocab_size, (work.batch, work.config.context_length + 1), device=device())
    return model, variant.optimizer(model), (tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())

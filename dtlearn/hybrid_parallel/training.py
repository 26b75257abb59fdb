"""One call that trains a GPT on ranks of this machine, under any layout: with the losses of one process under all.

train(steps=3).losses
train(tp=2, pp=2, dp=2, steps=3, zero=1).losses     # the same numbers, on 8 ranks
train(tp=2, cp=2, dp=2, steps=3).losses             # and with each sequence on 2 x 2 ranks
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from dtlearn.models import GPTConfig, load_corpus
from dtlearn.models.reference import Batch
from dtlearn.runtime.record.record import Record
from dtlearn.runtime.run import run_ranks

from .checkpoints import MeshState, load_mesh_states, mesh_state
from .layout import FROM_FAST_TO_SLOW, MeshLayout
from .recipe import HybridGPT, HybridStep

SMALL = GPTConfig(context_length=32, num_layers=4, num_heads=4, hidden_size=32)


@dataclass(frozen=True)
class HybridRun:
    """What a run found.

    Attributes:
        layout: of its ranks.
        steps: each with loss, norm and number of tokens.
        states: what each rank would save at the end, by rank: `whole_parameters(states)` puts them together.
        record: of all calls, if it was asked for.
    """

    layout: MeshLayout
    steps: tuple[HybridStep, ...]
    states: tuple[MeshState, ...] = field(repr=False)
    record: Record | None = field(repr=False)

    @property
    def losses(self) -> list[float]:
        """The mean loss of each step."""
        return [step.loss for step in self.steps]


def train(
    tp: int = 1,
    pp: int = 1,
    dp: int = 1,
    steps: int = 3,
    *,
    cp: int = 1,
    ep: int = 1,
    order: tuple[str, ...] | None = None,
    config: GPTConfig = SMALL,
    global_batch: int = 8,
    optimizer_class: type[torch.optim.Optimizer] = torch.optim.AdamW,
    resume: Sequence[MeshState] = (),
    first_batch: int = 0,
    record: bool = False,
    device: str = "auto",
    **options: Any,
) -> HybridRun:
    """Train on tp * pp * dp * cp * ep ranks, each a process of its own, on the corpus that is shipped.

    **Communication**: that of `HybridGPT`.
    **Memory**: that of `HybridGPT` on each rank; here, what all ranks would save.

    Args:
        tp, pp, dp, cp, ep: ranks along each axis.
        steps: of the optimizer.
        order: of the axes, see `MeshLayout`; None: from the fastest link outwards.
        config: of the whole model; ep needs an `ExpertGPTConfig`.
        global_batch: rows of a step, over all ranks.
        optimizer_class: its options are among `options`; AdamW has lr=1e-3 if none is given.
        resume: what the ranks of another run would have saved, of any layout.
        first_batch: of the corpus's batches; after a run of 2 steps it is 2.
        record: keep the record.
        device: as for `run_ranks`.
        options: of `HybridGPT` and of the optimizer: `zero`, `schedule`, `num_microbatches`, `max_norm`, `lr`, ...

    Raises:
        ValueError: as `HybridGPT`, from the ranks as a `RankError`.
    """
    layout = MeshLayout(tp=tp, pp=pp, dp=dp, cp=cp, ep=ep, order=order or FROM_FAST_TO_SLOW)
    batches = list(load_corpus().batches(first_batch + steps, global_batch, config.context_length))[first_batch:]
    arguments = {"lr": 1e-3, "optimizer_class": optimizer_class, **options}
    result = run_ranks(
        train_on_rank, layout.world_size, config, layout, batches, arguments, resume, device=device, record=record
    )
    found, states = zip(*result, strict=True)
    return HybridRun(layout, found[0], states, result.record if record else None)


def train_on_rank(
    config: GPTConfig,
    layout: MeshLayout,
    batches: Sequence[Batch],
    arguments: dict[str, Any],
    resume: Sequence[MeshState] = (),
) -> tuple[tuple[HybridStep, ...], MeshState]:
    """What each rank of `train` does: its steps, and what it would save.

    **Communication** and **Memory**: those of `HybridGPT`.

    Args:
        config, layout: as for `HybridGPT`.
        batches: global ones, one for each step.
        arguments: the others of `HybridGPT`, by keyword.
        resume: as for `train`.
    """
    model = HybridGPT(config, layout, **arguments)
    if resume:
        load_mesh_states(model, resume)
    steps = tuple(model.step(tokens, targets) for tokens, targets in batches)
    return steps, mesh_state(model)

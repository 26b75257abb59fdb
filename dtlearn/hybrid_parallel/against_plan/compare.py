"""The plan of a small run beside what its ranks keep and send: the memory ledger and the record of one real step.

found = compare_with_plan(SmallRun(GPTConfig(), MeshLayout(tp=2, pp=2), num_microbatches=2))
print(comparison_table(found))      # every line equal, or `found.unequal` says which are not
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from dtlearn.memory.ledger.ledger import MemoryLedger
from dtlearn.memory.ledger.record import MemoryRecord
from dtlearn.planner import planned_memory
from dtlearn.runtime.record.training_steps import part
from dtlearn.runtime.recording.phases import phase
from dtlearn.runtime.run import run_ranks
from dtlearn.runtime.words import columns

from ..recipe import HybridGPT
from ..traffic import recorded_bytes
from .planned_rank import STATE, RankFigures, planned_rank
from .small_run import SmallRun

STEP = "second step"  # the first one makes the optimizer's state, and tells shapes


@dataclass(frozen=True)
class PlanComparison:
    """What was planned and what was found, rank by rank.

    Attributes:
        run: that was planned, and ran.
        planned, found: by rank.
        gradients_while_stepping: by rank, the most bytes of gradients in the step. With ZeRO 1 they are more than those
            after backward: whole gradients, and the shards of their mean.
    """

    run: SmallRun
    planned: tuple[RankFigures, ...]
    found: tuple[RankFigures, ...]
    gradients_while_stepping: tuple[float, ...]

    @property
    def unequal(self) -> list[str]:
        """What was not as planned, a line each; empty if everything was."""
        return [
            f"rank {rank}, {name}: planned {planned[name]:,.0f}, found {found[name]:,.0f} bytes"
            for rank, pair in enumerate(zip(self.planned, self.found, strict=True))
            for planned, found in zip(*pair, strict=True)
            for name in planned
            if not math.isclose(planned[name], found[name], abs_tol=1e-6)
        ]

    @property
    def planner_rows(self) -> dict[str, float]:
        """The planner's own rows for the fullest rank: without norms, biases of the ends and positions, or padding."""
        rows = planned_memory(self.run.training_run()).rows
        return {name: rows[name] for name in (*STATE, "activations")}


def compare_with_plan(run: SmallRun, *, device: str = "cpu") -> PlanComparison:
    """Run two steps on `run.layout.world_size` ranks, and hold the second one against the plan.

    **Communication**: that of `HybridGPT`.
    **Memory**: that of `HybridGPT` on each rank.

    Args:
        run: a small one.
        device: as for `run_ranks`. The tables are those of a CPU: attention keeps other rows on a GPU.
    """
    ranks = run.layout.world_size
    result = run_ranks(_on_rank, ranks, run, device=device, record=True, timeout=300.0)
    events = part(result.record, STEP).events
    found = tuple(
        RankFigures(memory, recorded_bytes(events, run.layout, rank)) for rank, (memory, _) in enumerate(result)
    )
    planned = tuple(planned_rank(run, rank) for rank in range(ranks))
    return PlanComparison(run, planned, found, tuple(most for _, most in result))


def comparison_table(comparison: PlanComparison, ranks: Sequence[int] | None = None) -> str:
    """Bytes, category by category and axis by axis: planned, found, and whether they are equal.

    **Communication** and **Memory**: none.

    Args:
        comparison: of a run.
        ranks: which of them; None: all.
    """
    layout = comparison.run.layout
    rows = [["rank", "place", "bytes", "planned", "found", ""]]
    for rank in range(layout.world_size) if ranks is None else ranks:
        mine = layout.coordinates(rank)
        place = " ".join(f"{axis}{getattr(mine, axis)}" for axis in ("tp", "pp", "dp"))
        planned, found = comparison.planned[rank], comparison.found[rank]
        for prefix, plan, fact in (("", planned.memory, found.memory), ("sent along ", planned.sent, found.sent)):
            for name, nbytes in plan.items():
                equal = "equal" if math.isclose(nbytes, fact[name], abs_tol=1e-6) else "not equal"
                rows.append([str(rank), place, prefix + name, f"{nbytes:,.0f}", f"{fact[name]:,.0f}", equal])
    return "\n".join(columns(rows, (3, 4), indent=""))


def _on_rank(run: SmallRun) -> tuple[dict[str, float], float]:
    """Memory of this rank in a step: by category, and of gradients the most."""
    model, batch = run.make(), run.batch()
    model.step(*batch)
    after_backward: list[MemoryRecord] = []
    module, optimizer = whole_of(model)
    with MemoryLedger(module, optimizer, inputs=batch) as ledger, phase(STEP):
        _before_reduction(model, lambda: after_backward.append(ledger.record()))
        model.step(*batch)
    record, state = ledger.record(), after_backward[0]
    memory = {name: float(sum(a.bytes for a in state.at(state.clock) if a.category == name)) for name in STATE}
    return memory | {"activations": float(max(record.live("activations")))}, float(max(record.live("gradients")))


class EveryOptimizer:
    """The optimizers of several stages as one, to be read."""

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        self._optimizers = tuple(optimizers)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The parameter groups of all optimizers."""
        return [group for optimizer in self._optimizers for group in optimizer.param_groups]

    @property
    def state(self) -> dict[torch.Tensor, Any]:
        """The state of all optimizers, by parameter."""
        return {tensor: kept for optimizer in self._optimizers for tensor, kept in optimizer.state.items()}


def whole_of(model: HybridGPT) -> tuple[nn.Module, Any]:
    """This rank's stages as one module, and their optimizers as one: what a ledger takes."""
    stages = model.stages.values()
    return nn.ModuleList(stage.module for stage in stages), EveryOptimizer([stage.inner for stage in stages])


def _before_reduction(model: HybridGPT, look: Any) -> None:
    """Look once when the last backward pass is done and nothing is reduced yet."""
    first = next(iter(model.stages.values()))
    reduce = first.reduce_gradients

    def look_first() -> None:
        look()
        reduce()

    first.reduce_gradients = look_first  # type: ignore[method-assign]

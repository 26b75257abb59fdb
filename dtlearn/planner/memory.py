"""Bytes of the fullest rank of a run, by category.

Activations come from the block's own operations, row by row (`dtlearn.memory.arithmetic.block_variants`). Tensor
parallelism divides those between its two products; those around norms, and the inputs of the products, only with
sequence parallelism (Korthikanti et al., 2205.05198, section 4). How many micro-batches are alive is the schedule's.

Assumptions, which can be replaced: `FRAMEWORK` bytes for the driver's context, NCCL's buffers and workspaces;
`FRAGMENTATION` of what is allocated lost between blocks; `LOGIT_BYTES` for each logit: in 16 bits, in fp32, its
log-softmax and both gradients at their worst moment.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from dtlearn.memory.arithmetic.activations import ActivationTable
from dtlearn.memory.arithmetic.block_variants import block_activations
from dtlearn.memory.arithmetic.published import zero_bytes
from dtlearn.memory.arithmetic.training_state import find_convention, training_state
from dtlearn.pipeline_parallel.checking.theory import peak_live

from .hardware import GB
from .run import TrainingRun, check_world

FRAMEWORK = 2.5 * GB
FRAGMENTATION = 0.04
LOGIT_BYTES = 14


@dataclass(frozen=True)
class PlannedMemory:
    """Bytes of the fullest rank.

    Attributes:
        rows: by category.
        capacity: of the chip.
        live: micro-batches of a whole stage that are alive at once; not a whole number with several chunks.
    """

    rows: dict[str, float]
    capacity: float
    live: float

    @property
    def total(self) -> float:
        """Bytes of all rows together."""
        return sum(self.rows.values())

    @property
    def fits(self) -> bool:
        """Whether the chip has room for the total."""
        return self.total <= self.capacity


class BlockBytes(NamedTuple):
    """Bytes of one block's activations on one rank: all that autograd keeps, and what is held with recomputation."""

    whole: float
    held: float


def planned_memory(run: TrainingRun) -> PlannedMemory:
    """What the first pipeline stage needs at its worst moment; it holds most micro-batches and an embedding.

    Raises:
        ValueError: axes that do not multiply to the cluster.
    """
    check_world(run)
    axes, live = run.axes, live_microbatches(run)
    rule = find_convention(run.precision)
    state = zero_bytes(training_state(round(run.rank_parameters), rule), run.zero_stage, axes.dp * axes.cp)
    block = block_bytes(run)
    tokens = run.microbatch * run.length / axes.cp
    activations = math.ceil(run.layers_per_stage) * live * block.held
    in_a_block = block.whole - block.held if run.recompute != "none" else 0.0
    at_the_head = LOGIT_BYTES * tokens * run.model.vocabulary / axes.tp if axes.pp == 1 else 0.0
    gathered = 0.0
    if run.zero_stage == 3:  # two blocks; in a pipeline the stage, and its gradients, which wait for the last
        size = run.element_bytes
        gathered = 2 * size * run.model.block_parameters / axes.tp if axes.pp == 1 else (size + 4) * run.rank_parameters
    rows: dict[str, float] = {
        **state,
        "activations": activations,
        "temporaries": max(in_a_block, at_the_head),
        "gathered": gathered,
        "framework": FRAMEWORK,
    }
    rows["fragmentation"] = FRAGMENTATION * sum(rows.values())
    return PlannedMemory(rows, run.cluster.memory, live)


def live_microbatches(run: TrainingRun) -> float:
    """Micro-batches that the first rank keeps, in whole stages: 1F1B p, GPipe m, interleaved p (1 + (p-1)/(pv)).

    Any other schedule is simulated, with at most 3p micro-batches: with more it keeps no more.
    """
    p, m, v = run.axes.pp, run.num_microbatches, run.axes.virtual_stages
    if p == 1:
        return 1.0
    if run.schedule == "gpipe":
        return float(m)
    if v > 1 or run.schedule == "interleaved":
        return min(float(m), p * (1 + (p - 1) / (p * max(v, 2 if run.schedule == "interleaved" else v))))
    if run.schedule == "1f1b":
        return float(min(m, p))
    chunks = 2 if run.schedule in ("zbv", "v_half", "v_min") else 1
    return max(peak_live(run.schedule, p, min(m, 3 * p))) / chunks


def block_bytes(run: TrainingRun) -> BlockBytes:
    """Bytes of activations of one block and one micro-batch on one rank."""
    model = run.model
    kind = replace(model.kind, fused_attention=run.fused_attention, element_bytes=run.element_bytes)
    kind = kind if not run.fused_attention else replace(kind, dropout=False)
    sizes = model.block_sizes(run.microbatch, run.length)
    table = block_activations(sizes, kind)
    ranks = run.axes.tp * run.axes.cp if run.sequence_parallel else run.axes.cp
    inside, inputs, outside = _split(table)
    scores = sum(row.bytes for row in table if "abs²" in row.formula)
    per_rank = run.axes.tp * run.axes.cp
    whole = inside / per_rank + inputs / (ranks if run.gather_again else run.axes.cp) + outside / ranks
    entry = run.element_bytes * sizes.sbh / ranks
    if run.recompute == "full":
        return BlockBytes(whole, entry)
    if run.recompute == "selective":
        # A fused SwiGLU keeps gate and up, and computes SiLU and the product again.
        again = sum(row.bytes for row in table if row.kept == "SiLU(gate)") * 2
        return BlockBytes(whole, whole - (scores + again) / per_rank)
    if run.recompute == "ops":  # the block's input, attention's output, and every second product
        products = (2 + 2 * (model.kv_heads or model.heads) / model.heads) * model.hidden
        products += (3 if model.kind.swiglu else 2) * (model.feed_forward or 4 * model.hidden)
        tokens = run.microbatch * run.length
        return BlockBytes(whole, 2 * entry + run.element_bytes * tokens * products / 2 / per_rank)
    return BlockBytes(whole, whole)


def _split(table: ActivationTable) -> tuple[float, float, float]:
    """Bytes inside tensor-parallel regions, of the inputs of these regions, and around them."""
    inputs = sum(row.bytes for row in table if _is_replicated_input(row.module, row.kept))
    around = sum(row.bytes for row in table if row.module.endswith(("norm", "dropout")))
    return sum(row.bytes for row in table) - inputs - around, inputs, around


def _is_replicated_input(module: str, kept: str) -> bool:
    return kept == "input of query, key, value" or (
        module in ("feed_forward.up", "feed_forward.gate") and kept == "input"
    )

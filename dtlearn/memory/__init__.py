"""Layer 3: memory. Where the bytes of a training step go, and how to hold fewer of them.

`ledger/`: what was allocated, for what, by which line, and when it was gone; counted while a step runs.
`arithmetic/`: the same bytes by formula, before a run. `recomputation/`: activations that are computed again in place
of being kept.
"""

from .arithmetic.activations import BlockSizes, Term, gpt_activations, paper_block, table_bytes
from .arithmetic.training_state import CONVENTIONS, GB, GIB, optimizer_state_of, training_state, training_state_of
from .ledger.record import CATEGORIES, Allocation, MemoryRecord, Peak, Phase
from .recomputation.checkpoint import checkpoint
from .recomputation.every_k import best_k, checkpoint_every, segment_peak
from .recomputation.naive import naive_checkpoint
from .recomputation.operation_costs import OperationCost, operation_costs
from .recomputation.planner import LayerCost, RecomputationPlan, plan_recomputation, run_plan
from .recomputation.selective import FUSED_ATTENTION, LINEAR_LAYERS, keep_only, selective_checkpoint

__all__ = [
    "CATEGORIES",
    "CONVENTIONS",
    "FUSED_ATTENTION",
    "GB",
    "GIB",
    "LINEAR_LAYERS",
    "Allocation",
    "BlockSizes",
    "LayerCost",
    "MemoryRecord",
    "OperationCost",
    "Peak",
    "Phase",
    "RecomputationPlan",
    "Term",
    "best_k",
    "checkpoint",
    "checkpoint_every",
    "gpt_activations",
    "keep_only",
    "naive_checkpoint",
    "operation_costs",
    "optimizer_state_of",
    "paper_block",
    "plan_recomputation",
    "run_plan",
    "segment_peak",
    "selective_checkpoint",
    "table_bytes",
    "training_state",
    "training_state_of",
]

"""Layer 4: memory. Where the bytes of a training step go, and how to hold fewer of them.

`ledger/`: what was allocated, for what, by which line, and when it was gone; counted while a step runs.
`arithmetic/`: the same bytes by formula, before a run. `recomputation/`: activations that are computed again in place
of being kept. `saving/`: fewer bytes without computing twice, and leaks.
"""

from .arithmetic.activations import (
    Activation,
    ActivationSizes,
    gpt_activations,
    gpt_block,
    mlp_activations,
    paper_block,
    table_bytes,
)
from .arithmetic.block_variants import GPT_BLOCK, LLAMA_BLOCK, BlockKind, block_activations, effects
from .arithmetic.fits import MemoryEstimate, largest_batch, what_fits
from .arithmetic.kept_tensors import KeptTensor, kept_tensors
from .arithmetic.published import GPUS, MODELS, Gpu, ModelSizes, published_figures, sizes_of
from .arithmetic.training_state import CONVENTIONS, GB, GIB, optimizer_state_of, training_state, training_state_of
from .ledger.ledger import MemoryLedger
from .ledger.measure import record_on_ranks, record_step
from .ledger.record import CATEGORIES, Allocation, MemoryRecord, Peak, Phase
from .ledger.storage_ledger import StorageLedger
from .recomputation.checkpoint import checkpoint
from .recomputation.every_k import checkpoint_every, segment_peak
from .recomputation.naive import naive_checkpoint
from .recomputation.operation_costs import OperationCost, operation_costs
from .recomputation.planner import LayerCost, RecomputationPlan, plan_recomputation, run_plan
from .recomputation.selective import FUSED_ATTENTION, LINEAR_LAYERS, keep_only, selective_checkpoint
from .saving.accumulation import accumulate_gradients, accumulate_losses, microbatches
from .saving.leaks import LEAKS, MENDED, growth_by_line, growth_per_step, live_after_each, num_graph_nodes
from .saving.offload import OffloadActivations
from .saving.optimizer_in_backward import OptimizerInBackward
from .saving.variants import VARIANTS, GPTWorkload, Variant, VariantResult, measure_variants, record_variant

__all__ = [
    "CATEGORIES",
    "CONVENTIONS",
    "FUSED_ATTENTION",
    "GB",
    "GIB",
    "GPT_BLOCK",
    "GPUS",
    "LEAKS",
    "LINEAR_LAYERS",
    "LLAMA_BLOCK",
    "MENDED",
    "MODELS",
    "VARIANTS",
    "Activation",
    "ActivationSizes",
    "Allocation",
    "BlockKind",
    "GPTWorkload",
    "Gpu",
    "KeptTensor",
    "LayerCost",
    "MemoryEstimate",
    "MemoryLedger",
    "MemoryRecord",
    "ModelSizes",
    "OffloadActivations",
    "OperationCost",
    "OptimizerInBackward",
    "Peak",
    "Phase",
    "RecomputationPlan",
    "StorageLedger",
    "Variant",
    "VariantResult",
    "accumulate_gradients",
    "accumulate_losses",
    "block_activations",
    "checkpoint",
    "checkpoint_every",
    "effects",
    "gpt_activations",
    "gpt_block",
    "growth_by_line",
    "growth_per_step",
    "keep_only",
    "kept_tensors",
    "largest_batch",
    "live_after_each",
    "measure_variants",
    "microbatches",
    "mlp_activations",
    "naive_checkpoint",
    "num_graph_nodes",
    "operation_costs",
    "optimizer_state_of",
    "paper_block",
    "plan_recomputation",
    "published_figures",
    "record_on_ranks",
    "record_step",
    "record_variant",
    "run_plan",
    "segment_peak",
    "selective_checkpoint",
    "sizes_of",
    "table_bytes",
    "training_state",
    "training_state_of",
    "what_fits",
]

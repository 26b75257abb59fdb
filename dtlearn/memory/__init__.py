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

__all__ = [
    "CATEGORIES",
    "CONVENTIONS",
    "GB",
    "GIB",
    "Allocation",
    "BlockSizes",
    "MemoryRecord",
    "Peak",
    "Phase",
    "Term",
    "best_k",
    "checkpoint",
    "checkpoint_every",
    "gpt_activations",
    "naive_checkpoint",
    "optimizer_state_of",
    "paper_block",
    "segment_peak",
    "table_bytes",
    "training_state",
    "training_state_of",
]

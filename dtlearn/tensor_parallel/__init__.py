"""Layer 3: tensor parallelism. Each layer is divided over the ranks, and all of them compute it together."""

from .random_states import RandomStateTracker, checkpoint, tensor_parallel_manual_seed
from .sequence_parallel import (
    mark_sequence_parallel,
    reduce_sequence_parallel_gradients,
    sequence_parallel_parameters,
)

__all__ = [
    "RandomStateTracker",
    "checkpoint",
    "mark_sequence_parallel",
    "reduce_sequence_parallel_gradients",
    "sequence_parallel_parameters",
    "tensor_parallel_manual_seed",
]

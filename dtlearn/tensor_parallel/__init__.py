"""Layer 3: tensor parallelism. Each layer is divided over the ranks, and all of them compute it together."""

from .random_states import RandomStateTracker, checkpoint, tensor_parallel_manual_seed

__all__ = ["RandomStateTracker", "checkpoint", "tensor_parallel_manual_seed"]

"""Layer 3: ZeRO. Optimizer state, gradients and parameters are divided over the ranks, and each is kept once.

`partition/`: who owns what, as data for any process. `stages/`, on the ranks: stage 1, 2 and 3, with naive versions
beside them. For all stages: `clipping`, by the norm over all ranks, and `precision`.
"""

from .clipping import clip_by_local_norm_, clip_grad_norm_, global_norm
from .partition.flat import plan_flat
from .partition.partition import Bucket, Partition, Row, Slice, validate_partition
from .partition.per_parameter import plan_per_parameter
from .partition.whole_tensors import plan_whole_tensors
from .precision import MixedPrecisionPolicy
from .stages.flat_parameters import FlatParameters

__all__ = [
    "Bucket",
    "FlatParameters",
    "MixedPrecisionPolicy",
    "Partition",
    "Row",
    "Slice",
    "clip_by_local_norm_",
    "clip_grad_norm_",
    "global_norm",
    "plan_flat",
    "plan_per_parameter",
    "plan_whole_tensors",
    "validate_partition",
]

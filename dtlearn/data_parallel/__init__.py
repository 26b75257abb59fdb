"""Layer 3: data parallelism. Every rank has the whole model and a part of each batch; gradients are averaged.

Chapter 3 reads these files in this order: `sampler`, `naive`, `buckets`, `reducer`, `ddp`; then `resumable`
and `evaluation`.
"""

from .evaluation import Means, evaluate, evaluate_locally, gather_predictions, mean_of_means, predict
from .metrics import Metrics
from .resumable import ResumableSampler
from .sampler import DistributedSampler, EvaluationSampler, epoch_order, shard_indices

__all__ = [
    "DistributedSampler",
    "EvaluationSampler",
    "Means",
    "Metrics",
    "ResumableSampler",
    "epoch_order",
    "evaluate",
    "evaluate_locally",
    "gather_predictions",
    "mean_of_means",
    "predict",
    "shard_indices",
]

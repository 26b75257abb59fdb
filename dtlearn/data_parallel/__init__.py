"""Layer 3: data parallelism. Every rank has the whole model and a part of each batch; gradients are averaged.

Chapter 3 reads these files in this order: `sampler`, `naive`, `buckets`, `backward`, `reducer`, `ddp`; then `resumable`
and `evaluation`.
"""

from .buckets import Bucket, plan_buckets, validate_buckets
from .comm_hooks import allreduce_hook, bf16_compress_hook, fp16_compress_hook
from .ddp import DistributedDataParallel
from .evaluation import Means, evaluate, evaluate_locally, gather_predictions, mean_of_means, predict
from .metrics import Metrics
from .naive import NaiveDataParallel, average_gradients
from .replicas import broadcast_module, broadcast_tensors
from .resumable import ResumableSampler
from .sampler import DistributedSampler, EvaluationSampler, epoch_order, shard_indices
from .uneven import Join

__all__ = [
    "Bucket",
    "DistributedDataParallel",
    "DistributedSampler",
    "EvaluationSampler",
    "Join",
    "Means",
    "Metrics",
    "NaiveDataParallel",
    "ResumableSampler",
    "allreduce_hook",
    "average_gradients",
    "bf16_compress_hook",
    "broadcast_module",
    "broadcast_tensors",
    "epoch_order",
    "evaluate",
    "evaluate_locally",
    "fp16_compress_hook",
    "gather_predictions",
    "mean_of_means",
    "plan_buckets",
    "predict",
    "shard_indices",
    "validate_buckets",
]

"""Layer 4: data parallelism. Every rank has the whole model and a part of each batch; gradients are averaged.

It runs on the ranks; only the plans and models (`overlap_model`, `samples.sampler`, `large_batch`) are pure functions,
for any process. Chapter 3 reads these files in this order: `samples/sampler`, `naive`, `gradient_buckets` of
`dtlearn.sharing`, `bucketed`, then `ddp` with `reducer`, `comm_hooks` of `dtlearn.sharing`, `unused_parameters` and
`join`; then `samples/token_mean`, `sync_batch_norm`, `samples/evaluation`, `large_batch/` and `overlap_model`. Which
backward pass is going on, and that copies begin as one, is in `dtlearn.sharing.wrapping`. `dtlearn.train` puts them
together.
"""

from dtlearn.sharing.comm_hooks import allreduce_hook, bf16_compress_hook, fp16_compress_hook
from dtlearn.sharing.gradient_buckets import Bucket, plan_buckets, validate_buckets
from dtlearn.sharing.wrapping import broadcast_module, broadcast_tensors

from .bucketed import BucketedDataParallel
from .ddp import DistributedDataParallel
from .join import Join
from .large_batch.lamb import LAMB
from .large_batch.lars import LARS
from .large_batch.learning_rate import WarmupThenCosine, linear_scaled_lr, sqrt_scaled_lr
from .large_batch.noise_scale import noise_estimate
from .naive import NaiveDataParallel, average_gradients
from .samples.evaluation import Means, evaluate, evaluate_locally, mean_of_means
from .samples.metrics import Metrics
from .samples.resumable import ResumableSampler
from .samples.sampler import DistributedSampler, EvaluationSampler, epoch_order, shard_indices
from .samples.token_mean import count_tokens, global_mean, reported_loss, scale_for_averaging
from .sync_batch_norm import SyncBatchNorm, convert_sync_batchnorm

__all__ = [
    "LAMB",
    "LARS",
    "Bucket",
    "BucketedDataParallel",
    "DistributedDataParallel",
    "DistributedSampler",
    "EvaluationSampler",
    "Join",
    "Means",
    "Metrics",
    "NaiveDataParallel",
    "ResumableSampler",
    "SyncBatchNorm",
    "WarmupThenCosine",
    "allreduce_hook",
    "average_gradients",
    "bf16_compress_hook",
    "broadcast_module",
    "broadcast_tensors",
    "convert_sync_batchnorm",
    "count_tokens",
    "epoch_order",
    "evaluate",
    "evaluate_locally",
    "fp16_compress_hook",
    "global_mean",
    "linear_scaled_lr",
    "mean_of_means",
    "noise_estimate",
    "plan_buckets",
    "reported_loss",
    "scale_for_averaging",
    "shard_indices",
    "sqrt_scaled_lr",
    "validate_buckets",
]

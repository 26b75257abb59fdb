"""Layer 4: ZeRO. Optimizer state, gradients and parameters are divided over the ranks, and each is kept once.

Begin with `page_zero2`, stage 2 in one file. For any process: `partition/`, who owns what, as data; `arithmetic/`,
bytes stored and sent, by formula. On the ranks:
`stages/`, stage 1, 2 and 3, with naive versions beside them; `layerwise/`, optimizers that look at whole layers. For
all stages: `clipping`, by the norm over all ranks; `precision`, with `shard_store` between it and the shards;
`refusals` and `gradient_hooks`, what shards cannot do or do in another way; `unit_events`; `state_dicts/`, what each
rank saves, and how other ranks and other stages load it, with `pieces_of_stages` between the two; `offload/`: optimizer
state in host memory, and updates there.
"""

from dtlearn.sharing.host_memory import Host
from dtlearn.sharing.resharding import Read, plan_reads

from .arithmetic.published import ZERO_OFFLOAD_TABLE_1, ZERO_TABLE_1
from .arithmetic.state_bytes import gathered_elements, state_bytes
from .arithmetic.threshold import tokens_to_hide
from .arithmetic.traffic import Calls, num_messages, sent_bytes, step_traffic
from .clipping import clip_by_local_norm_, clip_grad_norm_, global_norm
from .layerwise.lamb import ShardedLAMB, ShardwiseLAMB
from .layerwise.muon import cost_of_ranks, newton_schulz, newton_schulz_flops, sharded_muon
from .offload.optimizer import OffloadedOptimizer, offloaded
from .partition.flat import plan_flat
from .partition.partition import Bucket, Partition, Row, Slice, validate_partition
from .partition.per_parameter import plan_per_parameter
from .partition.whole_tensors import plan_whole_tensors
from .pieces_of_stages import pieces_of_stage1, pieces_of_stage3
from .precision import MixedPrecisionPolicy
from .stages.flat_parameters import FlatParameters
from .stages.hybrid import HybridShardedDataParallel
from .stages.naive import NaiveZeroRedundancyOptimizer
from .stages.zero1 import ZeroRedundancyOptimizer
from .stages.zero2 import ShardedGradients
from .stages.zero3 import FullyShardedDataParallel
from .state_dicts.reshard import reshard
from .state_dicts.sharded import ShardedParameters, ShardedState, load_sharded_state_dict, sharded_state_dict
from .state_dicts.whole import consolidate, consolidated_state_dict, model_state_dict, optimizer_state_dict
from .unit_events import UnitEvent

__all__ = [
    "ZERO_OFFLOAD_TABLE_1",
    "ZERO_TABLE_1",
    "Bucket",
    "Calls",
    "FlatParameters",
    "FullyShardedDataParallel",
    "Host",
    "HybridShardedDataParallel",
    "MixedPrecisionPolicy",
    "NaiveZeroRedundancyOptimizer",
    "OffloadedOptimizer",
    "Partition",
    "Read",
    "Row",
    "ShardedGradients",
    "ShardedLAMB",
    "ShardedParameters",
    "ShardedState",
    "ShardwiseLAMB",
    "Slice",
    "UnitEvent",
    "ZeroRedundancyOptimizer",
    "clip_by_local_norm_",
    "clip_grad_norm_",
    "consolidate",
    "consolidated_state_dict",
    "cost_of_ranks",
    "gathered_elements",
    "global_norm",
    "load_sharded_state_dict",
    "model_state_dict",
    "newton_schulz",
    "newton_schulz_flops",
    "num_messages",
    "offloaded",
    "optimizer_state_dict",
    "pieces_of_stage1",
    "pieces_of_stage3",
    "plan_flat",
    "plan_per_parameter",
    "plan_reads",
    "plan_whole_tensors",
    "reshard",
    "sent_bytes",
    "sharded_muon",
    "sharded_state_dict",
    "state_bytes",
    "step_traffic",
    "tokens_to_hide",
    "validate_partition",
]

"""Serving a model, and ranks that serve or evaluate while others train.

Generation, in this order: `requests` and `sampling`, what is asked, and how a token is chosen; `kv_cache` and
`cached_model`, the model that is given new tokens only; `generate`, on one rank or with divided layers; `pipelined`, on
stages; `traffic`, their bytes; `batching`, who is in a batch. Then separate ranks: `rank_roles`, the groups of one job;
`separate_ranks`, what they do; `role_timeline`, what comes of it, as data.
"""

from .batching import ServingRun, plan, serve
from .cached_model import CachedGPT
from .generate import cache_for, generate
from .kv_cache import KVCache, cache_bytes
from .pipelined import generate_pipelined, in_groups
from .rank_roles import RankRoles
from .requests import GenerationRequest
from .role_timeline import RoleEvent, SeparateRun
from .sampling import next_token
from .separate_ranks import SeparateJob, run_separate_ranks
from .traffic import ModelPass, TrafficSum, passes, pipeline_ticks, pipeline_traffic, tensor_parallel_traffic

__all__ = [
    "CachedGPT",
    "GenerationRequest",
    "KVCache",
    "ModelPass",
    "RankRoles",
    "RoleEvent",
    "SeparateJob",
    "SeparateRun",
    "ServingRun",
    "TrafficSum",
    "cache_bytes",
    "cache_for",
    "generate",
    "generate_pipelined",
    "in_groups",
    "next_token",
    "passes",
    "pipeline_ticks",
    "pipeline_traffic",
    "plan",
    "run_separate_ranks",
    "serve",
    "tensor_parallel_traffic",
]

"""Layer 4: context parallelism. The tokens of each sequence are divided over the ranks; only attention lets them meet.

`page_ring_attention` is the idea on a page.

For any process: `token_layout`, which tokens a rank has, and what they cost; `block_attention`, attention to some of
the keys and how parts are merged; `blockwise`, one block after the other; `traffic`, bytes sent and kept, by formula.
On the ranks: `all_gather`, the simple way; `ring`, in which keys and values pass by; `ulysses`, tokens for heads;
`attention`, a layer by any of them; `gpt`, a whole model; `training`, which sums a step takes over the ranks;
`emulated`, attention that sleeps.
"""

from .all_gather import all_gather_attention
from .attention import ContextMethod, ContextParallelAttention, context_parallel_attention
from .block_attention import PartialAttention, attend, attend_backward, merge
from .blockwise import blockwise_attention
from .emulated import emulated_attention
from .gpt import ContextParallelEmbedding, context_parallel_gpt
from .ring import ring_attention
from .token_layout import (
    AttentionBlock,
    TokenLayout,
    attended_pairs,
    block_between,
    check_length,
    chunks_of,
    global_order,
    imbalance,
    own_tokens,
    shard_tokens,
    token_positions,
    unshard_tokens,
)
from .traffic import AttentionSizes, ContextCall, attention_traffic, kept_bytes, sent_bytes
from .training import reduce_context_parallel_gradients, reported_mean, token_mean
from .ulysses import ulysses_attention

__all__ = [
    "AttentionBlock",
    "AttentionSizes",
    "ContextCall",
    "ContextMethod",
    "ContextParallelAttention",
    "ContextParallelEmbedding",
    "PartialAttention",
    "TokenLayout",
    "all_gather_attention",
    "attend",
    "attend_backward",
    "attended_pairs",
    "attention_traffic",
    "block_between",
    "blockwise_attention",
    "check_length",
    "chunks_of",
    "context_parallel_attention",
    "context_parallel_gpt",
    "emulated_attention",
    "global_order",
    "imbalance",
    "kept_bytes",
    "merge",
    "own_tokens",
    "reduce_context_parallel_gradients",
    "reported_mean",
    "ring_attention",
    "sent_bytes",
    "shard_tokens",
    "token_mean",
    "token_positions",
    "ulysses_attention",
    "unshard_tokens",
]

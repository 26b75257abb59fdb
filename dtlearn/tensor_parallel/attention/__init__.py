"""Attention divided by heads: each rank has H/t of them, with all that belongs to a head.

For any process: `heads`, how many of which heads a rank has; `fused`, query, key and value from one weight. On the
ranks: `attention`.
"""

from .attention import ParallelAttention
from .fused import QKV, fuse_qkv, split_fused_qkv
from .heads import Heads, divide_heads

__all__ = [
    "QKV",
    "Heads",
    "ParallelAttention",
    "divide_heads",
    "fuse_qkv",
    "split_fused_qkv",
]

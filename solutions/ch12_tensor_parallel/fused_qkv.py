"""Attention by heads, from a fused weight.

Many models keep the weights of query, key and value in one matrix, so that one product computes all three. Heads are
independent of one another, and tensor parallelism gives each rank some of them. Which rows of the fused weight are
those of a head?

Write a class for causal self-attention, without biases and dropout, with

- `__init__(self, qkv, output, num_heads, num_kv_heads, group, f, g)`. There are H query heads of size D and K key and
  value heads; K divides H, and **query heads that follow one another share a key and value head**: with H = 4
  and K = 2 the heads 0 and 1 use the first, 2 and 3 the second. (With K < H this is called grouped-query attention:
  there are fewer keys and values to compute and to keep.) Given are, the same on all ranks of `group`:
  - `qkv`, the whole fused weight ((H + 2 K) D, C), where C = H D: the rows of all queries, head by head, then of all
    keys, then of all values. If K = H these are its thirds;
  - `output`, the whole weight (C, H D) of the output projection;
  - `f` and `g`, the conjugate pair for this group.
- `qkv`, an `nn.Parameter`: this rank's rows, laid out like the whole: queries, then keys, then values. Of t ranks
  each has H/t query heads that follow one another, in the order of the ranks in the group, and the K/t key and
  value heads that these use.
- `output`, an `nn.Parameter` (C, H D / t): the columns of this rank's heads.
- `forward(self, x)`: (B, T, C), the same on all ranks, to (B, T, C), as the whole attention computes it, on all ranks.

Both parameters have memory of their own; the module has no others and does not keep the whole weights. In backward
every rank gets the whole gradient of `x`, and its parts of those of the weights. If t does not divide K, `__init__`
raises a `ValueError` with a message that names both numbers.

**Rule**: in a group of several ranks `forward` calls `f` once and `g` once; there is no other communication.

**Example**: H = 4, K = 2, D = 1, two ranks. The fused weight has the rows q0 q1 q2 q3 k0 k1 v0 v1.

| | rank 0 | rank 1 |
|---|---|---|
| rows of `qkv` | q0 q1 k0 v0 | q2 q3 k1 v1 |
| columns of `output` | 0 and 1 | 2 and 3 |
"""

from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.nn.functional as F

Function = Callable[[torch.Tensor], torch.Tensor]


class fused_qkv(torch.nn.Module):
    """Causal self-attention of which this rank has some heads."""

    def __init__(
        self,
        qkv: torch.Tensor,
        output: torch.Tensor,
        num_heads: int,
        num_kv_heads: int,
        group: dist.ProcessGroup,
        f: Function,
        g: Function,
    ) -> None:
        super().__init__()
        # BEGIN SOLUTION: refuse what does not fit; this rank's rows of queries, keys and values
        n, place = dist.get_world_size(group), dist.get_rank(group)
        if num_kv_heads % n:
            raise ValueError(f"{n} ranks do not divide {num_kv_heads} key and value heads")
        self.head_size = output.shape[1] // num_heads
        self.sizes = [heads // n * self.head_size for heads in (num_heads, num_kv_heads, num_kv_heads)]
        whole = qkv.split([n * size for size in self.sizes])
        self.qkv = torch.nn.Parameter(torch.cat([part.chunk(n)[place] for part in whole]))
        self.output = torch.nn.Parameter(output.chunk(n, 1)[place].clone())
        self.shared_by = num_heads // num_kv_heads
        self.f, self.g = f, g
        # END SOLUTION

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the output of all heads, (B, T, C) -> (B, T, C)."""
        # BEGIN SOLUTION: this rank's heads, and their part of the output
        parts = F.linear(self.f(x), self.qkv).split(self.sizes, -1)
        q, k, v = (part.unflatten(-1, (-1, self.head_size)).transpose(1, 2) for part in parts)
        k, v = (part.repeat_interleave(self.shared_by, 1) for part in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.g(F.linear(y.transpose(1, 2).flatten(2), self.output))
        # END SOLUTION

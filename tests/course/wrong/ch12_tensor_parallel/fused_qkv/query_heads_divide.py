# expect: DTL-MISTAKE
# says: expected a ValueError, but nothing was raised

import torch
import torch.distributed as dist
import torch.nn.functional as F


class fused_qkv(torch.nn.Module):
    def __init__(self, qkv, output, num_heads, num_kv_heads, group, f, g):
        super().__init__()
        n, D, place = dist.get_world_size(group), output.shape[1] // num_heads, dist.get_rank(group)
        if num_heads % n:
            raise ValueError(f"{n} ranks do not divide {num_heads} heads")
        blocks = qkv.split([num_heads * D, num_kv_heads * D, num_kv_heads * D])
        own = torch.cat([block.chunk(n)[place] for block in blocks])
        self.qkv = torch.nn.Parameter(own)
        self.output = torch.nn.Parameter(output.chunk(n, 1)[place].clone())
        self.sizes = [len(block.chunk(n)[place]) for block in blocks]
        self.D, self.times, self.f, self.g = D, num_heads // num_kv_heads, f, g

    def forward(self, x):
        q, k, v = F.linear(self.f(x), self.qkv).split(self.sizes, -1)
        q, k, v = (part.unflatten(-1, (-1, self.D)).transpose(1, 2) for part in (q, k, v))
        k, v = (part.repeat_interleave(self.times, 1) for part in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.transpose(1, 2).flatten(2)
        return self.g(F.linear(y, self.output))

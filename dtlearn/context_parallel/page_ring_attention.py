"""Ring attention on one page: queries stay, keys and values pass by, the softmax is merged.

In step s, rank r has the keys of rank r - s; it skips those of later ranks, all masked.

Attention to some of the keys is (out, lse), lse = log(sum(exp(scores))). Merged:

    lse = log(exp(lse_a) + exp(lse_b))     out = exp(lse_a - lse) out_a + exp(lse_b - lse) out_b

Source: Liu, Zaharia & Abbeel, "Ring Attention", 2310.01889, algorithm 1.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from dtlearn.sharing.shards import rank_and_size


def pass_on(x: Tensor, group: ProcessGroup | None) -> Tensor:
    """Send to the next rank and receive from the previous one, at once, or all would wait."""
    rank, cp = rank_and_size(group)
    arriving = torch.empty_like(x)
    send = dist.P2POp(dist.isend, x, group=group, group_peer=(rank + 1) % cp)
    receive = dist.P2POp(dist.irecv, arriving, group=group, group_peer=(rank - 1) % cp)
    for work in dist.batch_isend_irecv([send, receive]):
        work.wait()
    return arriving


def masked_scores(q: Tensor, k: Tensor, is_own: bool) -> Tensor:
    """(B, H, T/cp, D) twice -> (B, H, T/cp, T/cp): among its own keys a rank has later ones."""
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return scores.masked_fill(later, -math.inf) if is_own else scores


class PageRingAttention(torch.autograd.Function):
    """Causal attention, rank r having the tokens [r T/cp, (r+1) T/cp): q, k, v (B, H, T/cp, D).

    **Communication**: cp-1 hops of K and V forward; backward these, and cp hops of dK and dV.
    **Memory**: keeps q, k, v, the output and lse; keys and values of two ranks at any time.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, group: ProcessGroup | None) -> Tensor:
        """q stays; K and V make cp-1 hops."""
        (rank, cp), kv = rank_and_size(group), torch.stack([k, v])  # (2, B, H, T/cp, D)
        out, lse = torch.zeros_like(q), torch.full_like(q[..., 0], -math.inf)
        for step in range(cp):
            kv = pass_on(kv, group) if step else kv  # now rank - step's
            if step <= rank:  # else all its keys are later: no term
                scores = masked_scores(q, kv[0], step == 0)
                new = torch.logaddexp(lse, scores.logsumexp(-1))  # (B, H, T/cp)
                out = (lse - new).exp()[..., None] * out + (scores - new[..., None]).exp() @ kv[1]
                lse = new
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.group = group
        return out

    @staticmethod
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        """dK and dV travel with K and V, one term more at each rank, and one hop further: home."""
        q, k, v, out, lse = ctx.saved_tensors
        (rank, cp), kv, dq = rank_and_size(ctx.group), torch.stack([k, v]), torch.zeros_like(q)
        d_kv, delta = torch.zeros_like(kv), (d_out * out).sum(-1, keepdim=True)
        for step in range(cp):
            kv = pass_on(kv, ctx.group) if step else kv
            if step <= rank:
                p = (masked_scores(q, kv[0], step == 0) - lse[..., None]).exp()  # over all keys
                ds = p * (d_out @ kv[1].mT - delta) / math.sqrt(q.shape[-1])
                dq, d_kv = dq + ds @ kv[0], d_kv + torch.stack([ds.mT @ q, p.mT @ d_out])
            d_kv = pass_on(d_kv, ctx.group) if cp > 1 else d_kv
        return dq, d_kv[0], d_kv[1], None

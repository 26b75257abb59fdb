"""Attention to some of the keys, and how parts of it are put together: the online softmax. Nothing is sent here.

Of one query with scores s_j, softmax attention is  out = sum_j exp(s_j) v_j / sum_j exp(s_j).  Over some of the keys
only, numerator and denominator are partial sums. A part is kept as (out, lse), its own attention and

    lse = log sum_j exp(s_j)        of its keys

and two parts are merged with the weights that their denominators have in the sum of both:

    lse = log(exp(lse_a) + exp(lse_b))        out = exp(lse_a - lse) out_a + exp(lse_b - lse) out_b

No exponent is above 0, so nothing overflows, and the order of parts does not matter but for rounding. In backward, the
softmax of the whole is exp(s_j - lse) with the lse of *all* keys; with a part's own one it would add up to 1 in each
part.

Shapes in this file:
    B  batch    H  query heads    H_kv  key-value heads, a divisor of H    Tq, Tk  queries, keys    D  head size

Sums are kept in fp32 (float64 for float64), whatever the dtype of the tensors.

Sources: Milakov & Gimelshein, "Online normalizer calculation for softmax", 1805.02867; Dao et al., "FlashAttention",
2205.14135, algorithms 1 and 4, and FlashAttention-2, 2307.08691, for the one number per query that is kept.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


class PartialAttention(NamedTuple):
    """Attention to some of the keys.

    Attributes:
        out: (B, H, Tq, D), normalized over these keys.
        lse: (B, H, Tq), the log of the sum of exp(score) over these keys; -inf: the query attends to none of them.
    """

    out: Tensor
    lse: Tensor


def check_tensors(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Check that queries, keys and values belong together.

    Raises:
        ValueError: they do not.
    """
    if q.ndim != 4 or k.shape != v.shape or k.shape[::2] != q.shape[::2] or k.shape[3:] != q.shape[3:]:
        raise ValueError(
            "q is (B, H, T/cp, D), k and v are (B, H_kv, T/cp, D), with the same tokens on a rank; got "
            f"{tuple(q.shape)}, {tuple(k.shape)} and {tuple(v.shape)}"
        )
    if q.shape[1] % k.shape[1]:
        raise ValueError(f"the key-value heads divide the query heads; got {k.shape[1]} and {q.shape[1]}")


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which sums over blocks are kept: fp32, or float64 for float64."""
    return torch.promote_types(dtype, torch.float32)


def attend(q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool) -> PartialAttention:
    """Attention of these queries to these keys, with its log-sum-exp.

    On the CPU it is torch's flash kernel, in tiles. On other devices it is written out.

    **Memory**: the result, of which `lse` is in the dtype of sums; not on the CPU for a moment all scores, B H Tq Tk.

    Args:
        q: (B, H, Tq, D).
        k, v: (B, H_kv, Tk, D).
        is_causal: query i attends to the keys up to i; there are as many of them.
    """
    if q.device.type == "cpu":
        k, v = (_each_query_head(x, q.shape[1]) for x in (k, v))
        out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, is_causal)
        return PartialAttention(out.to(accumulation_dtype(q.dtype)), lse)
    return attend_plainly(q, k, v, is_causal=is_causal)


def attend_plainly(q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool) -> PartialAttention:
    """`attend`, written out."""
    q, k, v = (x.to(accumulation_dtype(x.dtype)) for x in (q, k, v))
    k, v = (_each_query_head(x, q.shape[1]) for x in (k, v))  # (B, H, Tk, D)
    scores = _scores(q, k, is_causal)  # (B, H, Tq, Tk)
    lse = scores.logsumexp(-1)  # (B, H, Tq)
    return PartialAttention((scores - lse[..., None]).exp() @ v, lse)


def attend_backward(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, whole: PartialAttention, *, is_causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The terms that these keys have in the gradients of q, k and v, in the dtype of sums.

    With P = exp(scores - lse), dO the gradient of the output and O the output of *all* keys:

        dV = P^T dO        dS = P * (dO V^T - rowsum(dO * O))        dQ = dS K / sqrt(D)        dK = dS^T Q / sqrt(D)

    **Memory**: the result; not on the CPU for a moment twice all scores.

    Args:
        gradient: of the output, (B, H, Tq, D).
        q: (B, H, Tq, D).
        k, v: (B, H_kv, Tk, D).
        whole: these queries' attention to all keys, merged: `out` in the dtype of q, `lse` in that of sums.
        is_causal: as in forward.

    Returns:
        The gradients, shaped as q, k and v.
    """
    if q.device.type == "cpu":
        of_q, of_k, of_v = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            gradient, q, *(_each_query_head(x, q.shape[1]) for x in (k, v)), *whole, 0.0, is_causal
        )
        sums = accumulation_dtype(q.dtype)
        of_k, of_v = (_sum_of_query_heads(x.to(sums), k.shape[1]) for x in (of_k, of_v))
        return of_q.to(sums), of_k, of_v
    return attend_backward_plainly(gradient, q, k, v, whole, is_causal=is_causal)


def attend_backward_plainly(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, whole: PartialAttention, *, is_causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """`attend_backward`, written out."""
    num_kv_heads, scale = k.shape[1], 1 / math.sqrt(q.shape[-1])
    gradient, q, k, v, out = (x.to(accumulation_dtype(x.dtype)) for x in (gradient, q, k, v, whole.out))
    k, v = (_each_query_head(x, q.shape[1]) for x in (k, v))
    weights = (_scores(q, k, is_causal) - whole.lse[..., None]).exp()  # (B, H, Tq, Tk)
    of_scores = weights * (gradient @ v.mT - (gradient * out).sum(-1, keepdim=True))
    of_k, of_v = (of_scores.mT @ q) * scale, weights.mT @ gradient  # (B, H, Tk, D)
    of_k, of_v = (_sum_of_query_heads(x, num_kv_heads) for x in (of_k, of_v))
    return (of_scores @ k) * scale, of_k, of_v


def merge(a: PartialAttention, b: PartialAttention) -> PartialAttention:
    """Attention of the same queries to the keys of both parts, which have none in common.

    A query that attends to no key of either has lse -inf and out 0, not NaN from -inf - -inf.

    **Memory**: the result, and `out` twice for a moment.

    Args:
        a, b: (B, H, Tq, D) and (B, H, Tq), in the dtype of sums.
    """
    lse = torch.logaddexp(a.lse, b.lse)
    shift = lse.masked_fill(lse == -math.inf, 0.0)
    weight_a, weight_b = ((part.lse - shift).exp()[..., None] for part in (a, b))  # (B, H, Tq, 1), together 1
    return PartialAttention(weight_a * a.out + weight_b * b.out, lse)


def _scores(q: Tensor, k: Tensor, is_causal: bool) -> Tensor:
    """(B, H, Tq, D), (B, H, Tk, D) -> (B, H, Tq, Tk); -inf where a query does not attend."""
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if is_causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(later, -math.inf)
    return scores


def _each_query_head(x: Tensor, num_heads: int) -> Tensor:
    """(B, H_kv, T, D) -> (B, H, T, D): query head h uses key-value head h // (H / H_kv)."""
    return x.repeat_interleave(num_heads // x.shape[1], 1) if x.shape[1] < num_heads else x


def _sum_of_query_heads(x: Tensor, num_kv_heads: int) -> Tensor:
    """(B, H, T, D) -> (B, H_kv, T, D): its gradient."""
    return x.unflatten(1, (num_kv_heads, -1)).sum(2) if x.shape[1] > num_kv_heads else x

"""Attention of divided sequences beside `F.scaled_dot_product_attention` of whole ones, for all methods."""

import torch
import torch.nn.functional as F

import dtlearn
from dtlearn.context_parallel import own_tokens

B, T, D = 2, 24, 4  # T: chunks of one length for 1, 2, 3 and 4 ranks
HEADS = {"mha": (4, 4), "gqa": (4, 2), "mqa": (8, 1)}  # H, H_kv
TOLERANCE = 1e-13  # float64, of values below 10


def tensors(num_heads, num_kv_heads, dtype=torch.float64):
    """q, k, v of whole sequences and the gradient of the output, the same on all ranks, on their device."""
    generator = torch.Generator().manual_seed(num_heads + num_kv_heads)
    shapes = [(B, heads, T, D) for heads in (num_heads, num_kv_heads, num_kv_heads, num_heads)]
    drawn = [torch.randn(shape, dtype=torch.float64, generator=generator) for shape in shapes]
    return [x.to(dtype).to(dtlearn.device()) for x in drawn]


def whole(q, k, v, gradient, is_causal):
    """Output, and gradients of q, k and v, by torch on one process."""
    inputs = [x.clone().requires_grad_() for x in (q, k, v)]
    repeated = (inputs[0], *(x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in inputs[1:]))
    out = F.scaled_dot_product_attention(*repeated, is_causal=is_causal)
    out.backward(gradient)
    return out.detach(), *(x.grad for x in inputs)


def divided(attention, q, k, v, gradient, *, layout, group):
    """The same on this rank's tokens; `attention` takes q, k and v."""
    inputs = [own_tokens(x, dim=2, layout=layout, group=group).requires_grad_() for x in (q, k, v)]
    out = attention(*inputs)
    out.backward(own_tokens(gradient, dim=2, layout=layout, group=group))
    return out.detach(), *(x.grad for x in inputs)


def difference(attention, heads="mha", *, layout, is_causal, group, dtype=torch.float64):
    """The largest difference of the output and of the gradients from those of float64, on this rank's tokens."""
    inputs = tensors(*HEADS[heads], dtype)
    expected = whole(*(x.double() for x in inputs), is_causal)
    found = divided(attention, *inputs, layout=layout, group=group)
    pairs = zip(found, expected, strict=True)
    return max((a - own_tokens(b, dim=2, layout=layout, group=group)).abs().max().item() for a, b in pairs)

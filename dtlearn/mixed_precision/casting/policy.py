"""Rules of autocast, which operation runs in which format: the tables of PyTorch, as data.

A rule says what happens to the floating-point inputs of an operation:

- "16 bits": cast to autocast's dtype. Matrix products and convolutions: they take nearly all of the time, have fast
  units for 16 bits, and add up in fp32 inside.
- "fp32": cast to float32. Losses, norms, sums, exponentials: many small numbers are added, or the range is left.
- "widest": cast to the widest format among the inputs. Operations with several tensors, which want one format.

An operation without a rule runs in whatever format it gets: activation functions, additions, reshapes. float64,
integers and booleans are never cast.

PyTorch has a table per device, and they differ: softmax and layer norm are "fp32" on a GPU and have no rule on a CPU.
So a bf16 run on a CPU does not show the numerics of the same run on a GPU; `autocast("cuda")` here does.

Source: `aten/src/ATen/autocast_mode.cpp` and `autocast_mode.h` of PyTorch 2.13. The tables here hold what models like
ours use. PyTorch's have more rows, nearly all "fp32": pooling, padding, interpolation, FFT and linear algebra.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

CastRule = Literal["16 bits", "fp32", "widest"]
Policy = Mapping[str, CastRule]

_PRODUCTS = """
    linear matmul mm bmm addmm addbmm baddbmm einsum linalg_vecdot scaled_dot_product_attention
    conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d prelu
"""
_LOSSES = """
    cross_entropy nll_loss binary_cross_entropy_with_logits kl_div
    mse_loss l1_loss smooth_l1_loss huber_loss soft_margin_loss poisson_nll_loss
    cosine_embedding_loss hinge_embedding_loss margin_ranking_loss multi_margin_loss triplet_margin_loss
"""
# On a GPU PyTorch refuses binary_cross_entropy under autocast: take binary_cross_entropy_with_logits.
_CPU_FP32 = f"{_LOSSES} binary_cross_entropy prod cdist trace quantile"
_CUDA_FP32 = f"""
    {_LOSSES} layer_norm group_norm rms_norm softmax log_softmax logsumexp softplus
    exp expm1 log log2 log10 log1p pow rsqrt reciprocal
    sum prod cumsum cumprod cosine_similarity cdist
"""


def _table(in_16_bits: str, in_fp32: str, in_widest: str) -> dict[str, CastRule]:
    rules: tuple[tuple[str, CastRule], ...] = ((in_16_bits, "16 bits"), (in_fp32, "fp32"), (in_widest, "widest"))
    return {name: rule for names, rule in rules for name in names.split()}


POLICIES: dict[str, Policy] = {
    "cpu": _table(_PRODUCTS, _CPU_FP32, "cat stack index_copy"),
    "cuda": _table(f"{_PRODUCTS} mv addmv addr", _CUDA_FP32, "dot addcmul addcdiv"),
}

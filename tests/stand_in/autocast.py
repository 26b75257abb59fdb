"""`torch.autocast("standin")`: products in 16 bits, as on a GPU; softmax, norms and losses in 32."""

from __future__ import annotations

import torch
from torch.utils._pytree import tree_map

LOW = ("linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "scaled_dot_product_attention")
HIGH = ("softmax.int", "log_softmax.int", "layer_norm", "nll_loss", "cross_entropy_loss", "sum")
_KEY = torch._C.DispatchKey.AutocastPrivateUse1
_libraries = [torch.library.Library("aten", "IMPL"), torch.library.Library("_", "IMPL")]


def register() -> None:
    """Give the operations of both lists their casts; all others take what comes."""
    of_aten, of_all = _libraries
    of_all.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    for name in LOW + HIGH:
        of_aten.impl(name, _cast_for(name, low=name in LOW), "AutocastPrivateUse1")


def _cast_for(name: str, low: bool):
    packet, _, overload = name.partition(".")
    operation = getattr(getattr(torch.ops.aten, packet), overload or "default")

    def casting(*args, **kwargs):
        wanted = torch.get_autocast_dtype("standin") if low else torch.float32
        dtypes = (torch.float16, torch.bfloat16, torch.float32)

        def cast(value):
            is_float = isinstance(value, torch.Tensor) and value.dtype in dtypes
            return value.to(wanted) if is_float else value

        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(_KEY)):
            return operation(*tree_map(cast, args), **tree_map(cast, kwargs))

    return casting

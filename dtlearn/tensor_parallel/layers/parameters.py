"""Which dim of each parameter is divided, and the whole parameters again.

A divided layer says it itself, `layer.split_dims`: `{"weight": 0, "bias": None}`, None for what every rank has whole.
It is the layer that says it, not the parameter: `copy.deepcopy` and `to_empty` make new parameters, without attributes.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.sharing.along_dim import unshard


def split_dims(module: nn.Module) -> dict[str, int | None]:
    """Of each parameter of a module and of all modules in it, by name: which dim is divided; None: replicated.

    **Communication** and **Memory**: none.

    Args:
        module: a model, or a layer. Modules without `split_dims` have replicated parameters.
    """
    dims: dict[str, int | None] = {}
    for prefix, part in module.named_modules():
        of_part: dict[str, int | None] = getattr(part, "split_dims", {})
        for name, _ in part.named_parameters(recurse=False):
            dims[f"{prefix}.{name}" if prefix else name] = of_part.get(name)
    return dims


@torch.no_grad()
def full_params(module: nn.Module, *, group: dist.ProcessGroup | None = None) -> dict[str, torch.Tensor]:
    """All parameters of the undivided model, by name, on every rank; a tied one once.

    All ranks of the group call it.

    **Communication**: one all-gather for each divided parameter; of n bytes in the whole, each rank sends n (t-1)/t.
    **Memory**: the whole model, on every rank.

    Args:
        module: a model, or a layer, of which each rank has its part.
        group: the ranks among which it is divided; None: all ranks.
    """
    dims = split_dims(module)
    whole = {}
    for name, parameter in module.named_parameters():
        dim = dims[name]
        whole[name] = parameter.detach().clone() if dim is None else unshard(parameter, dim, group=group)
    return whole


def in_notation(name: str, dims: tuple[str, ...], split_dim: int | None) -> str:
    """A tensor in the notation of this course: `in_notation("weight", ("out", "in"), 0)` is `weight[out_t, in]`.

    **Communication** and **Memory**: none.

    Args:
        name: of the tensor.
        dims: their names.
        split_dim: which one is divided over the axis t; None: none.
    """
    return f"{name}[{', '.join(f'{dim}_t' if number == split_dim else dim for number, dim in enumerate(dims))}]"

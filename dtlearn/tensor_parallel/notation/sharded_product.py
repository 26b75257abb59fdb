"""A product of two divided arrays, run on ranks in any of the ways that its case has."""

from __future__ import annotations

import torch
import torch.distributed as dist

from dtlearn.sharing.along_dim import all_gather, all_reduce, reduce_scatter
from dtlearn.sharing.shards import divide, rank_and_size, shard

from .product_case import ProductCase, ProductStep
from .sharded import Sharded


def sharded_product(
    case: ProductCase,
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    way: str | None = None,
    group: dist.ProcessGroup | None = None,
) -> tuple[torch.Tensor, Sharded]:
    """This rank's part of the product, and what it is a part of. Autograd does not see it.

    **Communication**: the collectives of the way's steps, `ProductWay.sent_elements`; all ranks of the group
    call it.
    **Memory**: what is gathered, and the product.

    Args:
        case: of `product_case`.
        a, b: this rank's parts, as `case.a` and `case.b` say.
        way: name of one of the case's ways; None: the usual one.
        group: the ranks of the axis; None: all ranks.

    Raises:
        ValueError: a name that the case does not have, parts that do not fit together, or a dim that the ranks do
            not divide.
    """
    held = {case.a.name: a.detach(), case.b.name: b.detach()}
    for step in case.way(way).steps:
        if step.op == "product":
            held[step.after.name] = _product(case, held)
        else:
            assert step.before is not None
            held[step.before.name] = _moved(step, step.before, held[step.before.name], group)
    return held[step.after.name], step.after


def _product(case: ProductCase, held: dict[str, torch.Tensor]) -> torch.Tensor:
    a, b = held[case.a.name], held[case.b.name]
    of_a, of_b = case.a.dims.index(case.contracted), case.b.dims.index(case.contracted)
    if a.shape[of_a] != b.shape[of_b]:
        raise ValueError(
            f"dim {case.contracted} has {a.shape[of_a]} elements in this rank's {case.a.name} and "
            f"{b.shape[of_b]} in its {case.b.name}; the arrays are {case.a} and {case.b}"
        )
    product: torch.Tensor = torch.tensordot(a, b, dims=([of_a], [of_b]))
    return product


def _moved(step: ProductStep, before: Sharded, tensor: torch.Tensor, group: dist.ProcessGroup | None) -> torch.Tensor:
    if rank_and_size(group)[1] == 1:
        return tensor
    if step.op == "all_reduce":
        return all_reduce(tensor, group=group)
    dim = before.dims.index(step.dim)
    if step.op == "all_gather":
        return all_gather(tensor, dim, group=group)
    if step.op == "reduce_scatter":
        divide(tensor.shape[dim], rank_and_size(group)[1], f"elements of dim {step.dim}")
        return reduce_scatter(tensor, dim, group=group)
    return shard(tensor, dim, group=group, what=f"elements of dim {step.dim}")

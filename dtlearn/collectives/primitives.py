"""The eight collectives, from send and receive. Same arguments as in `torch.distributed`, plus `algorithm`.

Tensors may have any dtype, any strides and any size, also one that N does not divide. Results are written in place,
and are the same bits on every rank. `group` is a process group, default the world; `src` and `dst` are global ranks,
as in torch.

Communication: see the table; n is the size of the (whole) tensor in bytes, N the number of ranks.

| collective      | algorithm         | messages in a row     | bytes that the busiest rank sends |
|-----------------|-------------------|-----------------------|-----------------------------------|
| broadcast       | tree              | ceil(log2 N)          | ceil(log2 N) n                    |
| reduce          | tree              | ceil(log2 N)          | n                                 |
| scatter, gather | tree              | ceil(log2 N)          | (N-1)/N n                         |
| all_gather      | ring              | N-1                   | (N-1)/N n                         |
| reduce_scatter  | ring              | N-1                   | (N-1)/N n                         |
| all_reduce      | ring              | 2(N-1)                | 2(N-1)/N n                        |
| all_reduce      | tree              | 2 ceil(log2 N)        | (1 + ceil(log2 N)) n              |
| all_reduce      | double-tree       | about 4 (8 + log2 N)  | 2 n                               |
| all_reduce      | halving-doubling  | 2 log2 N (N = 2^k)    | 2(N-1)/N n                        |
| all_reduce      | hierarchical      | 2(L-1) + 2(N/L-1)     | 2(N-1)/N n, of which 2(N-L)/(N L) n between nodes |
| all_to_all      | ring              | N-1                   | (N-1)/N n                         |

"naive" is there for all of them: one message at a time, through one rank.

Memory: a copy of the tensor if it is not contiguous; for reductions, what a step receives (n/N in a ring), but at most
`AHEAD` segments (see `execute.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from dtlearn.runtime.device import device_for

from .algorithms import halving_doubling, hierarchical, naive, ring, tree
from .algorithms.plan import Plan
from .execute import Chunks, execute
from .reduction import SUM, combine, finish

_PLANS: dict[str, dict[str, Callable[..., Plan]]] = {
    "broadcast": {"tree": tree.broadcast, "naive": naive.broadcast},
    "reduce": {"tree": tree.reduce, "naive": naive.reduce},
    "scatter": {"tree": tree.scatter, "naive": naive.scatter},
    "gather": {"tree": tree.gather, "naive": naive.gather},
    "all_gather": {"ring": ring.all_gather, "naive": naive.all_gather},
    "reduce_scatter": {"ring": ring.reduce_scatter, "naive": naive.reduce_scatter},
    "all_to_all": {"ring": ring.all_to_all, "naive": naive.all_to_all},
    "all_reduce": {
        "ring": ring.all_reduce,
        "tree": tree.all_reduce,
        "double-tree": tree.double_all_reduce,
        "halving-doubling": halving_doubling.all_reduce,
        "hierarchical": hierarchical.all_reduce,
        "naive": naive.all_reduce,
    },
}


def plan_for(op: str, algorithm: str, *arguments: int) -> Plan:
    """The plan of a collective. Raises ValueError for an algorithm that it does not have."""
    if algorithm not in _PLANS[op]:
        raise ValueError(f"{op} has the algorithms {', '.join(_PLANS[op])}; got {algorithm!r}")
    return _PLANS[op][algorithm](*arguments)


def broadcast(
    tensor: torch.Tensor, src: int = 0, *, algorithm: str = "tree", group: dist.ProcessGroup | None = None
) -> None:
    """Every rank gets the tensor of `src`."""
    plan = plan_for("broadcast", algorithm, dist.get_world_size(group), _in_group(src, group))
    _in_place(tensor, plan, SUM, group)


def reduce(
    tensor: torch.Tensor,
    dst: int = 0,
    op: Any = SUM,
    *,
    algorithm: str = "tree",
    group: dist.ProcessGroup | None = None,
) -> None:
    """`dst` gets the sum of all ranks' tensors; the others keep theirs."""
    root, size = _in_group(dst, group), dist.get_world_size(group)
    work = tensor if dist.get_rank(group) == root else tensor.clone()  # partial sums are nobody's business
    _in_place(work, plan_for("reduce", algorithm, size, root), op, group)
    if dist.get_rank(group) == root:
        finish(tensor, op, size)


def all_reduce(
    tensor: torch.Tensor,
    op: Any = SUM,
    *,
    algorithm: str = "ring",
    ranks_per_node: int | None = None,
    group: dist.ProcessGroup | None = None,
) -> None:
    """Every rank gets the sum (or another reduction) of all ranks' tensors.

    `ranks_per_node` is for "hierarchical" only; it must divide the number of ranks.
    """
    size = dist.get_world_size(group)
    if (algorithm == "hierarchical") != (ranks_per_node is not None):
        raise ValueError("ranks_per_node belongs to algorithm='hierarchical': give both or neither")
    more = () if ranks_per_node is None else (ranks_per_node,)
    _in_place(tensor, plan_for("all_reduce", algorithm, size, *more), op, group)
    finish(tensor, op, size)


def scatter(
    tensor: torch.Tensor,
    scatter_list: Sequence[torch.Tensor] | None = None,
    src: int = 0,
    *,
    algorithm: str = "tree",
    group: dist.ProcessGroup | None = None,
) -> None:
    """Rank r of the group gets the r-th tensor of the list of `src`. All have the shape of `tensor`."""
    me, size, root = dist.get_rank(group), dist.get_world_size(group), _in_group(src, group)
    if (scatter_list is not None) != (me == root):
        raise ValueError("scatter_list has to be given on the source rank, and there only")
    parts = [torch.empty_like(_flat(tensor)) for _ in range(size)] if scatter_list is None else list(scatter_list)
    _same_sizes(parts, size, tensor)
    flat = torch.cat([_flat(p) for p in parts])
    execute(plan_for("scatter", algorithm, size, root), Chunks.of(flat, size), combine(SUM), group=group)
    tensor.copy_(flat.chunk(size)[me].view(tensor.shape) if flat.numel() else tensor)


def gather(
    tensor: torch.Tensor,
    gather_list: Sequence[torch.Tensor] | None = None,
    dst: int = 0,
    *,
    algorithm: str = "tree",
    group: dist.ProcessGroup | None = None,
) -> None:
    """`dst` gets the tensor of rank r in the r-th place of its list. All have the same shape."""
    me, size, root = dist.get_rank(group), dist.get_world_size(group), _in_group(dst, group)
    if (gather_list is not None) != (me == root):
        raise ValueError("gather_list has to be given on the destination rank, and there only")
    _same_sizes(gather_list or [tensor] * size, size, tensor)
    flat = torch.empty(size * tensor.numel(), dtype=tensor.dtype, device=tensor.device)
    flat[me * tensor.numel() : (me + 1) * tensor.numel()] = tensor.reshape(-1)
    execute(plan_for("gather", algorithm, size, root), Chunks.of(flat, size), combine(SUM), group=group)
    for r, target in enumerate(gather_list or []):
        target.copy_(flat[r * tensor.numel() : (r + 1) * tensor.numel()].view(target.shape))


def all_gather(
    tensor_list: Sequence[torch.Tensor],
    tensor: torch.Tensor,
    *,
    algorithm: str = "ring",
    group: dist.ProcessGroup | None = None,
) -> None:
    """Every rank gets the tensor of rank r in the r-th place of its list. The ranks' tensors may differ in size."""
    me, size = dist.get_rank(group), dist.get_world_size(group)
    _one_each(tensor_list, size)
    sizes = [t.numel() for t in tensor_list]
    flat = tensor.new_empty(sum(sizes))
    views = flat.split(sizes)
    views[me].copy_(tensor.reshape(-1))
    execute(plan_for("all_gather", algorithm, size), Chunks(views, flat), combine(SUM), group=group)
    for target, view in zip(tensor_list, views, strict=True):
        target.copy_(view.view(target.shape))


def reduce_scatter(
    output: torch.Tensor,
    input_list: Sequence[torch.Tensor],
    op: Any = SUM,
    *,
    algorithm: str = "ring",
    group: dist.ProcessGroup | None = None,
) -> None:
    """Rank r gets the sum of the r-th tensors of all lists: one reduced part, not the whole.

    Parts may differ in size.
    """
    me, size = dist.get_rank(group), dist.get_world_size(group)
    _one_each(input_list, size)
    flat = torch.cat([t.reshape(-1) for t in input_list])  # a copy: partial sums must not reach the caller's tensors
    views = flat.split([t.numel() for t in input_list])
    execute(plan_for("reduce_scatter", algorithm, size), Chunks(views, flat), combine(op), group=group)
    output.copy_(views[me].view(output.shape))
    finish(output, op, size)


def all_to_all(
    output_list: Sequence[torch.Tensor],
    input_list: Sequence[torch.Tensor],
    *,
    algorithm: str = "ring",
    group: dist.ProcessGroup | None = None,
) -> None:
    """Rank r gets, in place s of its list, the r-th tensor of the list of rank s. Sizes may differ."""
    me, size = dist.get_rank(group), dist.get_world_size(group)
    _one_each(input_list, size)
    _one_each(output_list, size)
    views: list[torch.Tensor | None] = [None] * (size * size)
    for d, tensor in enumerate(input_list):
        views[me * size + d] = tensor.contiguous().view(-1)
    for s, tensor in enumerate(output_list):
        if s != me:
            views[s * size + me] = tensor.new_empty(tensor.numel())
    execute(plan_for("all_to_all", algorithm, size), Chunks(views), combine(SUM), group=group)
    for s, target in enumerate(output_list):
        view = views[s * size + me]
        assert view is not None
        target.copy_(view.view(target.shape))


def barrier(*, group: dist.ProcessGroup | None = None) -> None:
    """Returns when every rank has called it: an all-reduce of one byte over trees."""
    token = torch.zeros(1, dtype=torch.uint8, device=device_for(group))
    all_reduce(token, algorithm="tree", group=group)
    token.item()  # waits for the GPU, whose calls return before it is done


def _in_place(tensor: torch.Tensor, plan: Plan, op: Any, group: dist.ProcessGroup | None) -> None:
    flat = _flat(tensor)
    execute(plan, Chunks.of(flat, plan.num_chunks), combine(op), group=group)
    if flat.data_ptr() != tensor.data_ptr() or not tensor.is_contiguous():
        tensor.copy_(flat.view(tensor.shape))


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """The elements in a row: a view, or a copy where they do not lie so in memory."""
    return tensor.detach().contiguous().view(-1)


def _in_group(rank: int, group: dist.ProcessGroup | None) -> int:
    return rank if group is None else dist.get_group_rank(group, rank)


def _one_each(tensors: Sequence[torch.Tensor], size: int) -> None:
    if len(tensors) != size:
        raise ValueError(f"one tensor per rank is needed: {size}; got {len(tensors)}")


def _same_sizes(tensors: Sequence[torch.Tensor], size: int, tensor: torch.Tensor) -> None:
    _one_each(tensors, size)
    if any(t.numel() != tensor.numel() or t.dtype != tensor.dtype for t in tensors):
        raise ValueError(f"all tensors must be like this rank's: {tensor.numel()} elements of {tensor.dtype}")

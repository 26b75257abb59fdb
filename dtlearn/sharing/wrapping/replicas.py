"""Copies of a model that begin as one: the shapes are compared, then rank 0's values go to all.

**Communication**: one all-gather of 16 bytes; then one broadcast per dtype, of all parameters and buffers.
**Memory**: while it runs, one flat copy of what is sent.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Sequence

import torch
import torch.distributed as dist
from torch import nn


def require_same_model(module: nn.Module, *, group: dist.ProcessGroup | None = None) -> None:
    """Check that all ranks have parameters and buffers of the same names, shapes and dtypes, in the same order.

    Parameters that are frozen have to be so on all ranks.

    Gradients are paired by their place: ranks that differ would add up what does not belong together, or hang.

    Raises:
        ValueError: this rank is not in the group; or a part of the model is a wrapper that reduces gradients itself.
        RuntimeError: the models differ. Every rank raises it.
    """
    if dist.get_rank(group) < 0:
        raise ValueError("this rank is not in the group: build the wrapper on the group's ranks only")
    if wrapper := next((m for m in module.modules() if hasattr(m, "no_sync")), None):
        raise ValueError(
            f"expected a plain model, but got a {type(wrapper).__name__}, which reduces gradients itself, or a model "
            "that holds one: wrap its .module, once"
        )
    described = [(name, tuple(t.shape), str(t.dtype), t.requires_grad) for name, t in _state(module)]
    device = next((t.device for _, t in _state(module)), torch.device("cpu"))
    mine = torch.tensor([len(described), zlib.crc32(repr(described).encode())], device=device)  # (2,)
    all_of_them = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
    dist.all_gather(all_of_them, mine, group=group)
    others = [(int(t[0]), int(t[1])) for t in all_of_them]
    if different := [rank for rank, other in enumerate(others) if other != others[0]]:
        counts = {rank: others[rank][0] for rank in [0, *different[:3]]}
        what = (
            "names, shapes, dtypes or requires_grad differ"
            if len(set(counts.values())) == 1
            else "tensors on " + ", ".join(f"rank {rank}: {count}" for rank, count in counts.items())
        )
        raise RuntimeError(
            f"the model of rank {different[0]} is not that of rank 0 ({what}): build the same model, in the same "
            "order, on every rank"
        )


def require_wrapped(module: nn.Module, wrapped: Collection[int]) -> None:
    """Check that a wrapper knows each parameter that is trained; it is called in each forward pass that is.

    Args:
        module: the model.
        wrapped: `id` of each parameter that the wrapper knows.

    Raises:
        RuntimeError: the wrapper does not know one: its gradients would stay those of this rank.
    """
    if all(id(parameter) in wrapped or not parameter.requires_grad for parameter in _parameters(module)):
        return
    for name, parameter in module.named_parameters():
        if parameter.requires_grad and id(parameter) not in wrapped:
            raise RuntimeError(
                f"{name} was frozen, or not there, when the model was wrapped, and is trained now: its gradient would "
                "not be averaged, and the ranks' copies would part. Wrap the model again after such a change"
            )


def _parameters(module: nn.Module) -> list[nn.Parameter]:
    """As `module.parameters()`, a tied one several times; faster, since each forward pass asks."""
    found, seen, parts = [], set[nn.Module](), [module]
    while parts:
        part = parts.pop()
        if part not in seen:
            seen.add(part)
            found += [parameter for parameter in part._parameters.values() if parameter is not None]
            parts += [child for child in part._modules.values() if child is not None]
    return found


def broadcast_tensors(tensors: Sequence[torch.Tensor], src: int = 0, *, group: dist.ProcessGroup | None = None) -> None:
    """Give every rank the values of one, in place: one broadcast per dtype.

    Args:
        tensors: the same shapes on every rank.
        src: rank in the group that has the values.
    """
    root = src if group is None else dist.get_global_rank(group, src)
    with torch.no_grad():
        for alike in by_dtype(tensors):
            flat = torch.cat([t.detach().reshape(-1) for t in alike])  # (elements,)
            dist.broadcast(flat, root, group=group)
            for tensor, values in zip(alike, flat.split([t.numel() for t in alike]), strict=True):
                # By `.data`: autograd would refuse the backward of an earlier forward pass that saved this buffer.
                tensor.data.copy_(values.view_as(tensor))


def broadcast_module(
    module: nn.Module, src: int = 0, *, buffers: bool = True, group: dist.ProcessGroup | None = None
) -> None:
    """Give every rank the parameters and, unless told otherwise, the buffers of one."""
    tensors = [*module.parameters(), *(module.buffers() if buffers else ())]
    broadcast_tensors(tensors, src, group=group)


def by_dtype(tensors: Iterable[torch.Tensor]) -> list[list[torch.Tensor]]:
    """Tensors that can lie in one flat tensor, in their order."""
    found: dict[tuple[torch.dtype, torch.device], list[torch.Tensor]] = {}
    for tensor in tensors:
        found.setdefault((tensor.dtype, tensor.device), []).append(tensor)
    return list(found.values())


def _state(module: nn.Module) -> list[tuple[str, torch.Tensor]]:
    return [*module.named_parameters(), *module.named_buffers()]

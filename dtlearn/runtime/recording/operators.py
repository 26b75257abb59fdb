"""The operators of torch's dispatcher that communicate, as data: what each is called, and where its arguments stand.

The lists are complete for torch 2.11 to 2.13 but for `symm_mem`, whose operators read other GPUs' memory directly.
"""

import contextlib
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Call:
    """One call of an operator."""

    operator: str  # its name in the dispatcher: "allreduce_"
    op: str  # in `torch.distributed`: "all_reduce"
    group: Any  # the ProcessGroup
    tensors: list[Any]  # what this rank hands in, or, for a pure receiver, what it receives into
    peer: int | None  # global rank of the other end or of the root; None if there is none, or if any rank may send
    tag: int  # of a message; 0 otherwise
    blocks: bool  # the caller wants to go on only when the call is complete; False: it asked for a Work


@dataclass(frozen=True)
class Operator:
    """Where the arguments of an operator stand; None: it has no such argument."""

    op: str
    tensors: int | None
    group: int
    peer: int | None = None
    tag: int | None = None
    asynchronous: int | None = None
    blocks: bool = False  # always


C10D = {
    "allreduce_": Operator("all_reduce", 0, 1, asynchronous=4),
    "allreduce_coalesced_": Operator("all_reduce", 0, 1, asynchronous=3),
    "broadcast_": Operator("broadcast", 0, 1, peer=2, asynchronous=4),
    "reduce_": Operator("reduce", 0, 1, peer=3, asynchronous=5),
    "allgather_": Operator("all_gather", 1, 2, asynchronous=3),
    "_allgather_base_": Operator("all_gather_into_tensor", 1, 2, asynchronous=3),
    "allgather_coalesced_": Operator("all_gather", 1, 2, asynchronous=3),
    "allgather_into_tensor_coalesced_": Operator("all_gather_into_tensor", 1, 2, asynchronous=3),
    "reduce_scatter_": Operator("reduce_scatter", 1, 2, asynchronous=4),
    "_reduce_scatter_base_": Operator("reduce_scatter_tensor", 1, 2, asynchronous=4),
    "reduce_scatter_tensor_coalesced_": Operator("reduce_scatter_tensor", 1, 2, asynchronous=4),
    "gather_": Operator("gather", 1, 2, peer=3, asynchronous=4),
    "scatter_": Operator("scatter", 1, 2, peer=3, asynchronous=4),
    "alltoall_": Operator("all_to_all", 1, 2, asynchronous=3),
    "alltoall_base_": Operator("all_to_all_single", 1, 2, asynchronous=5),
    "barrier": Operator("barrier", None, 1, asynchronous=3),
    "monitored_barrier_": Operator("monitored_barrier", None, 1, blocks=True),
    "send": Operator("isend", 0, 1, peer=2, tag=3),
    "recv_": Operator("irecv", 0, 1, peer=2, tag=3),
    "recv_any_source_": Operator("irecv", 0, 1, tag=2),
}
# Collectives whose result is a tensor to be waited for. They make calls of c10d operators beneath.
FUNCTIONAL = (
    "all_reduce",
    "all_reduce_",
    "all_reduce_coalesced",
    "all_reduce_coalesced_",
    "broadcast",
    "broadcast_",
    "all_gather_into_tensor",
    "all_gather_into_tensor_coalesced",
    "all_gather_into_tensor_out",
    "reduce_scatter_tensor",
    "reduce_scatter_tensor_coalesced",
    "reduce_scatter_tensor_out",
    "all_to_all_single",
    "isend",
    "irecv",
    "batch_p2p_ops",
)


def describe(name: str, known: Operator, args: tuple[Any, ...]) -> Call:
    """A call of an operator from its arguments. Those at the end that have their default are left out."""
    import torch.distributed as dist

    unbox: Any = dist.ProcessGroup
    group = unbox.unbox(args[known.group])
    # Only the root of a scatter hands something in; the others hand over the tensor to receive into.
    tensors = [] if known.tensors is None else flat(args[known.tensors]) or flat(args[0])
    peer = _global_rank(group, args[known.peer]) if known.peer is not None else None
    tag = args[known.tag] if known.tag is not None else 0
    is_given = known.asynchronous is not None and len(args) > known.asynchronous
    blocks = not args[known.asynchronous or 0] if is_given else known.blocks
    return Call(name, known.op, group, tensors, peer, tag, blocks)


def _global_rank(group: Any, rank: int) -> int:
    import torch.distributed as dist

    if group is not dist.group.WORLD:
        with contextlib.suppress(ValueError, RuntimeError, KeyError):  # a group that torch's Python does not know
            return dist.get_global_rank(group, rank)
    return rank


def flat(value: Any) -> list[Any]:
    """The tensors of an argument: a tensor, a list of tensors, or a list of lists."""
    if value is None:
        return []
    if isinstance(value, list | tuple):
        return [tensor for part in value for tensor in flat(part)]
    return [value] if hasattr(value, "element_size") else []


def unboxed_work(result: Any) -> Any:
    """The Work in what a c10d operator returned, as Python knows it; None if there is none."""
    import torch.distributed as dist

    boxed = result[-1] if isinstance(result, tuple) else result
    work: Any = dist.Work
    return None if boxed is None else work.unbox(boxed)

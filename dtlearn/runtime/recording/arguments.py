"""What a call on `torch.distributed` means: which argument is the payload, who is the peer, and what else matters."""

import contextlib
import math
import threading
from typing import Any

from ..record.operations import OPERATIONS

_REDUCTIONS: dict[Any, str] = {}  # names are slow to make


def payload(op: str, arguments: dict[str, Any]) -> list[Any]:
    """The tensors that the call hands in (or receives into, for a pure receiver)."""
    for name in OPERATIONS[op].payload:
        value = arguments.get(name)
        if value is not None:
            values = value if isinstance(value, list | tuple) else [value]
            return [v for v in values if hasattr(v, "element_size")]  # torch itself says what else is wrong
    return []


# What gloo reads or writes as if it had no gaps, without an error (pytorch#192920): any layout will do if it is dense;
# where a rank's own part arrives, only the usual one.
_DENSE, _CONTIGUOUS = {"all_reduce", "reduce", "broadcast"}, {"scatter": "tensor", "reduce_scatter": "output"}


def refuse_gaps(op: str, arguments: dict[str, Any]) -> None:
    """Refuse a tensor of which gloo would mix up the memory.

    Raises:
        ValueError: it is a column of a matrix, say. NCCL refuses it, too. Or it is sparse: what its messages are the
            record could not tell.
    """
    tensor = arguments.get(_CONTIGUOUS.get(op, "tensor")) if op in _DENSE or op in _CONTIGUOUS else None
    if tensor is None or not hasattr(tensor, "is_contiguous"):
        return
    if "sparse" in str(tensor.layout):
        raise ValueError(
            f"{op} got a sparse tensor ({tensor.layout}), which is not supported here. Send a dense one, x.to_dense(), "
            "or its indices and values as tensors of their own"
        )
    if tensor.is_contiguous():
        return
    if op in _CONTIGUOUS or not _is_dense(tensor):
        raise ValueError(
            f"{op} got a tensor with gaps in memory (shape {tuple(tensor.shape)}, strides {tensor.stride()}), as a "
            "column of a matrix has. gloo would mix up what is in the gaps without a word, and NCCL refuses it. Give "
            "it y = x.contiguous(), and copy the result back: x.copy_(y)"
        )


def _is_dense(tensor: Any) -> bool:
    """Whether the elements fill a piece of memory, in whatever order."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def group_name(group: Any) -> str:
    """ "world", or the global ranks of a sub-group, such as "0,2"."""
    if group is None:
        return "world"
    import torch.distributed as dist

    if not dist.is_initialized() or group is dist.group.WORLD:
        return "world"
    with contextlib.suppress(LookupError, ValueError, RuntimeError, TypeError, AttributeError):  # as rpc's own group
        return ",".join(map(str, dist.get_process_group_ranks(group)))
    return "unknown"


def peer(op: str, arguments: dict[str, Any]) -> int | None:
    """Global rank of the other end or the root; None if there is none, or any rank may send."""
    import torch.distributed as dist

    name = OPERATIONS[op].peer
    if not name:
        return None
    rank, in_group = arguments.get(name), arguments.get(f"group_{name}")
    if rank is None and in_group is not None:
        group = arguments.get("group") or dist.group.WORLD
        return dist.get_global_rank(group, in_group) if group is not None else None
    return rank


def detail(arguments: dict[str, Any]) -> dict[str, Any]:
    """Anything else that tells calls apart, or explains them, as plain values: `Event.detail`."""
    details: dict[str, Any] = {}
    if "op" in arguments:
        details["reduce_op"] = _reduction(arguments["op"])
    if "tag" in arguments:  # point-to-point
        if arguments["tag"]:
            details["tag"] = arguments["tag"]
        details |= _where(arguments.get("tensor"))
    if arguments.get("ranks") is not None:
        details["ranks"] = list(arguments["ranks"])
    if "output_split_sizes" in arguments:
        with contextlib.suppress(AttributeError, TypeError, ValueError, IndexError):  # torch says what is wrong there
            details["splits"] = [_split(arguments, "input"), _split(arguments, "output")]
    thread = threading.current_thread()
    if thread is not threading.main_thread() and not thread.name.startswith("Dummy-"):  # those are torch's own
        details["thread"] = thread.name
    outputs = arguments.get("tensor_list")
    if outputs and len({tuple(getattr(t, "shape", ())) for t in outputs}) > 1:
        details["uneven"] = True
    import torch.distributed as dist

    ends = [end for end in (arguments.get("src"), arguments.get("dst")) if isinstance(end, int)]
    if ends and dist.is_initialized() and max(ends) >= (size := dist.get_world_size()):
        details["world_size"] = size  # there is no such rank; gloo may wait for it, and for ever
    if details.get("ranks") and arguments.get("use_local_synchronization"):
        details["group_id"] = "local"  # only the members of the new group call this
    return details


def _split(arguments: dict[str, Any], side: str) -> list[int]:
    """Elements of the "input" or "output" that each rank sends or gets; torch splits rows, evenly without sizes."""
    import torch.distributed as dist

    rows, *rest = arguments[side].shape
    size = dist.get_world_size(arguments["group"])
    sizes = [int(n) for n in arguments[f"{side}_split_sizes"] or [rows // size] * size]
    if sum(sizes) != rows or len(sizes) != size:
        raise ValueError("torch refuses these sizes, on this rank")
    return [n * math.prod(rest) for n in sizes]


def _where(tensor: Any) -> dict[str, int]:
    """Where a payload lies in its storage, in bytes: which chunk of a larger tensor travels."""
    with contextlib.suppress(AttributeError, RuntimeError, NotImplementedError):  # not every tensor has a storage
        return {"at": tensor.storage_offset() * tensor.element_size(), "of": tensor.untyped_storage().nbytes()}
    return {}


def _reduction(op: Any) -> str:
    """ReduceOp.SUM -> "SUM"."""
    try:
        return _REDUCTIONS[op]
    except (KeyError, TypeError):  # TypeError: one with a factor of its own cannot be a key
        name = str(op).rsplit(".", 1)[-1]
        with contextlib.suppress(TypeError):
            _REDUCTIONS[op] = name
        return name

"""Sees the communication that never passes through Python's `torch.distributed`: torch's own DDP, FSDP2, DTensor.

Runs on the ranks. DDP's reducer is C++; FSDP2 and DTensor keep references to functions that were there before ours,
or use functional collectives. All of them end in operators of torch's dispatcher (`c10d::allreduce_`,
`_c10d_functional::all_reduce`, ...). A kernel of ours for the autograd key comes first, notes the call and passes it
on; ordinary tensor operations are not slowed down. What it does not see: tensors made in inference mode inside such
C++ code, compiled graphs that bypass the dispatcher, and other libraries' own sockets.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .recorder import CallLog

# Operator -> (its name in torch.distributed, index of the payload, index of the group).
_C10D = {
    "allreduce_": ("all_reduce", 0, 1),
    "allreduce_coalesced_": ("all_reduce", 0, 1),
    "broadcast_": ("broadcast", 0, 1),
    "reduce_": ("reduce", 0, 1),
    "allgather_": ("all_gather", 1, 2),
    "_allgather_base_": ("all_gather_into_tensor", 1, 2),
    "allgather_coalesced_": ("all_gather", 1, 2),
    "allgather_into_tensor_coalesced_": ("all_gather_into_tensor", 1, 2),
    "reduce_scatter_": ("reduce_scatter", 1, 2),
    "_reduce_scatter_base_": ("reduce_scatter_tensor", 1, 2),
    "reduce_scatter_tensor_coalesced_": ("reduce_scatter_tensor", 1, 2),
    "gather_": ("gather", 1, 2),
    "scatter_": ("scatter", 1, 2),
    "alltoall_": ("all_to_all", 1, 2),
    "alltoall_base_": ("all_to_all_single", 1, 2),
    "barrier": ("barrier", None, 1),
    "send": ("isend", 0, 1),
    "recv_": ("irecv", 0, 1),
    "recv_any_source_": ("irecv", 0, 1),
}
# Functional operators name the group by its string, their last argument; the result is a tensor to wait for.
_FUNCTIONAL = {
    "all_reduce": "all_reduce",
    "all_reduce_": "all_reduce",
    "all_reduce_coalesced": "all_reduce",
    "broadcast": "broadcast",
    "broadcast_": "broadcast",
    "all_gather_into_tensor": "all_gather_into_tensor",
    "all_gather_into_tensor_coalesced": "all_gather_into_tensor",
    "reduce_scatter_tensor": "reduce_scatter_tensor",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_tensor",
    "all_to_all_single": "all_to_all_single",
}
_ROOT = {"broadcast_": 2, "reduce_": 3, "gather_": 3, "scatter_": 3, "send": 2, "recv_": 2}


class HiddenCalls:
    """Notes hidden calls in a rank's log. Keep the object: its kernels live as long as it does."""

    def __init__(self, log: CallLog) -> None:
        self._log = log
        self._waiting: dict[int, int] = {}  # address of a functional result -> number of its call
        self._lock = threading.Lock()
        self._libraries: list[Any] = []

    def install(self) -> list[str]:
        """Put the kernels in place. Returns the operators that this version of torch does not have."""
        import torch
        import torch.distributed._functional_collectives  # registers the functional operators

        missing = []
        keys = ["AutogradCPU"] + (["AutogradCUDA"] if torch.version.cuda is not None else [])
        tables: list[tuple[str, dict[str, Any], Callable[..., Any]]] = [
            ("c10d", _C10D, self._c10d_kernel),
            ("_c10d_functional", _FUNCTIONAL, self._functional_kernel),
        ]
        for namespace, operators, make in tables:
            library = torch.library.Library(namespace, "IMPL")
            self._libraries.append(library)
            for name, told in operators.items():
                packet = getattr(getattr(torch.ops, namespace), name, None)
                if packet is None or not hasattr(packet, "default"):
                    missing.append(f"{namespace}::{name}")
                    continue
                for key in keys:
                    library.impl(name, make(name, told, packet.default), key)
        self._watch_waits(torch.distributed._functional_collectives)
        return missing

    def _watch_waits(self, functional: Any) -> None:
        """The end of a functional call is the end of the wait for its result, which eager code asks for in Python."""
        wait_tensor = functional.wait_tensor

        @functools.wraps(wait_tensor)
        def wait(tensor: Any) -> Any:
            address = getattr(tensor, "elem", tensor).data_ptr()
            with self._lock:
                seq = self._waiting.pop(address, None)
            if seq is not None:
                self._log.wait_begins(seq)
            result = wait_tensor(tensor)
            if seq is not None:
                self._log.leave_hidden(seq)
            return result

        functional.wait_tensor = wait

    def _c10d_kernel(self, name: str, told: tuple[str, int | None, int], operator: Any) -> Callable[..., Any]:
        import torch
        import torch.distributed as dist

        op, payload_at, group_at = told
        below: Any = torch._C._AutoDispatchBelowAutograd

        def kernel(*args: Any, **kwargs: Any) -> Any:
            if not self._log.is_outermost():
                with below():
                    return operator(*args, **kwargs)
            group = dist.ProcessGroup.unbox(args[group_at])
            root = args[_ROOT[name]] if name in _ROOT and len(args) > _ROOT[name] else None
            # Only the root of a scatter hands something in; the others hand over the tensor to receive into.
            given = [] if payload_at is None else _flat(args[payload_at]) or _flat(args[0])
            seq = self._log.enter_hidden(op, group, given, root)
            with below():
                result = operator(*args, **kwargs)
            self._end_with(result[-1] if isinstance(result, tuple) else result, seq)
            return result

        return kernel

    def _functional_kernel(self, name: str, op: str, operator: Any) -> Callable[..., Any]:
        import torch
        from torch.distributed.distributed_c10d import _resolve_process_group

        below: Any = torch._C._AutoDispatchBelowAutograd

        def kernel(*args: Any, **kwargs: Any) -> Any:
            group = _resolve_process_group(args[-1])
            seq = self._log.enter_hidden(op, group, _flat(args[0]), None)
            with below():
                result = operator(*args, **kwargs)
            with self._lock:
                for tensor in _flat(result):
                    self._waiting[tensor.data_ptr()] = seq
            return result

        return kernel

    def _end_with(self, boxed_work: Any, seq: int) -> None:
        """Note the end of a call when its Work is done, on whatever thread that happens."""
        import torch.distributed as dist

        try:
            work: Any = dist.Work.unbox(boxed_work)
            work.get_future().add_done_callback(lambda _: self._log.leave_hidden(seq))
        except (RuntimeError, AttributeError):  # a send or recv of gloo has no future: its end is not seen
            self._log.leave_hidden(seq, seen=False)


def _flat(value: Any) -> list[Any]:
    """The tensors of an argument: a tensor, a list of tensors, or a list of lists."""
    if value is None:
        return []
    if isinstance(value, list | tuple):
        return [tensor for part in value for tensor in _flat(part)]
    return [value] if hasattr(value, "element_size") else []

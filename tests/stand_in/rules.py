"""What a GPU refuses: tensors of two devices in one operation, a generator of another device, CPU tensors over NCCL."""

from __future__ import annotations

import torch
import torch.distributed as dist

from tests.stand_in.random_numbers import device_of

# Operations that move values from one device to the other.
MOVES = {"_to_copy", "copy_", "_copy_from", "_foreach_copy_"}
INDEXED = {"index", "index_put_", "index_put", "_index_put_impl_", "_unsafe_index"}  # indices may be on the CPU
SENDS = ("c10d", "_c10d_functional")
SENDS_NOTHING = {"barrier", "monitored_barrier_"}  # of the caller's
of_gloo: set[str] = set()  # names of groups that were asked to be gloo's: as on a GPU, they take tensors of the CPU


def check(func, args, values, name: str, result: str) -> None:
    """Raise RuntimeError, as torch does, for what a GPU would refuse.

    Args:
        values: the leaves of all arguments.
        name: of the stand-in.
        result: the type of the device of what comes out.
    """
    on_cpu = [value for value in values if isinstance(value, torch.Tensor) and value.device.type == "cpu"]
    if func.namespace in SENDS:
        if on_cpu and func.overloadpacket.__name__ not in SENDS_NOTHING and not _is_of_gloo(values):
            raise RuntimeError(f"{func}: no backend type associated with device type cpu, as of a group over NCCL")
        return
    if on_cpu and any(isinstance(value, torch.Tensor) and value.device.type == name for value in values):
        _check_devices(func, args, on_cpu, name)
    for value in values:
        if type(value) is torch._C.Generator and (found := device_of(value).type) != result:
            raise RuntimeError(f"{func}: expected a generator of {result!r}, but found one of {found!r}")


def _check_devices(func, args, on_cpu, name: str) -> None:
    """All on one device; but a tensor without a dimension may be on the CPU to be read, and so may indices."""
    if func.overloadpacket.__name__ in MOVES:
        return
    written = args[0] if func._schema.is_mutable else None
    indices = args[1] if func.overloadpacket.__name__ in INDEXED else ()
    for tensor in on_cpu:
        if (tensor.dim() or tensor is written) and all(tensor is not index for index in indices):
            raise RuntimeError(
                f"{func}: expected all tensors to be on the same device, but found at least two, {name}:0 and cpu"
            )


def _is_of_gloo(values) -> bool:
    groups = [value for value in values if isinstance(value, torch.ScriptObject)]
    return any(dist.ProcessGroup.unbox(group).group_name in of_gloo for group in groups if "ProcessGroup" in str(group))

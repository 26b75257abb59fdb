"""What a GPU refuses: tensors of two devices in one operation, a generator of another device, CPU tensors over NCCL."""

from __future__ import annotations

import torch

from tests.stand_in.random_numbers import device_of

# Operations that move values from one device to the other.
MOVES = {"_to_copy", "copy_", "_copy_from", "_foreach_copy_"}
INDEXED = {"index", "index_put_", "index_put", "_index_put_impl_", "_unsafe_index"}  # indices may be on the CPU
# A barrier sends no tensor of the caller's.
SENDS_NOTHING = {"barrier", "monitored_barrier_"}


def check_devices(func, args, ours, others) -> None:
    """All on one device; but a tensor without a dimension may be on the CPU, as may indices."""
    name = func.overloadpacket.__name__
    if not ours or name in MOVES or func.namespace == "c10d":  # for those see `check_collective`
        return
    if name in INDEXED:
        others = [other for other in others if all(other is not index for index in args[1])]
    # It goes to the device when it is read; it is never written.
    outputs = [args[0]] if func._schema.is_mutable and args else []
    if wrong := [other for other in others if other.dim() or any(other is output for output in outputs)]:
        raise RuntimeError(
            f"{func}: expected all tensors to be on the same device, but found at least two, {ours[0].device} and "
            f"{wrong[0].device}"
        )


def check_generators(func, flat, kind: str) -> None:
    """A generator belongs to a device, and draws for that one only."""
    for value in flat:
        if isinstance(value, torch.Generator) and (found := device_of(value).type) != kind:
            raise RuntimeError(f"{func}: expected a generator of {kind!r}, but found one of {found!r}")


def check_collective(func, flat) -> None:
    """NCCL sends what is on the GPU, and nothing else."""
    if func.namespace not in ("c10d", "_c10d_functional") or func.overloadpacket.__name__ in SENDS_NOTHING:
        return
    for value in flat:
        if type(value) is torch.Tensor and value.device.type == "cpu":
            raise RuntimeError(f"{func}: no backend type associated with device type cpu (as of a group over NCCL)")

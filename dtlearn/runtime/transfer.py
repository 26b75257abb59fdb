"""Functions and values between the notebook and its ranks: cloudpickle, so notebook code travels, GPU tensors as CPU.

Used only between a person's own processes. The grader, which must not trust the sender, does not use it.
"""

from __future__ import annotations

import io
import sys
from typing import Any

import cloudpickle

from .errors import NotSendable


class _Pickler(cloudpickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        torch = sys.modules.get("torch")
        # The process that reads this may have no GPU, and must not open one only to look at a value.
        if torch is not None and isinstance(obj, torch.Tensor) and obj.device.type != "cpu":
            return obj.detach().cpu().__reduce_ex__(4)
        return super().reducer_override(obj)


def pack(value: Any, what: str) -> bytes:
    """`value` as bytes. Raises NotSendable naming `what` and the reason."""
    buffer = io.BytesIO()
    try:
        _Pickler(buffer, protocol=5).dump(value)
    except Exception as error:  # pickling runs arbitrary __reduce__ methods: anything can come out
        raise NotSendable(
            f"{what} cannot travel between processes: {error}.\n"
            "Things that belong to one process (open files, locks, generators, process groups, running threads) have "
            "to be made inside the function that runs on the ranks; return plain values and tensors."
        ) from error
    return buffer.getvalue()


def unpack(data: bytes) -> Any:
    """What `pack` made. Raises NotSendable if a module is missing on this side."""
    try:
        return cloudpickle.loads(data)
    except ModuleNotFoundError as error:
        raise NotSendable(
            f"the other side sent something from the module {error.name!r}, which cannot be imported here. "
            "Put its folder on sys.path, or define the function in the notebook."
        ) from error

"""What a wrapper of a model needs, whatever it does with the gradients.

It runs on the ranks. `replicas` makes the copies begin as one, `backward_hooks` tells which backward pass is going on,
`outputs` finds the tensors in what a model returned, where a backward pass enters it, and `module_hooks` tells when one
enters and leaves a part of it; `copies` are those that a wrapped model's owner makes of it.
"""

from .backward_hooks import BackwardPass
from .copies import copy_in_group
from .module_hooks import (
    call_before,
    guard_forward,
    in_backward_pass,
    outputs_to_watch,
    refuse_optimizers_of,
    watch_inputs,
)
from .outputs import tensors_in
from .replicas import broadcast_module, broadcast_tensors, by_dtype, require_same_model, require_wrapped

__all__ = [
    "BackwardPass",
    "broadcast_module",
    "broadcast_tensors",
    "by_dtype",
    "call_before",
    "copy_in_group",
    "guard_forward",
    "in_backward_pass",
    "outputs_to_watch",
    "refuse_optimizers_of",
    "require_same_model",
    "require_wrapped",
    "tensors_in",
    "watch_inputs",
]

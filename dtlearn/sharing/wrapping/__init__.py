"""What a wrapper of a model needs, whatever it does with the gradients.

It runs on the ranks. `replicas` makes the copies begin as one, `backward_hooks` tells which backward pass is going on,
`outputs` finds the tensors in what a model returned, where a backward pass enters it, and `module_hooks` tells when one
enters and leaves a part of it.
"""

from .backward_hooks import BackwardPass
from .module_hooks import guard_forward, in_backward_pass, outputs_to_watch, refuse_optimizers_of, watch_inputs
from .outputs import tensors_in
from .replicas import broadcast_module, broadcast_tensors, by_dtype, require_same_model

__all__ = [
    "BackwardPass",
    "broadcast_module",
    "broadcast_tensors",
    "by_dtype",
    "guard_forward",
    "in_backward_pass",
    "outputs_to_watch",
    "refuse_optimizers_of",
    "require_same_model",
    "tensors_in",
    "watch_inputs",
]

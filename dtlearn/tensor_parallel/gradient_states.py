"""State of a gradient, a partial sum, `{U_t}`, or summed over the ranks: remembered for parameters that are watched.

A parameter's `_version` counts the changes in place; an optimizer's step is one, `zero_grad` is none. A gradient has a
version, too. Nothing is kept on the parameters themselves: a copy begins anew, and a model can be pickled.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import ReferenceType, ref

import torch
from torch import nn
from torch.utils.weak import WeakIdKeyDictionary


@dataclass
class GradientState:
    """The state of a parameter's gradient.

    Attributes:
        is_watched: backward says when it adds to the gradient.
        partial_at: the parameter's version when backward last did; None: not since the last sum.
        summed: the gradient that was summed last, and its version then; None: none was.
    """

    is_watched: bool = False
    partial_at: int | None = None
    summed: tuple[ReferenceType[torch.Tensor], int] | None = None


_STATES = WeakIdKeyDictionary()  # by parameter


def state_of(parameter: torch.Tensor) -> GradientState:
    """The state of a parameter's gradient; the same object each time.

    **Communication** and **Memory**: none.

    Args:
        parameter: any.
    """
    state: GradientState | None = _STATES.get(parameter)
    if state is None:
        state = _STATES[parameter] = GradientState()
    return state


def watch(parameter: torch.Tensor | None) -> None:
    """From now on, note when backward adds to its gradient.

    **Communication** and **Memory**: none.

    Args:
        parameter: one that is None, frozen, or computed by autograd has no gradient of its own.
    """
    if parameter is None or not parameter.requires_grad or not parameter.is_leaf:
        return
    state = state_of(parameter)
    if not state.is_watched:
        state.is_watched = True
        parameter.register_post_accumulate_grad_hook(_note_backward)
    elif parameter.grad is None:
        state.partial_at = None  # thrown away: a batch that is skipped


def _note_backward(parameter: torch.Tensor) -> None:
    state = state_of(parameter)
    if state.summed is not None and parameter.grad is not None:
        gradient, version = state.summed
        if gradient() is parameter.grad and parameter.grad._version == version + 1:
            raise ValueError(
                "a gradient that was summed over the ranks already got one more partial sum: call "
                "reduce_sequence_parallel_gradients once in a step, after its last backward pass, and zero_grad() "
                "after the step"
            )
    state.partial_at, state.summed = parameter._version, None


def note_sum(parameter: nn.Parameter) -> None:
    """Say that its gradient has been summed over the ranks."""
    assert parameter.grad is not None
    state = state_of(parameter)
    state.partial_at, state.summed = None, (ref(parameter.grad), parameter.grad._version)


def note_load(parameter: torch.Tensor) -> None:
    """Say that the parameter has been given other values, which are not a step's."""
    state_of(parameter).partial_at = None


def is_summed(parameter: nn.Parameter) -> bool:
    """True if its gradient has been summed, and is as it was then."""
    summed, gradient = state_of(parameter).summed, parameter.grad
    if summed is None or gradient is None:
        return False
    return summed[0]() is gradient and gradient._version == summed[1]


def is_partial(parameter: nn.Parameter) -> bool:
    """True if its gradient is a partial sum: backward has added to it since it was summed last."""
    return parameter.grad is not None and state_of(parameter).partial_at is not None


def is_partial_and_used(parameter: torch.Tensor | None) -> bool:
    """True if the parameter has been changed in place while its gradient was a partial sum."""
    partial_at = None if parameter is None else state_of(parameter).partial_at
    return parameter is not None and partial_at is not None and partial_at != parameter._version

"""A checkpoint's second forward pass chooses the experts of the first one.

Under activation checkpointing a block runs twice. If the second pass chose other experts (another order of a sum, a
selection bias that was updated meanwhile), it would keep other activations than those that the gradient belongs to; and
with expert parallelism the ranks would exchange other numbers of rows than their peers wait for. What has to be kept is
small: k integers for each token, beside the C elements that are saved by not keeping the rest.

    y = checkpoint(with_same_routing(block), x, use_reentrant=False)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import ParamSpec, TypeVar

import torch

Params = ParamSpec("Params")
Out = TypeVar("Out")


class _Tape:
    """Choices of one forward pass, in order; the later passes read them from the first one on."""

    def __init__(self) -> None:
        self.choices: list[torch.Tensor] = []
        self.next: int | None = None  # None: the first pass, which writes


_TAPE: ContextVar[_Tape | None] = ContextVar("_TAPE", default=None)


def with_same_routing(function: Callable[Params, Out]) -> Callable[Params, Out]:
    """Wrap what is checkpointed once: its first call notes which experts are chosen, each later one takes the same.

    Make a new one for each call of the checkpoint: what it notes lives as long as the graph that holds it.

    **Communication**: none. **Memory**: 8 k bytes for each token and mixture in the function.

    Args:
        function: a block, or several.
    """
    tape = _Tape()

    @functools.wraps(function, updated=())
    def run(*args: Params.args, **kwargs: Params.kwargs) -> Out:
        with _playing(tape):
            return function(*args, **kwargs)

    return run


def chosen(choose: Callable[[], torch.Tensor]) -> torch.Tensor:
    """A choice of experts: a new one by `choose`, or in a second pass that of the first."""
    tape = _TAPE.get()
    if tape is None:
        return choose()
    if tape.next is None:
        tape.choices.append(choose())
        return tape.choices[-1]
    tape.next += 1
    return tape.choices[tape.next - 1]


@contextmanager
def _playing(tape: _Tape) -> Iterator[None]:
    # A second pass may end early, by an exception of torch's, or run in a thread of autograd's.
    token = _TAPE.set(tape)
    try:
        yield
    finally:
        tape.next = 0
        _TAPE.reset(token)

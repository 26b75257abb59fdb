"""Tensors that the backward pass keeps: what autograd saves, with its own hooks and with those of others.

Of saved-tensor hooks only the innermost run. The ledger's do nothing but look; where others are inside them, as in a
checkpoint or an offload, what counts is what those keep.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks

from .storage_ledger import tensors_in

Note = Callable[[torch.Tensor], object]


def watch_saved_tensors(note: Note, stack: contextlib.ExitStack) -> None:
    """Call `note` with each tensor that is kept for the backward pass, until the stack is closed.

    The tensor that `note` gets shares its memory with what is kept, and has no graph.
    """
    hooks = saved_tensors_hooks(lambda tensor: keep(tensor, note), give_back)
    stack.enter_context(hooks)  # first: the ledger around this one, if there is one, watches these hooks

    enter = saved_tensors_hooks.__enter__

    def watch(inner: saved_tensors_hooks) -> None:
        pack = inner.pack_hook
        inner.pack_hook = lambda tensor: watched(pack, tensor, note)
        try:
            enter(inner)
        finally:
            inner.pack_hook = pack

    saved_tensors_hooks.__enter__ = watch  # type: ignore[method-assign]
    stack.callback(setattr, saved_tensors_hooks, "__enter__", enter)


def keep(tensor: torch.Tensor, note: Note) -> tuple[torch.Tensor, int]:
    """What autograd keeps in place of a tensor: the same memory, not the tensor, which would keep its own graph alive.

    With hooks, autograd itself does not check any more whether the tensor was changed in place.
    """
    kept = tensor.detach()
    note(kept)
    return kept, kept._version


def give_back(kept: tuple[torch.Tensor, int]) -> torch.Tensor:
    """The tensor for the backward pass.

    Raises:
        RuntimeError: it was changed in place since it was saved, as without a ledger.
    """
    tensor, version = kept
    if tensor._version != version:
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace operation: a tensor "
            f"of shape {list(tensor.shape)} is at version {tensor._version}; expected version {version} instead"
        )
    return tensor


def watched(pack: Callable[[torch.Tensor], Any], tensor: torch.Tensor, note: Note) -> Any:
    """Return what another's hook makes of a tensor, and note what it keeps of it."""
    try:
        packed = pack(tensor)
    except Exception:  # the last tensor that a checkpoint of torch computes anew: it keeps it, and stops there
        note(tensor.detach())
        raise
    for part in tensors_in((packed,)):
        note(part.detach())
    return packed

"""The forward and backward passes of an answer that accumulates gradients under DDP: one of each for a micro-batch."""

from __future__ import annotations

from collections.abc import Sequence

from dtlearn.grading import Finding


def find_wrong_passes(
    rank: int, num_batches: int, forward: Sequence[bool], backward: Sequence[bool], inner: int
) -> Finding | None:
    """Whether there are the passes of each micro-batch, and which of them lead to communication.

    Args:
        rank: whose passes they are.
        num_batches: micro-batches.
        forward, backward: of each pass, DDP's `require_backward_grad_sync` while it ran: whether the gradients are
            reduced, which DDP decides in the forward pass.
        inner: forward passes of the module within DDP.

    Returns:
        What is wrong; None also where only the gradients can tell.
    """
    k = num_batches
    if len(forward) != k or inner != k:
        text = f"rank {rank} called the model {len(forward)} times for {k} micro-batch{'es' * (k > 1)}; "
        at_once = "all of them at once need the memory that they were cut up to save"
        why = at_once if 0 < len(forward) < k else "each belongs into one forward pass"
        if inner > len(forward):
            why = "call `model` itself: past it, as with model.module, DDP cannot prepare the backward pass"
        return Finding("DTL-RULE-PASSES", f"{text}{why}", rank)
    if len(backward) < k:
        text = f"rank {rank} made {len(backward)} backward pass{'es' * (len(backward) != 1)} for {k} micro-batches: so "
        text += "all are kept at once, in the memory that they were cut up to save"
        return Finding("DTL-RULE-PASSES", text, rank)
    if list(forward) == [False] * (k - 1) + [True] or not any(forward):  # by hand: the values tell
        return None
    if all(forward) and not all(backward):
        text = "the backward pass is within no_sync(), the forward pass is not: DDP decides in the forward pass, so "
        return Finding("DTL-RULE-MESSAGES", f"{text}all {k} backward passes reduced the gradients", rank)
    if all(forward):
        text = f"all {k} backward passes reduced the gradients, {k}x the bytes: all but the last belong "
        text += "in a block `with model.no_sync():`; calling model.no_sync() without `with` does nothing"
        return Finding("DTL-RULE-MESSAGES", text, rank)
    return None

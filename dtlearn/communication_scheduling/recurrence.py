"""When each layer of the next forward pass starts: a formula that goes around, beside the right one.

Some texts describe ByteScheduler by

    s[i+1] = max(s[i] + c[i], s[i-1] + n[i-1])        c: seconds of computation, n: of communication, s: start

which neither its documentation nor its code has. By it layer i+1 waits for the communication of layer i-1, and that
begins together with the computation of layer i-1: no layer waits for its own gradient, transfers do not share a link,
and the order of sends, which is what ByteScheduler is about, does not occur.

What holds for the forward pass after all gradients are ready at 0 (so that the order is the scheduler's to choose):

    a[i] = a[i-1] + n[i]                              with one partition at a time in the order of the layers
    s[i] = max(s[i-1] + c[i-1], a[i])                 layer i waits for the layer before it and for its own gradient
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate


def starts_as_written(compute: Sequence[float], communication: Sequence[float]) -> list[float]:
    """When each layer starts by the formula that goes around. Layer 0 starts at 0, and layer 1 when it has ended.

    Raises:
        ValueError: lists of different lengths.
    """
    _require_pairs(compute, communication)
    starts: list[float] = []
    for i in range(len(compute)):
        after_layer = starts[i - 1] + compute[i - 1] if i else 0.0
        after_sends = starts[i - 2] + communication[i - 2] if i > 1 else 0.0
        starts.append(max(after_layer, after_sends))
    return starts


def arrivals(communication: Sequence[float]) -> list[float]:
    """When each layer's gradient is there, if they leave in the order of the layers, one at a time, from 0 on."""
    return list(accumulate(communication))


def starts(compute: Sequence[float], communication: Sequence[float]) -> list[float]:
    """When each layer can start: it waits for the layer before it and for its own gradient.

    Raises:
        ValueError: lists of different lengths.
    """
    _require_pairs(compute, communication)
    found: list[float] = []
    for i, arrived in enumerate(arrivals(communication)):
        found.append(max(arrived, found[i - 1] + compute[i - 1]) if i else arrived)
    return found


def too_early(found: Sequence[float], communication: Sequence[float]) -> list[int]:
    """The layers that would start before their own gradient is there, even in the best order for them."""
    return [i for i, (start, arrived) in enumerate(zip(found, arrivals(communication), strict=True)) if start < arrived]


def _require_pairs(compute: Sequence[float], communication: Sequence[float]) -> None:
    if len(compute) != len(communication):
        raise ValueError(
            f"each layer needs both times: got {len(compute)} of computation and {len(communication)} of communication"
        )

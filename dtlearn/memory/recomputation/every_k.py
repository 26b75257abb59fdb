"""Recomputation in segments of k layers, and the k that takes the least memory.

Only the input of each segment is kept: L / k tensors. When backward comes to a segment, all activations of its k layers
are there again. Few, long segments keep few inputs and need much at once; many, short ones the other way round.

Where a layer keeps no more than its input, as in a chain of cheap operations, the least is at k = sqrt(L): memory grows
with the root of the depth (Chen et al., 1604.06174, section 4). Where it keeps A bytes and its input is only c of
them, it is at k = sqrt(L c / A): a block of our GPT keeps 16 times its input, so that k = 1 is best up to 32
blocks, and k = 2 at 96.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .checkpoint import checkpoint


def segments(num_layers: int, k: int) -> list[range]:
    """The layers of each segment: k of them, fewer in the last one.

    Raises:
        ValueError: fewer than 1 layer, or k outside of 1 to `num_layers`.
    """
    if num_layers < 1 or not 1 <= k <= num_layers:
        raise ValueError(f"k must be between 1 and the number of layers, {num_layers}; got {k}")
    return [range(first, min(first + k, num_layers)) for first in range(0, num_layers, k)]


def checkpoint_every(
    layers: Sequence[Callable[[torch.Tensor], torch.Tensor]],
    x: torch.Tensor,
    k: int,
    checkpoint: Callable[..., Any] = checkpoint,
) -> torch.Tensor:
    """The layers one after the other, k of them in a checkpoint: (...) -> (...).

    **Communication**: none of its own; a collective in a layer runs twice.

    **Memory**: the input of each segment until backward, and the activations of one segment in backward; see
    `segment_peak`. **Time**: one more forward pass of all layers, whatever k is.

    Args:
        layers: blocks of a model; each takes the output of the one before it.
        x: input of the first.
        k: layers of a segment.
        checkpoint: ours or another one, as `(function, x) -> output`.

    Raises:
        ValueError: see `segments`.
    """

    def run(segment: range, x: torch.Tensor) -> torch.Tensor:
        for i in segment:
            x = layers[i](x)
        return x

    for segment in segments(len(layers), k):
        x = checkpoint(run, segment, x)
    return x


def segment_peak(num_layers: int, k: int, layer_bytes: int, input_bytes: int) -> int:
    """The most bytes of activations at once: in backward, when a segment has been computed again.

    All inputs before that segment are still there, so it is the last segment that counts, or, if that one is shorter
    than the others, the last but one.

    Args:
        num_layers: L, all alike.
        k: layers of a segment.
        layer_bytes: A, what a layer keeps, its input included.
        input_bytes: c, of its input.

    Raises:
        ValueError: see `segments`; or an input larger than what the layer keeps.
    """
    if not 0 <= input_bytes <= layer_bytes:
        raise ValueError(f"a layer keeps its input too: input_bytes is {input_bytes}, layer_bytes is {layer_bytes}")
    sizes = [len(segment) for segment in segments(num_layers, k)]
    return max(before * input_bytes + size * layer_bytes for before, size in enumerate(sizes))

"""What a codec itself takes on this machine: the input of `break_even.py` that no formula knows."""

from __future__ import annotations

import statistics
import time

import torch

from dtlearn.runtime.device import device, finish

from ..codecs.codec import Codec


def codec_seconds(codec: Codec, numel: int, num_ranks: int, rounds: int = 5) -> float:
    """Seconds in which a rank encodes a gradient and decodes the payloads of all ranks; the median of the rounds.

    Measured on this process's device, on its threads, after one round that does not count. A rank of many on one
    machine has fewer cores.

    Args:
        codec: what encodes.
        numel: elements of the gradient, n.
        num_ranks: N payloads are decoded, and added up.
        rounds: how often.

    Raises:
        ValueError: no element, no rank or no round.
    """
    if min(numel, num_ranks, rounds) < 1:
        raise ValueError(f"expected elements, ranks and rounds from 1; got {numel}, {num_ranks} and {rounds}")
    gradient = torch.randn(numel, device=device())
    mean = torch.empty_like(gradient)
    seconds = []
    for _ in range(rounds + 1):
        finish()
        begun = time.perf_counter()
        payload = codec.encode(gradient)
        mean.zero_()
        for _ in range(num_ranks):
            codec.add_decoded(mean, payload)
        mean.div_(num_ranks)
        finish()
        seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds[1:])

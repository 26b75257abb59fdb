"""Causal attention of a layer in the ways that `dtlearn bench context_parallel` compares, and what runs on ranks."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch

    from ....context_parallel import AttentionSizes
    from ....models.in_turns import Times

ZIGZAG, CONTIGUOUS, ALL_GATHER, ULYSSES = "ring, zigzag", "ring, contiguous", "all-gather, zigzag", "Ulysses"
WAITING = "ring, zigzag, no overlap"
ONE_RANK = "SDPA, one rank"  # all tokens on rank 0; the others wait
OPTIONS: dict[str, dict[str, Any]] = {
    ZIGZAG: {"method": "ring", "layout": "zigzag"},
    CONTIGUOUS: {"method": "ring", "layout": "contiguous"},
    ALL_GATHER: {"method": "all-gather", "layout": "zigzag"},
    ULYSSES: {"method": "ulysses", "layout": "contiguous"},
}
_WARM = 1
BACKWARD = 2.5  # times the forward pass, of attention


class AttentionTimes(NamedTuple):
    """What a rank measured.

    Attributes:
        wall: seconds of each way in each round.
        processor: seconds of its main thread on a core, of each way in each round: what it computes, without waiting.
    """

    wall: Times
    processor: Times


def once_on_rank(sizes: AttentionSizes) -> dict[str, float]:
    """On each rank of a recorded run: every way once; how far it is from SDPA of the whole, output and gradients."""
    import torch.distributed as dist

    from ....context_parallel import own_tokens
    from ....runtime.recording.phases import phase

    expected = _step(_whole, *_tensors(sizes))
    apart = {}
    for name, step in steps(sizes).items():
        if name == ONE_RANK:
            continue
        dist.barrier()
        with phase(name):
            found = step()
        layout = OPTIONS[name]["layout"]
        pairs = zip(found, expected, strict=True)
        apart[name] = max((a - own_tokens(b, dim=2, layout=layout)).abs().max().item() for a, b in pairs)
    return apart


def time_on_rank(sizes: AttentionSizes, rounds: int) -> AttentionTimes:
    """On each rank: seconds of forward and backward in every way, in turns."""
    from ....models.in_turns import time_in_turns

    processor: dict[str, list[float]] = {}

    def timed(name: str, step: Callable[[], object]) -> None:
        begun = time.thread_time()
        step()
        processor.setdefault(name, []).append(time.thread_time() - begun)

    wall = time_in_turns({name: partial(timed, name, step) for name, step in steps(sizes).items()}, rounds, _WARM)
    return AttentionTimes(wall, {name: tuple(seconds[_WARM:]) for name, seconds in processor.items()})


def time_emulated(sizes: AttentionSizes, forward: float, rounds: int) -> Times:
    """On each rank: seconds in every way, where attention of the whole sleeps so many seconds forward.

    Backward is 2.5 times that. The ring that does not overlap is one way more; one rank alone sleeps without sending.
    """
    from ....context_parallel import emulated_attention
    from ....models.in_turns import time_in_turns

    pair_seconds = forward / (sizes.batch * sizes.num_heads * sizes.length * (sizes.length + 1) / 2)

    def emulated(step: Callable[[], object], overlap: bool) -> None:
        with emulated_attention(pair_seconds, overlap=overlap):
            step()

    real = steps(sizes)
    ways = {name: partial(emulated, real[name], True) for name in OPTIONS}
    ways[WAITING] = partial(emulated, real[ZIGZAG], False)
    ways[ONE_RANK] = partial(time.sleep, (1 + BACKWARD) * forward)
    return time_in_turns(ways, rounds, _WARM)


def steps(sizes: AttentionSizes) -> dict[str, Callable[[], tuple[torch.Tensor, ...]]]:
    """On a rank: forward and backward in every way; returns the output and the gradients of q, k and v."""
    import torch.distributed as dist

    from ....context_parallel import context_parallel_attention, own_tokens

    whole = _tensors(sizes)
    found: dict[str, Callable[[], tuple[torch.Tensor, ...]]] = {}
    for name, options in OPTIONS.items():
        own = [own_tokens(x, dim=2, layout=options["layout"]) for x in whole]
        found[name] = partial(_step, partial(context_parallel_attention, **options), *own)
    found[ONE_RANK] = partial(_step, _whole, *whole) if dist.get_rank() == 0 else tuple
    return found


def _tensors(sizes: AttentionSizes) -> list[torch.Tensor]:
    """q, k, v and the gradient of the output, of the whole sequence, the same on all ranks."""
    import torch

    generator = torch.Generator().manual_seed(0)
    heads = (sizes.num_heads, sizes.num_kv_heads, sizes.num_kv_heads, sizes.num_heads)
    return [torch.randn(sizes.batch, h, sizes.length, sizes.head_size, generator=generator) for h in heads]


def _whole(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    import torch.nn.functional as F

    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def _step(
    attention: Callable[..., torch.Tensor],
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    gradient: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    import torch

    inputs = [x.detach().clone().requires_grad_() for x in (q, k, v)]
    out = attention(*inputs)
    return out.detach(), *torch.autograd.grad(out, inputs, gradient)

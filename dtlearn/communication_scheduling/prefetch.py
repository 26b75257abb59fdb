"""Today's descendants: a layer's parameters are gathered while the layers before it compute.

Where parameters are sharded (ZeRO 3, FSDP2), or the optimizer's step is (ZeRO 1, Megatron's distributed optimizer),
what forward of layer i waits for is an all-gather of its parameters. They leave in the order of the layers, and the
question is when: `ahead` says how many layers before its own turn a gather is issued.

    ahead 0     when its layer is due: nothing overlaps
    ahead 1     when the layer before begins. Megatron's --overlap-param-gather: who has waited for a bucket issues the
                next one's gather (`finish_param_sync` in megatron/core/distributed/param_and_grad_buffer.py)
    ahead k     FSDP2, `layer.set_modules_to_forward_prefetch(next_k_layers)`
    None        all at the beginning, as a scheduler without a limit: the most memory

On GPUs FSDP2 needs no such call to overlap: the CPU runs ahead, and issues the next gather on a stream of its own while
the GPU still computes this layer ("implicit prefetch"). It helps where the CPU is late.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from dtlearn.runtime.link.link import Link
from dtlearn.runtime.record.record import Record
from dtlearn.runtime.record.training_steps import part
from dtlearn.runtime.recording.phases import phase
from dtlearn.runtime.run import run_ranks

from .emulated import WIDTH, paced_model
from .simulate import FORWARD, LaneSpan, LayerTimes

GATHERS = "all-gathers"  # the lane


def prefetch_lanes(forward: Sequence[float], gather: Sequence[float], ahead: int | None) -> list[LaneSpan]:
    """Forward passes beside the gathers that they wait for; 0 is when the first gather is issued.

    Args:
        forward: seconds of each layer.
        gather: seconds of the all-gather of each layer's parameters.
        ahead: how many layers before its own turn a gather is issued; None: all are at once.

    Raises:
        ValueError: lists of different lengths, or a negative `ahead`.
    """
    if len(forward) != len(gather):
        raise ValueError(f"each layer needs both times: got {len(forward)} of forward and {len(gather)} of gathers")
    if ahead is not None and ahead < 0:
        raise ValueError(f"ahead is a number of layers, 0 or more, or None for all; got {ahead}")
    spans: list[LaneSpan] = []
    due = free = 0.0  # when the layer before has ended; when the link has
    arrived: list[float] = []

    def issue(layers: range) -> None:
        nonlocal free
        for layer in layers:
            start = max(due, free)
            free = start + gather[layer]
            arrived.append(free)
            spans.append(LaneSpan(GATHERS, layer, start, free))

    issue(range(len(forward) if ahead is None else min(1, len(forward))))
    for layer, seconds in enumerate(forward):
        issue(range(len(arrived), layer + 1))  # its own, if nobody has
        due = max(due, arrived[layer])
        issue(range(len(arrived), min(layer + (ahead or 0) + 1, len(forward))))
        spans.append(LaneSpan(FORWARD, layer, due, due + seconds))
        due += seconds
    return spans


def run_fully_shard(times: LayerTimes, ahead: int, link: Link, *, num_ranks: int = 2) -> list[LaneSpan]:
    """The same from PyTorch's own `fully_shard`, on real ranks and an emulated link; in the notebook's process.

    Args:
        times: of the layers; of the sizes each rank has a share.
        ahead: 0, or of how many layers each layer prefetches the parameters.
        link: that is emulated.
        num_ranks: how many.

    Returns:
        What rank 0 recorded of a forward pass, from its first all-gather on.
    """
    options: dict[str, Any] = {"device": "cpu", "link": link, "record": True}
    return recorded_lanes(run_ranks(_forward_on_rank, num_ranks, times, ahead, **options).record)


def recorded_lanes(record: Record, rank: int = 0) -> list[LaneSpan]:
    """Gathers and layers of the phase "measured" of a recorded run, in which the phase "layer 3" is forward of layer 3.

    A gather begins when it is issued and the one before has ended.

    Raises:
        ValueError: the record has no such phase, or another number of gathers than of layers.
    """
    own = part(record, "measured")
    gathers = [e for e in own.select(rank=rank) if e.op == "all_gather_into_tensor"]
    layers = sorted((s for s in own.spans if s.rank == rank and s.phase.startswith("layer ")), key=lambda s: s.start_ns)
    if not gathers or len(gathers) != len(layers):
        raise ValueError(f"a gather for each layer is needed; the record has {len(gathers)} and {len(layers)} layers")
    begun = gathers[0].start_ns
    spans, free = [], 0.0
    for number, event in enumerate(gathers):
        start = max(free, (event.start_ns - begun) / 1e9)
        # Who waits may go on a moment before the recorder has seen the data come.
        ends = [ns for ns in (event.arrived_ns, event.end_ns) if ns is not None]
        free = (min(ends, default=event.start_ns) - begun) / 1e9
        spans.append(LaneSpan(GATHERS, number, start, free))
    for span in layers:
        end = span.end_ns or span.start_ns
        number = int(span.phase.removeprefix("layer "))
        spans.append(LaneSpan(FORWARD, number, (span.start_ns - begun) / 1e9, (end - begun) / 1e9))
    return sorted(spans, key=lambda s: s.start)


def _forward_on_rank(times: LayerTimes, ahead: int) -> None:
    from torch.distributed.fsdp import fully_shard

    model: Any = paced_model(times)
    for number, layer in enumerate(model):
        layer.forward = partial(_in_phase, f"layer {number}", layer.forward)
        fully_shard(layer)
    fully_shard(model)
    # On the CPU there are no streams: without this private switch a gather returns when it has ended.
    model._set_unshard_async_op(ahead > 0)
    layers = list(model)
    for number, layer in enumerate(layers if ahead else []):
        layer.set_modules_to_forward_prefetch(layers[number + 1 : number + 1 + ahead])
    inputs = torch.ones(1, WIDTH)
    with torch.no_grad():
        model(inputs)  # the first pass opens connections
        dist.barrier()
        with phase("measured"):
            model(inputs)


def _in_phase(name: str, forward: Any, x: torch.Tensor) -> torch.Tensor:
    with phase(name):
        y: torch.Tensor = forward(x)
    return y

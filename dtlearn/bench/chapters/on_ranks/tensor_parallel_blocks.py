"""A transformer block in the ways that `dtlearn bench tensor_parallel` compares: the course's layers, and torch's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist
    from torch import nn

    from ....models.gpt import Block, GPTConfig

# Ours, and torch's way to do the same.
COUNTERPARTS = {"tensor parallel": "parallelize_module", "sequence parallel": "SequenceParallel"}
WAYS = (*COUNTERPARTS, *COUNTERPARTS.values())
# Ours on an emulated link, where communication takes time but no processor: each beside the way without it.
GAINS = {"overlapped": "tensor parallel", "gathered again": "sequence parallel"}
OPTIONS: dict[str, dict[str, Any]] = {
    "tensor parallel": {},
    "overlapped": {"overlap": True},
    "sequence parallel": {"sequence_parallel": True},
    "gathered again": {"sequence_parallel": True, "gather_again": True},
}
ALL_WAYS = (*OPTIONS, *COUNTERPARTS.values())


class Work(NamedTuple):
    """A block and its batch.

    Attributes:
        config: of the block.
        batch: sequences, each as long as the context.
    """

    config: GPTConfig
    batch: int


def our_block(block: Block, *, group: dist.ProcessGroup | None = None, **options: Any) -> nn.Module:
    """The course's layers in the place of a block's attention and feed-forward network, with the same weights."""
    from ....tensor_parallel.attention import ParallelAttention
    from ....tensor_parallel.layers.feed_forward import ParallelFeedForward
    from ....tensor_parallel.sequence_parallel import mark_sequence_parallel

    parallel: Any = block
    parallel.attention = ParallelAttention.from_attention(block.attention, group=group, **options)
    parallel.feed_forward = ParallelFeedForward.from_feed_forward(block.feed_forward, group=group, **options)
    if options.get("sequence_parallel"):
        for norm in (block.attention_norm, block.feed_forward_norm):
            mark_sequence_parallel(norm)
    return block


def torch_block(block: Block, mesh: Any, *, sequence_parallel: bool = False) -> nn.Module:
    """The block, divided by `parallelize_module`. Query, key and value share one input, so it is prepared once."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    between = Shard(1) if sequence_parallel else Replicate()  # of (B, T, C), where nothing is divided by features
    plan: dict[str, Any] = {
        "attention.query": ColwiseParallel(),
        "attention.key": ColwiseParallel(),
        "attention.value": ColwiseParallel(),
        "attention.output": RowwiseParallel(output_layouts=between),
        "feed_forward.up": ColwiseParallel(),
        "feed_forward.down": RowwiseParallel(output_layouts=between),
    }
    for name in ("attention", "feed_forward"):
        plan[name] = PrepareModuleInput(input_layouts=(between,), desired_input_layouts=(Replicate(),))
        plan |= {f"{name}_norm": SequenceParallel()} if sequence_parallel else {}
    parallel: nn.Module = parallelize_module(block, mesh, plan)
    return parallel


BlockStep = Callable[[], "tuple[torch.Tensor, torch.Tensor]"]


def steps(work: Work, names: tuple[str, ...]) -> dict[str, BlockStep]:
    """On a rank: forward and backward of the same block in these ways; each returns its output and input's gradient."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    from ....models.gpt import Block

    t, rank = dist.get_world_size(), dist.get_rank()
    mesh = init_device_mesh("cpu", (t,))
    shape = (work.batch, work.config.context_length, work.config.hidden_size)
    tensors = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))  # x, and the output's gradient
    found: dict[str, BlockStep] = {}
    for name in names:
        torch.manual_seed(0)
        block, by_tokens = Block(work.config), name in ("sequence parallel", "gathered again", "SequenceParallel")
        if name in OPTIONS:
            parallel = our_block(block, **OPTIONS[name])
        else:
            parallel = torch_block(block, mesh, sequence_parallel=by_tokens)
        x, gradient = (part.chunk(t, 1)[rank].contiguous() if by_tokens else part for part in tensors)
        found[name] = partial(_step, parallel, x.requires_grad_(False), gradient)
    return found


def _step(block: nn.Module, x: torch.Tensor, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = x.clone().requires_grad_()
    y: Any = block(inputs)
    y = y.to_local() if hasattr(y, "to_local") else y  # a DTensor
    y.backward(gradient)
    block.zero_grad()
    assert inputs.grad is not None
    return y.detach(), inputs.grad

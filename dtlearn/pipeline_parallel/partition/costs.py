"""What each link of a model costs: parameters, FLOPs, bytes, seconds. Each measure has its own best partition.

A GPT's two ends are unlike its blocks. The embedding has many parameters and computes next to nothing: it copies rows.
The head has as many, and multiplies by all of them, so it may take as long as several blocks, and logits of V numbers
for each token are kept.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from dtlearn.models import GPT, GPTConfig
from dtlearn.runtime.device import finish

from .optimum import StageCost


def gpt_links(model: GPT) -> list[nn.Module]:
    """The L + 2 links of a GPT with L blocks: embedding, blocks, head."""
    return [model.embedding, *model.blocks, model.head]


def parameter_counts(links: Sequence[nn.Module]) -> list[int]:
    """Parameters of each link. A tied weight counts in each link that uses it: two stages would have a copy each."""
    return [sum(parameter.numel() for parameter in link.parameters()) for link in links]


def gpt_flops(config: GPTConfig, length: int = 0) -> list[int]:
    """FLOPs of a forward pass of one sequence in each link of a GPT, by formula; no model is built.

    A matrix of n weights costs 2n FLOPs a token: 24 C^2 in a block, 2 V C in the head. Attention adds 4 T C a token,
    causal or not: what is masked is not counted as saved. The embedding has none. Backward takes twice as many.
    Source: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters", 2104.04473, appendix.

    Args:
        config: sizes.
        length: T, tokens of the sequence; 0 means the context length.
    """
    T, C = length or config.context_length, config.hidden_size
    block = T * (24 * C**2 + 4 * T * C)
    return [0, *[block] * config.num_layers, 2 * T * config.vocab_size * C]


def saved_bytes(links: Sequence[nn.Module], inputs: torch.Tensor) -> list[int]:
    """Bytes that each link keeps of one micro-batch from its forward pass to its backward pass, parameters left out.

    Counted is what autograd saves, each storage once in the link that saves it first. The loss is not counted.

    Args:
        links: of the model, in order.
        inputs: of the first link, for one micro-batch.
    """
    own = {p.untyped_storage().data_ptr() for link in links for p in link.parameters()}
    kept: dict[int, torch.Tensor] = {}  # by address; held, so that no address is used twice
    found: list[int] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        address = tensor.untyped_storage().data_ptr()
        if address not in own and address not in kept:
            kept[address] = tensor
            found[-1] += tensor.untyped_storage().nbytes()
        return tensor

    x = inputs.clone()  # a micro-batch is often a view, whose storage is the whole batch
    with saved_tensors_hooks(pack, lambda tensor: tensor):
        for link in links:
            found.append(0)
            x = link(x)
    return found


def stage_memory(state: Sequence[float], saved: Sequence[float], num_stages: int, num_microbatches: int) -> StageCost:
    """Bytes of a stage under 1F1B, for `by_stage_cost`: stage s keeps min(m, S - s) micro-batches.

    Args:
        state: of each link, bytes of parameters, gradients and optimizer's state; 16 a parameter for Adam.
        saved: of each link, bytes kept of one micro-batch.
        num_stages: S, one a rank.
        num_microbatches: m.
    """

    def cost(stage: int, start: int, stop: int) -> float:
        live = min(num_microbatches, num_stages - stage)
        return sum(state[start:stop]) + live * sum(saved[start:stop])

    return cost


@dataclass(frozen=True)
class LinkSeconds:
    """Measured seconds of each link for one micro-batch, medians.

    Attributes:
        forward, backward: of each link.
    """

    forward: tuple[float, ...]
    backward: tuple[float, ...]

    @property
    def total(self) -> tuple[float, ...]:
        """The sum of forward and backward for each link."""
        return tuple(forward + backward for forward, backward in zip(self.forward, self.backward, strict=True))


def measure_seconds(links: Sequence[nn.Module], inputs: torch.Tensor, rounds: int = 5) -> LinkSeconds:
    """Time forward and backward of each link by itself, all links in turns; the first round does not count.

    Args:
        links: of the model, in order. Their parameters' `.grad` stays as it is.
        inputs: of the first link, for one micro-batch.
        rounds: how often each link is timed.
    """
    forward: list[list[float]] = [[] for _ in links]
    backward: list[list[float]] = [[] for _ in links]
    for _ in range(1 + rounds):
        x = inputs
        for number, link in enumerate(links):
            x = x.detach().requires_grad_(x.is_floating_point())
            begun = _now()
            y = link(x)
            forward[number].append(_now() - begun)
            wanted = [tensor for tensor in (x, *link.parameters()) if tensor.requires_grad]
            begun = _now()
            torch.autograd.grad(y, wanted, torch.ones_like(y), allow_unused=True)
            backward[number].append(_now() - begun)
            x = y
    medians = [tuple(statistics.median(seconds[1:]) for seconds in direction) for direction in (forward, backward)]
    return LinkSeconds(*medians)


def _now() -> float:
    finish()  # what the device still computes belongs to the time before
    return time.perf_counter()

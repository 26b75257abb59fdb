"""Bytes that one rank stores, by stage: what it holds between backward and the optimizer's step.

With Ψ parameters on N ranks, and w, g and s bytes for the weight, the gradient and the optimizer's state of each:

    stage 0    (w + g + s) Ψ
    stage 1    (w + g) Ψ + s Ψ/N
    stage 2    w Ψ + (g + s) Ψ/N
    stage 3    (w + g + s) Ψ/N, and what is gathered

ZeRO's 16Ψ, 4Ψ + 12Ψ/N, 2Ψ + 14Ψ/N and 16Ψ/N are these with w = 2, g = 2 and s = 12: parameters and gradients in 16
bits, and Adam with masters in fp32. Here Ψ/N is what a partition says: with its padding, and by rank.

Source: ZeRO, 1910.02054, section 5 and figure 1.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from ..partition.partition import Bucket, Partition


class Convention(Protocol):
    """Bytes of one parameter, as `dtlearn.memory.CONVENTIONS` has them."""

    @property
    def weight(self) -> int: ...
    @property
    def gradient(self) -> int: ...
    @property
    def optimizer_state(self) -> int: ...


def state_bytes(
    partition: Partition,
    stage: int,
    convention: Convention,
    *,
    rank: int = 0,
    per_tensor: int = 0,
    trained: Collection[int] | None = None,
    gathered: int = 0,
) -> dict[str, int]:
    """Bytes on one rank by category, with the names of the memory ledger.

    Activations come on top, and in stage 0 the buckets of DDP: as many bytes as the gradients, unless those are views
    of them.

    Args:
        partition: of all parameters, for the ranks that divide them.
        stage: 0 (nothing is divided) to 3.
        convention: bytes of the weight, the gradient and the optimizer's state of one parameter.
        rank: whose bytes; ranks differ in what they own, by the padding.
        per_tensor: bytes of the optimizer's state beside the elements of each tensor: with torch's Adam 4, the number
            of steps. (A piece is a tensor. In every stage each rank has one of each trained parameter, also an empty
            one; under `plan_whole_tensors` an empty one has no state, which this does not know.)
        trained: numbers of the parameters that have gradients; None: all. The others are weights and nothing else.
        gathered: elements that stage 3 has gathered, as of `gathered_elements`.

    Returns:
        "parameters", "gradients", "optimizer state", and "communication", what is gathered.

    Raises:
        ValueError: another stage or rank.
    """
    n = partition.num_ranks
    if stage not in (0, 1, 2, 3) or not 0 <= rank < n:
        raise ValueError(f"stage must be 0 to 3, and rank below {n}; got {stage} and {rank}")
    trained = range(len(partition.sizes)) if trained is None else trained
    whole = [partition.sizes[number] for number in trained]
    pieces = [piece.numel for piece in partition.slices(rank) if piece.parameter in trained]
    weights = {0: sum(partition.sizes), 3: partition.shard}.get(stage, partition.numel)
    shards = sum(bucket.shard for bucket in trained_buckets(partition, trained))
    gradients = sum(whole) if stage < 2 else shards
    updated = whole if stage == 0 else pieces
    num_tensors = len(trained)  # empty pieces have state, too
    return {
        "parameters": convention.weight * weights,
        "gradients": convention.gradient * gradients,
        "optimizer state": convention.optimizer_state * sum(updated) + per_tensor * num_tensors,
        "communication": convention.weight * gathered,
    }


def trained_buckets(partition: Partition, trained: Collection[int]) -> list[Bucket]:
    """The buckets with a parameter that is trained: those that have gradients."""
    return [b for b in partition.buckets if any(number in trained for number in b.parameters)]


def gathered_elements(
    partition: Partition, units: Sequence[Collection[int]], prefetch: int = 1, *, kept: bool = False
) -> int:
    """The most elements that stage 3 has gathered at a time.

    The root is gathered as long as the model computes. So are the unit in use and `prefetch` more. The
    backward pass also holds full gradients: of the root, of the unit in use, and of one whose reduction is under way.

    Args:
        partition: of all parameters.
        units: numbers of each unit's buckets, the root first, the others in the order in which they are used.
        prefetch: units that are gathered ahead.
        kept: units stay gathered after their forward pass (reshard_after_forward=False): at its end, all are.

    Raises:
        ValueError: there is no unit, or a negative `prefetch`.
    """
    if not units or prefetch < 0:
        raise ValueError(f"expected a unit and a prefetch of 0 or more, got {units} and {prefetch}")
    root, *others = [sum(partition.buckets[b].numel for b in unit) for unit in units]
    at_once = len(others) if kept else 1 + prefetch
    windows = [others[first : first + at_once] for first in range(len(others))]
    return root + max(map(sum, windows), default=0)

"""Which gradients travel together: some megabytes of them, in the order in which backward ends with them.

A bucket is data, and the plan is a pure function of the parameters' sizes, so that every rank makes the same one.

Source: Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020, section 3.2.3.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch

MIB = 1 << 20


@dataclass(frozen=True)
class Bucket:
    """Parameters whose gradients are reduced in one call.

    Attributes:
        index: place of this bucket in the order in which buckets are launched, the same on every rank.
        parameters: numbers of the parameters, in registration order of the model, as they lie in the bucket's buffer.
        nbytes: of all their gradients.
        kind: what they have in common, such as dtype and device: a buffer has one.
    """

    index: int
    parameters: tuple[int, ...]
    nbytes: int
    kind: Hashable = None


def describe(parameters: Sequence[torch.Tensor]) -> tuple[list[int], list[Hashable]]:
    """What a plan is made from: bytes of each parameter's gradient, and what it is, its dtype and device."""
    return [p.numel() * p.element_size() for p in parameters], [(p.dtype, p.device) for p in parameters]


def plan_buckets(
    nbytes: Sequence[int],
    *,
    cap: int = 25 * MIB,
    first_cap: int | None = MIB,
    kinds: Sequence[Hashable] | None = None,
    order: Sequence[int] | None = None,
) -> list[Bucket]:
    """Put parameters into buckets, in the order in which their gradients become ready.

    A bucket is closed as soon as it holds `cap` bytes or more, so it can be larger than that by one gradient. The first
    bucket of each kind is closed at `first_cap`: the sooner something is on its way, the sooner the link is busy.

    Args:
        nbytes: size of each parameter's gradient, in bytes, in the order of `model.parameters()`.
        cap: bytes that close a bucket.
        first_cap: bytes that close the first bucket; None: as the others.
        kinds: what each parameter is (dtype, device); buckets never mix kinds. None: all alike.
        order: numbers of the parameters in the order in which they become ready; None: the reverse of `nbytes`, as
            backward begins with the layer that forward ends with.

    Returns:
        The buckets, by the moment at which their last gradient is ready. (torch sorts by the first: with several kinds
        a bucket that is complete can wait for one that is not.)

    Raises:
        ValueError: a cap below 1, lengths that differ, or an order that is no permutation.
    """
    kinds = [None] * len(nbytes) if kinds is None else kinds
    order = range(len(nbytes))[::-1] if order is None else order
    _check_plan(len(nbytes), cap, first_cap, kinds, order)
    limits: dict[Hashable, int] = {}
    opened: dict[Hashable, list[int]] = {}
    closed: list[list[int]] = []
    for number in order:
        kind = kinds[number]
        members = opened.setdefault(kind, [])
        members.append(number)
        if sum(nbytes[m] for m in members) >= limits.get(kind, first_cap or cap):
            closed.append(opened.pop(kind))
            limits[kind] = cap
    ready = {number: place for place, number in enumerate(order)}
    closed = sorted([*closed, *opened.values()], key=lambda members: ready[members[-1]])
    return [
        Bucket(index, tuple(members), sum(nbytes[m] for m in members), kinds[members[0]])
        for index, members in enumerate(closed)
    ]


def _check_plan(
    num_parameters: int, cap: int, first_cap: int | None, kinds: Sequence[Hashable], order: Sequence[int]
) -> None:
    if cap < 1 or (first_cap is not None and first_cap < 1):
        raise ValueError(f"a bucket's cap must be 1 byte or more, got cap={cap} and first_cap={first_cap}")
    if len(kinds) != num_parameters or sorted(order) != list(range(num_parameters)):
        raise ValueError(f"kinds and order must name each of the {num_parameters} parameters once")


def validate_buckets(buckets: Sequence[Bucket], nbytes: Sequence[int], kinds: Sequence[Hashable] | None = None) -> None:
    """Check that a plan, from wherever it comes, reduces each gradient exactly once.

    Args:
        buckets: in the order in which they are launched.
        nbytes, kinds: of each parameter, as for `plan_buckets`.

    Raises:
        ValueError: it does not, and why.
    """
    seen: dict[int, int] = {}
    for place, bucket in enumerate(buckets):
        if bucket.index != place:
            raise ValueError(f"bucket {bucket.index} is launched at place {place}: ranks would pair other buckets")
        if not bucket.parameters:
            raise ValueError(f"bucket {place} is empty: it would never become ready, and those after it would wait")
        for number in bucket.parameters:
            if not 0 <= number < len(nbytes):
                raise ValueError(f"bucket {place} holds parameter {number}, but there are only {len(nbytes)}")
            if number in seen:
                raise ValueError(f"parameter {number} is in buckets {seen[number]} and {place}")
            seen[number] = place
        if kinds is not None and len({kinds[number] for number in bucket.parameters}) > 1:
            raise ValueError(f"bucket {place} mixes kinds of parameters: they cannot lie in one buffer")
        size = sum(nbytes[number] for number in bucket.parameters)
        if bucket.nbytes != size:
            raise ValueError(f"bucket {place} says {bucket.nbytes:,} bytes; its parameters have {size:,}")
    if missing := sorted(set(range(len(nbytes))) - seen.keys()):
        raise ValueError(f"parameter {missing[0]} is in no bucket: its gradient would never be averaged")

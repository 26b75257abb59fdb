"""Which requests are in a batch: until all of it is done, or from token to token.

A server has some slots. *Static* batching fills them, and takes new requests when the longest text is done; shorter
ones leave slots idle meanwhile. *Continuous* batching looks after each token who is done, and who waits. The texts are
the same.

Source: Yu et al., "Orca: A Distributed Serving System for Transformer-Based Generative Models", OSDI 2022, which calls
it iteration-level scheduling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from dtlearn.models import GPT
from dtlearn.tensor_parallel.gpt import ParallelGPT

from .cached_model import CachedGPT
from .generate import cache_for, decode, prefill
from .requests import GenerationRequest, require_room

BatchPolicy = Literal["continuous", "static"]
_Produce = Callable[[dict[int, int], dict[int, int]], dict[int, int]]  # ({slot: begins}, {slot: goes on}) -> tokens


@dataclass(frozen=True)
class ServingRun:
    """What a server did, step by step. In a step each request that is there gets one token.

    Attributes:
        requests, policy: as given.
        grid: for each step, the request in each slot, by number; None: the slot is idle.
        texts: new tokens of each request; zeros, if it was only planned.
    """

    requests: tuple[GenerationRequest, ...]
    policy: BatchPolicy
    grid: tuple[tuple[int | None, ...], ...]
    texts: tuple[tuple[int, ...], ...]

    @property
    def num_steps(self) -> int:
        """Number of steps from the first to the last, idle ones included."""
        return len(self.grid)

    @property
    def tokens_per_step(self) -> float:
        """Mean number of tokens that a step makes."""
        return sum(map(len, self.texts)) / self.num_steps

    @property
    def busy(self) -> float:
        """The share of slots that make a token, over all steps, 0 to 1."""
        return self.tokens_per_step / len(self.grid[0])

    def first_step(self, request: int) -> int:
        """The step that makes the first token of a request."""
        return next(step for step, slots in enumerate(self.grid) if request in slots)

    @property
    def waiting(self) -> tuple[int, ...]:
        """Steps from each request's arrival until it gets a slot."""
        return tuple(self.first_step(n) - request.arrival for n, request in enumerate(self.requests))

    @property
    def latency(self) -> tuple[int, ...]:
        """Steps from each request's arrival to its last token, the last step included."""
        return tuple(
            self.first_step(n) + len(self.texts[n]) - request.arrival for n, request in enumerate(self.requests)
        )


def serve(
    model: GPT | ParallelGPT,
    requests: Sequence[GenerationRequest],
    num_slots: int,
    policy: BatchPolicy = "continuous",
) -> ServingRun:
    """Serve requests, each from its arrival on, in the order of arrival.

    **Communication**: of a `ParallelGPT` that of its passes; all ranks of its group call it, and decide alike.
    **Memory**: a cache of `num_slots` texts, however many requests there are.

    Args:
        model: in evaluation mode.
        requests: the same on all ranks.
        num_slots: texts that have room at once.
        policy: who may join: "continuous" or "static".

    Raises:
        ValueError: no slot, no request, no such policy, or a text longer than the context.
    """
    require_room(requests, model.config.context_length)
    _check(num_slots, policy)
    cached = CachedGPT(model, cache_for(model, num_slots, max(request.length for request in requests)))
    texts = [list[int]() for _ in requests]

    def produce(begin: dict[int, int], go_on: dict[int, int]) -> dict[int, int]:
        new = {n: prefill(cached, requests[n], slot) for slot, n in begin.items()}
        if go_on:
            numbers = list(go_on.values())
            own, so_far = [requests[n] for n in numbers], [texts[n] for n in numbers]
            new |= zip(numbers, decode(cached, own, so_far, list(go_on)), strict=True)
        return new

    return _run(requests, num_slots, policy, produce, texts)


def plan(requests: Sequence[GenerationRequest], num_slots: int, policy: BatchPolicy = "continuous") -> ServingRun:
    """Plan what `serve` does, without a model, if no text ends before its `max_new_tokens`."""
    _check(num_slots, policy)
    texts = [list[int]() for _ in requests]
    return _run(
        requests, num_slots, policy, lambda begin, go_on: dict.fromkeys([*begin.values(), *go_on.values()], 0), texts
    )


def _check(num_slots: int, policy: str) -> None:
    if num_slots < 1:
        raise ValueError(f"a server needs at least one slot; got {num_slots}")
    if policy not in ("continuous", "static"):
        raise ValueError(f'policy must be "continuous" or "static"; got {policy!r}')


def _run(
    requests: Sequence[GenerationRequest],
    num_slots: int,
    policy: BatchPolicy,
    produce: _Produce,
    texts: list[list[int]],
) -> ServingRun:
    """Make the steps. `produce({slot: request that begins}, {slot: that goes on}) -> {request: its next token}`."""
    queue = sorted(range(len(requests)), key=lambda n: requests[n].arrival)
    there: dict[int, int] = {}  # slot -> request
    grid = list[tuple[int | None, ...]]()
    while queue or there:
        begin: dict[int, int] = {}
        free = [slot for slot in range(num_slots) if slot not in there] if policy == "continuous" or not there else []
        while free and queue and requests[queue[0]].arrival <= len(grid):
            begin[free.pop(0)] = queue.pop(0)
        for n, token in produce(begin, there).items():
            texts[n].append(token)
        there |= begin
        grid.append(tuple(there.get(slot) for slot in range(num_slots)))
        there = {slot: n for slot, n in there.items() if not requests[n].is_done(texts[n])}
    return ServingRun(tuple(requests), policy, tuple(grid), tuple(map(tuple, texts)))

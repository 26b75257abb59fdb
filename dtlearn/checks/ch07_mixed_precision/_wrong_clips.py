"""Ways in which a step of ch07.clip_over_ranks goes wrong: what becomes of its norm and of its gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Norms:
    """Of one step, unscaled: of each rank's shards, and of what is replicated.

    Attributes:
        first, first_limit: the scale of the first step, and its limit.
        absolute, largest: other norms of the model: the sum of the absolute values, and the largest of them.
    """

    shards: list[float]
    replicated: float
    limit: float
    scale: float
    first: float
    absolute: float
    largest: float
    first_limit: float

    @property
    def all(self) -> float:
        return math.hypot(*self.shards, self.replicated)

    @property
    def own(self) -> list[float]:
        """Of what each rank has."""
        return [math.hypot(length, self.replicated) for length in self.shards]

    @property
    def once(self) -> list[float]:
        """Of what each rank counts, if rank 0 alone counts what is replicated."""
        return [self.own[0], *self.shards[1:]]

    def clip(self, norm: float) -> float:
        return min(1.0, self.limit / norm) if norm > 0 else 1.0


# What a rank makes of a step: the norm that it returns, and what its shards' and the replicated gradients are
# multiplied by, or a function that they are given to.
Change = float | Callable[[torch.Tensor], torch.Tensor]
Way = Callable[[Norms, int], tuple[float, Change, Change]]


def _alike(norm: Callable[[Norms, int], float]) -> Way:
    """By another norm, and otherwise right."""
    return lambda x, r: (norm(x, r), x.clip(norm(x, r)) / x.scale, x.clip(norm(x, r)) / x.scale)


def _same(norm: Callable[[Norms], float], factor: Callable[[Norms], float]) -> Way:
    return lambda x, r: (norm(x), factor(x), factor(x))


def _with_shards_scaled(x: Norms) -> float:
    return math.hypot(*x.shards, x.replicated / x.scale) * x.scale


def _with_replicated_scaled(x: Norms) -> float:
    return math.hypot(*x.shards, x.replicated * x.scale)


def _scaled_in_part(norm: Callable[[Norms], float], shards: bool, replicated: bool, clipped: bool = True) -> Way:
    """These are left scaled, and are clipped all the same or not."""

    def way(x: Norms, r: int) -> tuple[float, float, float]:
        scaled, rest = (x.clip(norm(x)) if clipped else 1.0), x.clip(norm(x)) / x.scale
        return norm(x), scaled if shards else rest, scaled if replicated else rest

    return way


def _by_value(x: Norms, r: int) -> tuple[float, Change, Change]:
    """Each value is limited, and not the norm."""

    def limited(gradient: torch.Tensor) -> torch.Tensor:
        return (gradient / x.scale).clamp(-x.limit, x.limit)

    return x.all, limited, limited


def _counts_beside_shards(of_rank: int) -> Way:
    """What is replicated counts on this rank, and only where it has shards."""
    return _alike(lambda x, r: x.all if x.shards[of_rank] else math.hypot(*x.shards))


def changed(gradient: torch.Tensor, by: Change) -> torch.Tensor:
    return by(gradient) if callable(by) else gradient * by


right_way: Way = _alike(lambda x, r: x.all)


def wrong_ways(n: int) -> list[tuple[str, str, Way]]:
    """Codes, what is wrong, and the ways, on n ranks."""
    found: list[tuple[str, str, Way]] = []

    def add(code: str, text: str, *ways: Way) -> None:
        found.extend((code, text, way) for way in ways)

    if n > 1:
        text = "each rank clips by a norm of its own, of the gradients that it has: add up the squares over the ranks"
        add("DTL-VALUE-OWN-NORM", text, _alike(lambda x, r: x.own[r]), _alike(lambda x, r: x.once[r]))
        text = f"what is replicated is counted {n} times, once on each rank: it is one part of the model's gradient"
        add("DTL-VALUE-COUNTED-AGAIN", text, _alike(lambda x, r: math.hypot(*x.own)))
        text = "the norms of the ranks are added up: the squares add up, and then comes the root"
        add("DTL-VALUE-SUM-OF-NORMS", text, _alike(lambda x, r: sum(x.own)), _alike(lambda x, r: sum(x.once)))
        text = (
            "the largest of the ranks' norms is taken for the norm of all: that is right for the largest element only"
        )
        add("DTL-VALUE-LARGEST-NORM", text, _alike(lambda x, r: max(x.own)), _alike(lambda x, r: max(x.once)))
        text = f"the squares are averaged over the ranks, and not added up: the norm is too small by the root of {n}"
        roots = [_alike(lambda x, r: math.hypot(*x.own) / math.sqrt(n)), _alike(lambda x, r: x.all / math.sqrt(n))]
        add("DTL-VALUE-AVERAGED", text, *roots)
        text = "what is replicated is clipped on rank 0 only: the copies on the other ranks are another model's now"
        way: Way = lambda x, r: (x.all, x.clip(x.all) / x.scale, (1.0 if r else x.clip(x.all)) / x.scale)  # noqa: E731
        unscaled: Way = lambda x, r: (x.all, x.clip(x.all) / x.scale, 1.0 if r else x.clip(x.all) / x.scale)  # noqa: E731
        add("DTL-VALUE-ONE-COPY", text, way, unscaled)
        for rank in (0, -1):
            text = (
                f"what is replicated does not count in a step in which rank {rank % n} has no shards: it always counts"
            )
            add("DTL-VALUE-NOT-COUNTED", text, _counts_beside_shards(rank))
    add(
        "DTL-VALUE-NOT-COUNTED",
        "what is replicated is missing in the norm: it counts once, on one rank",
        _alike(lambda x, r: math.hypot(*x.shards)),
    )
    text = "a norm of another kind: {}, and asked for is the root of the sum of the squares"
    add("DTL-VALUE-OTHER-NORM", text.format("the sum of the absolute values"), _alike(lambda x, r: x.absolute))
    add("DTL-VALUE-OTHER-NORM", text.format("the largest absolute value"), _alike(lambda x, r: x.largest))
    add(
        "DTL-VALUE-CLIP-SCALED",
        "the gradients are clipped while they are still scaled, and divided by S after that: so they are S times too "
        "short; unscale, then clip",
        _same(lambda x: x.scale * x.all, lambda x: x.clip(x.scale * x.all) / x.scale),
        _same(lambda x: x.all, lambda x: x.clip(x.scale * x.all) / x.scale),
    )
    add(
        "DTL-VALUE-STILL-SCALED",
        "the gradients are still scaled at the end: each is to be divided by S",
        _same(lambda x: x.scale * x.all, lambda x: x.clip(x.scale * x.all)),
        _same(lambda x: x.all, lambda x: x.clip(x.all)),
    )
    for replicated, what in ((True, "what is replicated is"), (False, "the shards are")):
        still = _with_replicated_scaled if replicated else _with_shards_scaled
        add(
            "DTL-VALUE-STILL-SCALED",
            f"{what} still scaled, and the rest is not: each gradient is to be divided by S",
            _scaled_in_part(lambda x: x.all, not replicated, replicated),
            _scaled_in_part(still, not replicated, replicated),
            _scaled_in_part(still, not replicated, replicated, clipped=False),
        )
    add(
        "DTL-VALUE-UNSCALED-TWICE",
        "gradients are divided by S twice",
        _same(lambda x: x.all / x.scale, lambda x: x.clip(x.all / x.scale) / x.scale**2),
        _same(lambda x: x.all, lambda x: x.clip(x.all) / x.scale**2),
    )
    add(
        "DTL-VALUE-ARGUMENT-IGNORED",
        "the gradients are divided by the scale of the first step in all steps: S is an argument, and it changes",
        lambda x, r: (m := x.all * x.scale / x.first, x.clip(m) / x.first, x.clip(m) / x.first),
    )
    text = "max_norm of the first step is the limit in all steps: it is an argument, and it changes"
    by_first: Way = lambda x, r: (x.all, f := min(1.0, x.first_limit / (x.all or 1.0)) / x.scale, f)  # noqa: E731
    add("DTL-VALUE-ARGUMENT-IGNORED", text, by_first)
    add(
        "DTL-VALUE-STRETCHED",
        "gradients shorter than max_norm are made longer: multiply by max_norm / norm only if that is below 1",
        _same(lambda x: x.all, lambda x: x.limit / (x.all or 1.0) / x.scale),
    )
    text = "norm / max_norm is multiplied by, in place of max_norm / norm: short gradients are shortened, long ones not"
    add("DTL-VALUE-RATIO", text, _same(lambda x: x.all, lambda x: min(1.0, x.all / x.limit) / x.scale))
    add("DTL-VALUE-CLIP", "long gradients are not clipped", _same(lambda x: x.all, lambda x: 1 / x.scale))
    text = "each value is clipped to max_norm by itself, which changes the gradient's direction: clip its norm"
    add("DTL-VALUE-BY-VALUE", text, _by_value)
    text = "what is replicated is not clipped: it counts in the norm, and is shortened with all the rest"
    add("DTL-VALUE-CLIP", text, lambda x, r: (x.all, x.clip(x.all) / x.scale, 1 / x.scale))
    text = "the norm is the sum of the squares: its root is missing"
    add("DTL-VALUE-NO-ROOT", text, _alike(lambda x, r: x.all**2))
    text = "the gradients are right; returned is the norm after clipping, and asked for is the one before"
    after = _same(lambda x: min(x.all, x.limit), lambda x: x.clip(x.all) / x.scale)
    text_scaled = "the gradients are right; the returned norm is that of the scaled ones, S times too large"
    add("DTL-VALUE-RETURNED", text, after)
    add("DTL-VALUE-RETURNED", text_scaled, _same(lambda x: x.scale * x.all, lambda x: x.clip(x.all) / x.scale))
    return found

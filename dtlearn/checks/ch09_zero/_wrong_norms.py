"""Ways in which a step of ch09.global_norm goes wrong: what becomes of its norm and of its gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Squares:
    """Of one rank's step: the sums of squares of its shards' parameters, with padding, and with ties counted twice;
    and of what is replicated, the last of these with ties counted twice; `sizes`, the sum of absolute values."""

    own: float
    padded: float
    tied: float
    whole: float
    whole_tied: float
    sizes: float


def squares_of(step: dict[str, Any]) -> Squares:
    def square(of: Any) -> float:
        return 0.0 if of is None else float(of.double().square().sum())

    order, whole = step["order"], step["whole"]
    own = {i: square(g if g is None else g[: step["used"][i]]) for i, g in enumerate(step["shards"])}
    padded = {i: square(g) for i, g in enumerate(step["shards"])}
    sizes = sum(float(step["shards"][i][: step["used"][i]].abs().sum()) for i in {*order} - {3})
    return Squares(
        sum(own[i] for i in {*order}),
        sum(padded[i] for i in {*order}),
        sum(own[i] for i in order),
        sum(map(square, whole)),
        sum(square(whole[i]) for i in step["whole_order"]),
        sizes,
    )


@dataclass(frozen=True)
class Part:
    """What a way of computing sees: the squares of this rank's group and of all ranks, this rank's place, the limit."""

    group: list[Squares]
    all: list[Squares]
    place: int
    limit: float
    first: int

    @property
    def norm(self) -> float:
        return math.sqrt(sum(s.own for s in self.group) + self.group[0].whole)

    def clip(self, norm: float) -> float:
        return min(1.0, self.limit / (norm + 1e-6)) if not math.isnan(norm) else math.nan


# The norm that is returned; what shards, and replicated ones, are multiplied by; and what those of each that are tied
# are multiplied by besides.
Result = tuple[float, float, float, float, float]
Way = Callable[[Part], Result]


def _by(norm: Callable[[Part], float]) -> Way:
    return lambda x: (norm(x), x.clip(norm(x)), x.clip(norm(x)), 1.0, 1.0)


def _scaled(factor: Callable[[Part], float]) -> Way:
    return lambda x: (x.norm, factor(x), factor(x), 1.0, 1.0)


def _sum(x: Part, of: str) -> float:
    return math.sqrt(sum(getattr(s, of) for s in x.group) + x.group[0].whole)


def _tied(x: Part) -> float:
    return math.sqrt(sum(s.tied for s in x.group) + x.group[0].whole_tied)


def _own(s: Squares) -> float:
    return math.sqrt(s.own + s.whole)


WAYS: tuple[tuple[str, str, Way], ...] = (
    (
        "OWN-NORM",
        "each rank clips by a norm of its own, of what it has: add up the squares over the ranks",
        _by(lambda x: _own(x.group[x.place])),
    ),
    (
        "COUNTED-AGAIN",
        "what is replicated is counted once on each rank: it is one part of the gradient",
        _by(lambda x: math.sqrt(sum(s.own + s.whole for s in x.group))),
    ),
    (
        "NORM-PADDING",
        "padding is counted in the norm: only the first used[i] elements of a shard are parameters",
        _by(lambda x: _sum(x, "padded")),
    ),
    ("TIED-TWICE", "a shard that stands twice in the list is counted twice", _by(lambda x: _sum(x, "tied"))),
    (
        "TIED-TWICE",
        "a replicated parameter that stands twice in the list is counted twice",
        _by(lambda x: math.sqrt(sum(s.own for s in x.group) + x.group[0].whole_tied)),
    ),
    (
        "TIED-TWICE",
        "a parameter that stands twice in a list is counted twice",
        _by(_tied),
    ),
    (
        "CLIPPED-TWICE",
        "what stands twice in a list is scaled twice",
        lambda x: (x.norm, f := x.clip(x.norm), f, f, f),
    ),
    (
        "TIED-TWICE",
        "what stands twice in a list is counted twice, and scaled twice",
        lambda x: (m := _tied(x), f := x.clip(m), f, f, f),
    ),
    (
        "TIED-TWICE",
        "a shard that stands twice in the list is counted twice, and scaled twice",
        lambda x: (m := _sum(x, "tied"), f := x.clip(m), f, f, 1.0),
    ),
    (
        "GROUP-IGNORED",
        "the squares of all ranks are added up: the ranks outside the group have another model",
        _by(lambda x: math.sqrt(sum(s.own for s in x.all) + x.all[0].whole)),
    ),
    (
        "GROUP-IGNORED",
        "the squares of all ranks are added up: the ranks outside the group have another model",
        _by(lambda x: math.sqrt(sum(s.own for s in x.all) + sum({s.whole for s in x.all}))),
    ),
    (
        "NOT-COUNTED",
        "what is replicated is counted by rank 0 only, and this group may not have it: the first rank of the group "
        "is meant, dist.get_rank(group) == 0",
        _by(lambda x: math.sqrt(sum(s.own for s in x.group) + x.group[0].whole * (x.first == 0))),
    ),
    (
        "NOT-COUNTED",
        "what is replicated is missing in the norm: it counts once",
        _by(lambda x: math.sqrt(sum(s.own for s in x.group))),
    ),
    (
        "SUM-OF-NORMS",
        "the norms of the ranks are added up: the squares add up, and then comes the root",
        _by(lambda x: sum(map(_own, x.group))),
    ),
    (
        "SUM-OF-NORMS",
        "the norms of the ranks are added up: the squares add up, and then comes the root",
        _by(lambda x: _own(x.group[0]) + sum(math.sqrt(s.own) for s in x.group[1:])),
    ),
    ("LARGEST-NORM", "the largest of the ranks' norms is taken", _by(lambda x: max(map(_own, x.group)))),
    (
        "AVERAGED",
        "the squares are averaged over the ranks, and not added up",
        _by(lambda x: x.norm / math.sqrt(len(x.group))),
    ),
    (
        "OTHER-NORM",
        "the sum of absolute values in place of the root of the sum of squares",
        _by(lambda x: sum(s.sizes for s in x.group)),
    ),
    ("NO-ROOT", "the norm is the sum of the squares: its root is missing", _by(lambda x: x.norm**2)),
    (
        "NO-EPSILON",
        "the gradients are multiplied by max_norm / norm: torch divides by norm + 1e-6, which differs where the norm "
        "is small",
        _scaled(lambda x: min(1.0, x.limit / x.norm) if x.norm > 0 else 1.0),
    ),
    (
        "STRETCHED",
        "gradients shorter than max_norm are made longer: only a factor below 1 is used",
        _scaled(lambda x: x.limit / (x.norm + 1e-6)),
    ),
    ("CLIP", "long gradients are not clipped", _scaled(lambda x: 1.0)),
    ("CLIP", "what is replicated is not clipped", lambda x: (x.norm, x.clip(x.norm), 1.0, 1.0, 1.0)),
    (
        "ONE-COPY",
        "what is replicated is clipped on the first rank of the group only",
        lambda x: (x.norm, x.clip(x.norm), 1.0 if x.place else x.clip(x.norm), 1.0, 1.0),
    ),
    ("CLIP", "the shards are not clipped", lambda x: (x.norm, 1.0, x.clip(x.norm), 1.0, 1.0)),
    (
        "RETURNED",
        "the gradients are right; returned is the norm after clipping, and asked for is the one before",
        lambda x: (min(x.norm, x.limit), x.clip(x.norm), x.clip(x.norm), 1.0, 1.0),
    ),
)


def right_way(x: Part) -> Result:
    return x.norm, x.clip(x.norm), x.clip(x.norm), 1.0, 1.0

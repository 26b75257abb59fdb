"""LAMB on shards: the norms of a layer are sums over all ranks that have a part of it.

LAMB scales Adam's step for each layer by |x| / |r|, the norm of the weights by the norm of the update. A rank that has
a part of the layer has a part of both vectors. The ratio of the parts' norms is another number, and another one on each
rank, so that a layer's parts would move by different rates, and where the cuts lie would change the training.

Source: You et al., "Large Batch Optimization for Deep Learning", 1904.00962, algorithm 2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from dtlearn.sharing.wrapping import copy_in_group


class Update(NamedTuple):
    """The move of a piece: its direction, and the options of its parameter."""

    piece: torch.Tensor
    direction: torch.Tensor
    options: dict[str, Any]


class ShardedLAMB(torch.optim.Optimizer):
    """`dtlearn.data_parallel.LAMB` over pieces of parameters: the same steps, whatever the cuts are.

        ZeroRedundancyOptimizer(model.parameters(), ShardedLAMB, lr=1e-3)

    For each piece x with gradient g, at its update number t from 1:

        m <- b1 m + (1 - b1) g            v <- b2 v + (1 - b2) g^2
        r = (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps) + wd x
        x <- x - lr sqrt(sum of |x|^2 / sum of |r|^2) r            sums over the ranks

    **Communication**: one all-reduce of two numbers for each parameter, in their format: 8 bytes in float32.
    **Memory**: m and v, twice the pieces; during a step r of all pieces, once more.

    Args:
        params: the pieces, or groups of them; on all ranks as many, in the same order, empty ones too.
        lr: the share of its norm that a layer moves in one step.
        betas: b1 and b2.
        eps: added to the root.
        weight_decay: wd.
        trust_ratio: False: plain Adam, with neither ratio nor decay, as is often done for biases and norms: give them a
            group of their own. (A piece does not know how many dimensions its parameter has.)
        group: the ranks that have the pieces; None: all.

    Raises:
        ValueError: a value is negative, or a beta not below 1.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        trust_ratio: bool = True,
        *,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        if min(lr, eps, weight_decay) < 0 or not all(0 <= beta < 1 for beta in betas):
            raise ValueError(
                "lr, eps and weight_decay must not be negative, and betas be in [0, 1); got "
                f"{lr}, {eps}, {weight_decay} and {betas}"
            )
        self._group = group
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "trust_ratio": trust_ratio}
        super().__init__(params, options)

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_group": self._group}

    def __deepcopy__(self, memo: dict[int, Any]) -> ShardedLAMB:
        return copy_in_group(self, memo, self._group)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update; all ranks call it. `closure`: computes the loss anew; its value is returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        pieces = [(piece, group) for group in self.param_groups for piece in group["params"]]
        updates = [self._update(piece, group) for piece, group in pieces]
        ratios = self.trust_ratios(updates)
        for update, ratio in zip(updates, ratios, strict=True):
            if update.piece.grad is not None:
                rate = update.options["lr"] * (ratio if update.options["trust_ratio"] else 1.0)
                update.piece.sub_(rate * update.direction)
        return loss

    def trust_ratios(self, updates: list[Update]) -> torch.Tensor:
        """|x| / |r| of each whole parameter, the same on all ranks; (parameters,). 1 where one of them is 0."""
        squares = torch.stack([squared_norms(update) for update in updates])  # (parameters, 2)
        self.add_up(squares)
        weights, directions = squares.sqrt().unbind(1)
        is_defined = (weights > 0) & (directions > 0)
        return torch.where(is_defined, weights / directions, torch.ones_like(weights))

    def add_up(self, squares: torch.Tensor) -> None:
        """Squares of norms add up over the ranks, as the norms themselves do not."""
        dist.all_reduce(squares, group=self._group)

    def _update(self, piece: torch.Tensor, group: dict[str, Any]) -> Update:
        """Adam's direction with decay; zeros for a piece without a gradient."""
        x, g = piece, piece.grad  # the paper's names
        if g is None:
            return Update(x, torch.zeros_like(x), group)
        state = self.state[x]
        if not state:
            state["step"], state["m"], state["v"] = 0, torch.zeros_like(x), torch.zeros_like(x)
        state["step"] += 1
        b1, b2 = group["betas"]
        m = state["m"].lerp_(g, 1 - b1)
        v = state["v"].mul_(b2).addcmul_(g, g, value=1 - b2)
        r = m / (1 - b1 ** state["step"])
        r /= (v / (1 - b2 ** state["step"])).sqrt_().add_(group["eps"])
        decay = group["weight_decay"] if group["trust_ratio"] else 0.0
        return Update(x, r.add_(x, alpha=decay), group)


class ShardwiseLAMB(ShardedLAMB):
    """LAMB that does not know that it has pieces: each rank takes the norms of its own part.

    It is wrong, and trains all the same. Use `ShardedLAMB`.

    **Communication**: none.
    """

    def add_up(self, squares: torch.Tensor) -> None:
        """Nothing: this rank's norms are taken for those of the layer."""


def squared_norms(update: Update) -> torch.Tensor:
    """|x|^2 and |r|^2 of a piece, (2,), in float32 or the piece's own format if that has more bits."""
    dtype = torch.promote_types(update.piece.dtype, torch.float32)
    norms = [torch.linalg.vector_norm(t, dtype=dtype) for t in (update.piece, update.direction)]
    return torch.stack(norms).square()

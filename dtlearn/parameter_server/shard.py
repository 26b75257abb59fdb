"""The parameters that one server keeps, in one buffer, and the optimizer whose state lives beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import nn

from .progress import ServerUpdate
from .row_table import RowTable
from .scaled_step import step_at

OptimizerMaker = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


class ShardGradient(NamedTuple):
    """What a worker pushes to one server.

    Attributes:
        flat: of the server's parameters, one after the other, (n,).
        rows, values: of a sparse table, if there is one: which of the server's rows, (k,) int64, no row twice, and
            their gradients, (k, width).
    """

    flat: torch.Tensor
    rows: torch.Tensor | None = None
    values: torch.Tensor | None = None


class Shard:
    """Parameters as views of one buffer, and an optimizer that steps once for each update.

    The update is the weighted mean of its pushes, added up in their order: the same pushes give the same bits, on a
    server's rank and where its log is replayed.

    **Memory**: the parameters, a gradient of their size, and the optimizer's state. (Pushes that are applied together
    wait at the server: another n elements for each worker.)

    Args:
        pieces: initial values by name, of one dtype on one device; they are copied.
        make_optimizer: builds the optimizer from the parameters, such as `lambda p: torch.optim.SGD(p, lr=0.1)`.
        table: rows of a sparse table that this server keeps, too; None: there is none.

    Attributes:
        flat: all parameters, one after the other, (n,): what a pull copies.
        parameters: views of `flat`, by name.
        optimizer: any of `torch.optim`; where a tensor is cut, one that computes element by element.

    Raises:
        ValueError: there are no pieces, or they differ in dtype or device.
    """

    def __init__(
        self, pieces: Mapping[str, torch.Tensor], make_optimizer: OptimizerMaker, table: RowTable | None = None
    ) -> None:
        if len({(piece.dtype, piece.device) for piece in pieces.values()}) != 1:
            kinds = sorted({f"{piece.dtype} on {piece.device}" for piece in pieces.values()})
            raise ValueError(f"a server keeps tensors of one dtype on one device; got {kinds or 'none'}")
        self.flat = torch.cat([piece.detach().reshape(-1) for piece in pieces.values()])  # (n,)
        self.parameters = {name: nn.Parameter(view) for name, view in views(self.flat, pieces).items()}
        self.optimizer = make_optimizer(self.parameters.values())
        self.table = table
        self._room: torch.Tensor | None = None  # (n,)

    def apply(self, update: ServerUpdate[ShardGradient]) -> None:
        """One step of the optimizer (and of the table's) with the weighted mean of the pushes.

        Raises:
            ValueError: a weight is negative, or all are 0.
        """
        pushes = [push for push in update.pushes if push.weight]  # a mean over no samples may be NaN, and so is 0 * NaN
        if not pushes or min(push.weight for push in pushes) < 0:
            told = {push.worker: push.weight for push in update.pushes}
            raise ValueError(f"a step needs a sample, and no weight is below 0; the workers pushed weights {told}")
        weights, gradients = weight_shares([push.weight for push in pushes]), [push.gradient for push in pushes]
        # A single push is its own mean; several are added up where there is room already.
        mean = gradients[0].flat if len(weights) == 1 else torch.mul(gradients[0].flat, weights[0], out=self._mean())
        for gradient, weight in zip(gradients[1:], weights[1:], strict=True):
            mean.add_(gradient.flat, alpha=weight)
        for name, view in views(mean, self.parameters).items():
            self.parameters[name].grad = view
        step_at(self.optimizer, update.lr_factor)
        rows = [gradient.rows for gradient in gradients if gradient.rows is not None]
        values = [g.values * weight for g, weight in zip(gradients, weights, strict=True) if g.values is not None]
        if self.table is not None and rows:  # also if none of them is here: Adam counts steps, not rows
            self.table.step(torch.cat(rows), torch.cat(values), update.lr_factor)

    def _mean(self) -> torch.Tensor:
        if self._room is None:
            self._room = torch.empty_like(self.flat)
        return self._room


def views(flat: torch.Tensor, like: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The parts of a flat buffer, (n,), with the names and shapes of `like`."""
    parts = flat.split([tensor.numel() for tensor in like.values()])
    return {name: part.view_as(like[name]) for name, part in zip(like, parts, strict=True)}


def weight_shares(weights: Sequence[int]) -> list[float]:
    """Each weight's share of their sum; of a single one 1, exactly."""
    return [weight / sum(weights) for weight in weights]

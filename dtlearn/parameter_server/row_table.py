"""An embedding table that the servers keep by rows: no rank ever has the whole of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import nn

from .scaled_step import step_at


@dataclass(frozen=True)
class RowPlacement:
    """Row r of the table is row r // S of server r % S: neighbours, often equally frequent, are at different servers.

    Args:
        num_rows, width: of the whole table.
        num_servers: S.

    Raises:
        ValueError: a server would have no row, or rows have no elements.
    """

    num_rows: int
    width: int
    num_servers: int

    def __post_init__(self) -> None:
        if not 1 <= self.num_servers <= self.num_rows or self.width < 1:
            raise ValueError(
                f"{self.num_rows} rows of {self.width} elements cannot be divided over {self.num_servers} servers: "
                "each needs a row"
            )

    def rows_of(self, server: int) -> int:
        """How many rows a server keeps."""
        return len(range(server, self.num_rows, self.num_servers))

    def split(self, rows: torch.Tensor) -> list[torch.Tensor]:
        """For each server: where in `rows`, (k,), the rows stand that it keeps, (k_s,).

        Raises:
            ValueError: a row that the table does not have, or one that is there twice.
        """
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < self.num_rows:
            raise ValueError(f"rows are 0 to {self.num_rows - 1}; got {int(rows.min())} to {int(rows.max())}")
        if len(rows.unique()) != len(rows):
            raise ValueError(
                "a row is asked for twice: pull each once, `rows, where = ids.unique(return_inverse=True)`"
            )
        return [(rows % self.num_servers == server).nonzero().view(-1) for server in range(self.num_servers)]


class RowTable:
    """The rows of one server, and their optimizer, which steps on those rows alone that have a gradient.

    **Memory**: the server's rows and the optimizer's state for them; the gradient is that of the rows pushed.

    Args:
        values: initial rows, (rows_of(server), width); kept, not copied.
        make_optimizer: builds an optimizer that takes sparse gradients, such as `torch.optim.SGD` (without momentum),
            `torch.optim.Adagrad`, `torch.optim.SparseAdam` or `RowwiseAdagrad`.
    """

    def __init__(
        self, values: torch.Tensor, make_optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
    ) -> None:
        self.weight = nn.Parameter(values)
        self.optimizer = make_optimizer([self.weight])

    def values(self, rows: torch.Tensor) -> torch.Tensor:
        """A copy of these rows, (k,) -> (k, width)."""
        return self.weight.detach()[rows]

    def step(self, rows: torch.Tensor, gradients: torch.Tensor, lr_factor: float = 1.0) -> None:
        """One step of the optimizer on these rows, (k,), with these gradients, (k, width); of equal rows the sum."""
        # torch warns where nobody says whether to check the indices of a sparse tensor; our rows are checked.
        with torch.sparse.check_sparse_tensor_invariants(False):
            self.weight.grad = torch.sparse_coo_tensor(rows[None], gradients, self.weight.shape).coalesce()
            step_at(self.optimizer, lr_factor)


class RowwiseAdagrad(torch.optim.Optimizer):
    """Adagrad with one sum of squares for a row, in place of one for an element.

    The sum grows by the mean of the squared gradients of the row. Source: Mudigere et al. 2022, "Software-Hardware
    Co-design for Fast and Scalable Training of Deep Learning Recommendation Models", arXiv 2104.05158, section 4.1.

    **Memory**: one number for each row.

    Args:
        params: tables, (rows, width), whose gradients are sparse and coalesced.
        lr: learning rate.
        eps: added to the root of the sum.
    """

    def __init__(self, params: Iterable[nn.Parameter], lr: float = 0.01, eps: float = 1e-10) -> None:
        super().__init__(params, {"lr": lr, "eps": eps})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update the rows that have a gradient."""
        for group in self.param_groups:
            for table in group["params"]:
                if table.grad is None:
                    continue
                if table not in self.state:
                    self.state[table]["sum"] = table.new_zeros(len(table))  # (rows,)
                rows, gradient = table.grad.indices()[0], table.grad.values()  # (k,), (k, width)
                sums = self.state[table]["sum"].index_add_(0, rows, gradient.square().mean(1))[rows]  # (k,)
                table.index_add_(0, rows, gradient / (sums.sqrt() + group["eps"])[:, None], alpha=-group["lr"])

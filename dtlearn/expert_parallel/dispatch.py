"""From tokens to rows sorted by expert, and back; and which rows go to which rank: as data.

    plan        rows of this rank, sorted by expert: row r is token `tokens[r]`, for choice `choices[r]` of n k
    exchange    experts lie on the ranks in order, E/ep on each: so rows for one rank stand together already. What
                arrives is sorted by rank, then by expert; `by_expert` sorts it by expert.

Dropped choices have no row. `combine` gives every output its token's place back: rows of a token may have been on
different ranks, and arrive sorted by expert, not by token.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist

from dtlearn.sharing.shards import divide, rank_and_size
from dtlearn.sharing.uneven import exchange_numbers

from .routing import count_choices


@dataclass(frozen=True)
class DispatchPlan:
    """Rows of this rank's tokens, sorted by expert, and of one expert by token.

    Attributes:
        choices: (a,) int64, which of the n k choices each row is; a: choices that were kept.
        tokens: (a,) int64, whose row it is.
        load: (E,) int64, rows for each expert.
    """

    choices: torch.Tensor
    tokens: torch.Tensor
    load: torch.Tensor


@dataclass(frozen=True)
class RowExchange:
    """How many rows go where, known to both sides.

    Attributes:
        send: rows for each rank of the group, on the host.
        receive: rows from each rank.
        arriving: (ep, E/ep) int64, rows from each rank for each expert of this one.
    """

    send: list[int]
    receive: list[int]
    arriving: torch.Tensor

    @property
    def load(self) -> list[int]:
        """Rows for each expert of this rank, from all ranks."""
        loads: list[int] = self.arriving.sum(0).tolist()
        return loads

    @property
    def by_expert(self) -> torch.Tensor:
        """(m,) int64: which of the rows that arrived, sorted by rank, comes next if they are sorted by expert."""
        ranks, local = self.arriving.shape
        experts = torch.arange(local, device=self.arriving.device).repeat(ranks)  # of each block of rows
        return experts.repeat_interleave(self.arriving.flatten()).argsort(stable=True)


def plan_dispatch(experts: torch.Tensor, kept: torch.Tensor, num_experts: int) -> DispatchPlan:
    """Sort the choices that were kept by expert.

    **Communication**: none. **Memory**: 16 a bytes.

    Args:
        experts, kept: of a `Routing`, (n, k).
        num_experts: E.
    """
    choices = kept.flatten().nonzero().squeeze(1)  # (a,): by token
    chosen = experts.flatten()[choices]
    choices = choices[chosen.argsort(stable=True)]  # by expert, then by token
    return DispatchPlan(choices, choices // experts.shape[1], count_choices(chosen, num_experts))


def exchange_counts(load: torch.Tensor, *, group: dist.ProcessGroup | None = None) -> RowExchange:
    """Tell each rank how many rows come, for each of its experts: before the rows, whose number it has to know.

    The numbers are needed on the host, where tensors are made and cut: on a GPU this waits for all that was launched.

    **Communication**: one all-to-all of 8 E bytes; each rank sends 8 E (ep-1)/ep. In a group of one rank none.
    **Memory**: 8 E bytes.

    Args:
        load: (E,), rows that this rank has for each expert.
        group: ranks among which the experts are divided; None: all ranks.

    Raises:
        ValueError: the ranks do not divide the experts.
    """
    _, num_ranks = rank_and_size(group)
    going = load.view(num_ranks, divide(len(load), num_ranks, "experts"))  # (ep, E/ep)
    arriving = exchange_numbers(going, group=group)  # (ep, E/ep)
    send, receive = torch.stack([going.sum(1), arriving.sum(1)]).tolist()  # one copy to the host
    return RowExchange(send, receive, arriving)


def combine(rows: torch.Tensor, plan: DispatchPlan, weights: torch.Tensor) -> torch.Tensor:
    """Each token's sum of its experts' outputs, by weight, in the tokens' order: (a, C) -> (n, C).

    Sums are made in the format of the weights, fp32 at least, and always over j = 0, ..., k-1.

    **Communication**: none. **Memory**: k n C elements.

    Args:
        rows: outputs, in the order of the plan.
        plan: of the same tokens.
        weights: (n, k).
    """
    n, k = weights.shape
    by_choice = rows.new_zeros(n * k, rows.shape[1]).index_copy(0, plan.choices, rows)  # dropped ones: zeros
    weighted: torch.Tensor = by_choice.unflatten(0, (n, k)) * weights.unsqueeze(-1)  # (n, k, C)
    return weighted.sum(1).to(rows.dtype)

"""An all-to-all of rows in which each rank sends each other one as many as it has for it: also none.

A tensor that arrives has to be made before it arrives, so both sides know the numbers first: `exchange_numbers`, an
all-to-all of the numbers themselves. Then `all_to_all_rows` moves the rows, and autograd sees it.

    rank 0 has 3 rows: 1 for itself, 2 for rank 1          send [1, 2]    receive [1, 0]
    rank 1 has 2 rows: 0 for rank 0, 2 for itself          send [0, 2]    receive [2, 2]

All ranks of the group call both, also a rank that has no row and gets none: a collective waits for every rank.

Source: Lepikhin et al., "GShard", 2006.16668, section 3.2; `torch.distributed.all_to_all_single` and its split sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from .shards import rank_and_size


def exchange_numbers(numbers: Tensor, *, group: dist.ProcessGroup | None = None) -> Tensor:
    """Row j goes to rank j; row i of the result is what rank i sent here: (t, ...) int64 -> (t, ...).

    **Communication**: one all-to-all; of n bytes in `numbers`, each rank sends n (t-1)/t. In a group of one rank none.
    **Memory**: the result.

    Args:
        numbers: of the same shape on all ranks, a row for each rank of the group.
        group: None: all ranks.

    Raises:
        ValueError: another number of rows than ranks.
    """
    _, num_ranks = rank_and_size(group)
    if len(numbers) != num_ranks:
        raise ValueError(f"expected a row of numbers for each of {num_ranks} ranks; got {len(numbers)} rows")
    if num_ranks == 1:
        return numbers
    received = torch.empty_like(numbers, memory_format=torch.contiguous_format)
    dist.all_to_all_single(received, numbers.contiguous(), group=group)
    return received


def all_to_all_rows(
    rows: Tensor, send: Sequence[int], receive: Sequence[int], *, group: dist.ProcessGroup | None = None
) -> Tensor:
    """The first `send[0]` rows go to rank 0, the next ones to rank 1, ...; rows that come are in the ranks' order.

    In backward the same with `send` and `receive` exchanged, so that each gradient goes back where its row came from.

    **Communication**: one all-to-all, and one in backward; each rank sends the rows that are not for itself. In a
    group of one rank none.
    **Memory**: the result.

    Args:
        rows: (sum(send), ...), for rank 0 first.
        send: rows for each rank of the group.
        receive: rows from each rank, as `exchange_numbers` found them.
        group: None: all ranks.

    Returns:
        (sum(receive), ...), from rank 0 first.

    Raises:
        ValueError: numbers that are not of as many ranks, or not of the rows that are there.
    """
    _, num_ranks = rank_and_size(group)
    if not len(send) == len(receive) == num_ranks:
        raise ValueError(
            f"expected a number of rows for each of {num_ranks} ranks; got {len(send)} to send, {len(receive)} to "
            "receive. The group has to be the one that the numbers were exchanged in"
        )
    if sum(send) != len(rows):
        raise ValueError(f"send={list(send)} is {sum(send)} rows; there are {len(rows)}. Count the rows by their rank")
    out: Tensor = _AllToAllRows.apply(rows, list(send), list(receive), group)
    return out


class _AllToAllRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, send: list[int], receive: list[int], group: dist.ProcessGroup | None) -> Tensor:
        ctx.send, ctx.receive, ctx.group = send, receive, group
        if len(send) == 1:
            return rows.view_as(rows)
        received = rows.new_empty(sum(receive), *rows.shape[1:])
        dist.all_to_all_single(received, rows.contiguous(), receive, send, group=group)
        return received

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        return all_to_all_rows(gradient, ctx.receive, ctx.send, group=ctx.group), None, None, None

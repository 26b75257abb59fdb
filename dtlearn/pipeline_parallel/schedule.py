"""A pipeline's schedule as data: for every rank, its actions in the order in which it does them.

A schedule gives an order and no times: a rank begins an action when it is done with the one before, and when what the
action needs from other ranks is there. Generators make it (`schedules/`), text is read into it (`text`), `checking/`
finds what is wrong with it and when everything happens, and the runner executes it; all of them read the same lists.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .actions import Action, Op


@dataclass(frozen=True)
class Schedule:
    """Who does what, in which order. It may be wrong: `checking.validate` says how.

    Attributes:
        name: for titles and messages.
        num_microbatches: m.
        placement: for each stage, the rank that holds it.
        orders: for each rank, its actions in order.
    """

    name: str
    num_microbatches: int
    placement: tuple[int, ...]
    orders: tuple[tuple[Action, ...], ...]

    def __post_init__(self) -> None:
        if not self.orders or not self.placement or self.num_microbatches < 1:
            raise ValueError(
                f"{self.name}: a schedule has a rank, a stage and a micro-batch at least; got {self.num_ranks} ranks, "
                f"{self.num_stages} stages and {self.num_microbatches} micro-batches"
            )
        for stage, rank in enumerate(self.placement):
            if not 0 <= rank < self.num_ranks:
                raise ValueError(f"{self.name}: stage {stage} is on rank {rank}, and there are {self.num_ranks} ranks")

    @property
    def num_ranks(self) -> int:
        """Number of ranks, p."""
        return len(self.orders)

    @property
    def num_stages(self) -> int:
        """Stages of the model, on all ranks."""
        return len(self.placement)

    @property
    def splits_backward(self) -> bool:
        """Whether a backward pass is in two parts, I and W, anywhere."""
        return any(action.op in (Op.I, Op.W) for order in self.orders for action in order)

    def stages_of(self, rank: int) -> tuple[int, ...]:
        """The stages that a rank holds, ascending."""
        return tuple(stage for stage, holder in enumerate(self.placement) if holder == rank)

    def actions(self) -> Iterator[tuple[int, int, Action]]:
        """Rank, position in its order, action; rank by rank."""
        for rank, order in enumerate(self.orders):
            for position, action in enumerate(order):
                yield rank, position, action
